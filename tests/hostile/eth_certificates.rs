//! Certificates from untrusted sources.

use chainsieve::eth::audit::{Audit, AuditQuestion};
use chainsieve::eth::certificate::Certificate;
use chainsieve::eth::chain_profile::ChainProfile;
use chainsieve::eth::header::{HeaderView, LinkedHeaders};
use chainsieve::eth::log_query::{LogQuery, ResolvedBlocks, Semantics};
use chainsieve::eth::receipts::BlockReceipts;

use crate::{giants, survives};
use testkit::Rng;
use testkit::eth::fixtures;
use testkit::mutated;

/// A mainnet block of the fixtures.
const NUMBER: u64 = 14_764_013;

/// The data of a verifier who asks for every log of one block.
struct Asked {
    chain: LinkedHeaders,
    query: LogQuery,
    profile: ChainProfile,
    receipts: BlockReceipts,
    header: Vec<u8>,
}

impl Asked {
    fn new() -> Self {
        let (header, encodings) = fixtures::block(NUMBER);
        let mut chain = LinkedHeaders::new();
        chain.extend_from_rlp(&header).expect("a header");
        let query = LogQuery::new().from_block(NUMBER).to_block(NUMBER);
        let receipts = BlockReceipts::from_encodings(&encodings).expect("receipts");
        Self { chain, query, profile: ChainProfile::ethereum(), receipts, header }
    }

    const BLOCKS: ResolvedBlocks = ResolvedBlocks::Range { first: NUMBER, last: NUMBER };

    fn certificate(&self) -> Certificate {
        let anchor = self.chain.last_hash().expect("a block");
        let question = AuditQuestion {
            chain: &self.chain,
            anchors: &[anchor],
            query: &self.query,
            blocks: Self::BLOCKS,
            semantics: Semantics::Geth,
            profile: &self.profile,
        };
        let bloom = self.chain.blocks().next().expect("a block").bloom;
        let root = self.chain.blocks().next().expect("a block").receipts_root;
        let verified = self.receipts.verify(root, bloom.into()).expect("its receipts");
        let logs: Vec<_> = verified
            .logs()
            .map(|found| chainsieve::eth::log::LocatedLog {
                log: found.log.clone(),
                block_number: NUMBER,
                block_hash: anchor,
                block_timestamp: None,
                transaction_hash: None,
                claimed_transaction_hash: None,
                transaction_index: found.transaction_index,
                log_index: found.log_index,
                removed: false,
            })
            .collect();
        assert_eq!(logs.len(), 28);
        let mut audit = Audit::new(question, &logs).expect("a question");
        assert_eq!(audit.check_receipts(anchor, &self.receipts), Ok(true));
        let report = audit.finish();
        let header = HeaderView::decode(&self.header).expect("a header");
        Certificate::from_report(&question, &report, &logs)
            .expect("nothing is wrong")
            .with_headers([&header])
            .with_receipts(anchor, &self.receipts)
    }

    /// Reads a text and verifies it if it is a certificate. Returns `Some(true)` if everything is
    /// proven, which requires the true number of logs.
    fn complete(&self, text: &str) -> Option<bool> {
        let read = || Certificate::from_json(text);
        let certificate = match survives("a certificate", text.as_bytes(), 60, 8_000, read) {
            Ok(certificate) => certificate,
            Err(error) => {
                assert!(error.to_string().len() < 1_400, "{:.2000}", error.to_string());
                return None;
            }
        };
        let anchor = self.chain.last_hash().expect("a block");
        let verify = || {
            let chain = certificate.chain()?;
            let question = AuditQuestion {
                chain: &chain,
                anchors: &[anchor],
                query: &self.query,
                blocks: Self::BLOCKS,
                semantics: Semantics::Geth,
                profile: &self.profile,
            };
            certificate.verify(question, |_, _| None, None)
        };
        let verified = survives("verifying", text.as_bytes(), 400, 200_000, verify);
        let complete = verified.is_ok_and(|verified| {
            let logs = verified.logs.as_ref().map(Vec::len);
            assert!(!verified.is_complete() || logs == Some(28));
            verified.is_complete()
        });
        Some(complete)
    }
}

#[test]
fn truncated_changed_doubled_and_giant() {
    let asked = Asked::new();
    let text = asked.certificate().to_json();
    assert_eq!(asked.complete(&text), Some(true));
    let receipts_at = text.find(r#""receipts""#).expect("receipts");
    for end in (0..receipts_at + 300).chain((0..text.len()).step_by(97)) {
        assert_eq!(asked.complete(&text[..end]), None, "{end}");
    }
    assert_eq!(asked.complete(&format!("{text}x")), None);
    let fields: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    for (name, value) in fields.as_object().expect("an object") {
        let twice = format!("{},\"{name}\":{value}}}", &text[..text.len() - 1]);
        assert_eq!(asked.complete(&twice), None, "{name} twice");
        for value in giants(r#""0x""#) {
            let mut other = fields.clone();
            other[name] = "VALUE".into();
            let other = other.to_string().replace("\"VALUE\"", &value);
            // The name of a profile is a label and may be any text.
            let label = name == "profile" && value.starts_with("\"0x");
            assert_eq!(asked.complete(&other) == Some(true), label, "{name}: {value:.40}");
        }
    }
    // Each string must be exactly one header.
    let header = fields["headers"][0].as_str().expect("a header");
    let twice = format!("{header}{}", &header[2..]);
    let none: &[&str] = &[];
    for headers in [none, &["0x"], &["0x", header], &[header, "0x"], &[&twice], &[header, header]] {
        let mut other = fields.clone();
        other["headers"] = headers.into();
        assert_eq!(asked.complete(&other.to_string()), Some(false), "{headers:?}");
    }
    let mut rng = Rng::new(51);
    let mut read = 0;
    for _ in 0..1_500 {
        let bytes = mutated(&mut rng, text.as_bytes());
        let other = String::from_utf8_lossy(&bytes);
        read += usize::from(asked.complete(&other).is_some());
    }
    assert!(read > 100, "{read}");
}
