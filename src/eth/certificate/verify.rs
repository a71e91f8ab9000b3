//! Verification of certificates.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use alloy_primitives::B256;

use super::{Certificate, CertificateError};
use crate::eth::audit::{Audit, AuditQuestion, AuditReport, Status, Undecidable};
use crate::eth::header::{BlockRef, ChainError, HeaderView, LinkedHeaders};
use crate::eth::log::{self, LocatedLog};
use crate::eth::log_query::ResolvedBlocks;
use crate::eth::receipts::BlockReceipts;

/// The result of verifying a certificate that nothing contradicts.
///
/// `serde` can write this result, but cannot read it: store the certificate, and verify it again.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[must_use = "a certificate may be without contradiction and yet prove little"]
#[non_exhaustive]
pub struct VerifiedCertificate {
    /// The verifier's own audit.
    pub report: AuditReport,
    /// The logs that the query selects, which match the certificate's number and digest.
    ///
    /// If the verifier gave a result, these are the logs of that result. Otherwise, these are the
    /// logs from receipts, in the order of the chain. `None` if no result was given and receipts
    /// are missing.
    pub logs: Option<Vec<LocatedLog>>,
}

impl VerifiedCertificate {
    /// Returns `true` if the result is proven: every block is decided, and the logs are known.
    pub fn is_complete(&self) -> bool {
        self.logs.is_some() && self.report.status() == Status::Complete
    }

    /// Returns the numbers of the blocks that could not be verified, ascending, each with its
    /// reason.
    pub fn unverified(&self) -> impl Iterator<Item = (u64, Undecidable)> {
        self.report.undecided()
    }
}

impl Certificate {
    /// Verifies the certificate, as far as headers, receipts and result allow.
    ///
    /// - `question`: the verifier's own query, and the data that the verifier trusts. Only the
    ///   chain of the question may come from the certificate ([`chain`](Self::chain)): the anchors
    ///   alone make headers authentic.
    /// - `receipts`: returns the receipts of a block by number and hash. The verifier calls this
    ///   function for blocks without embedded receipts, and for blocks whose embedded receipts lack
    ///   the post-states from before Byzantium. The source may be untrusted: receipts of another
    ///   block are ignored.
    /// - `result`: the logs to audit. If `None`, the logs are derived from receipts, which needs
    ///   the receipts of all examined blocks.
    ///
    /// `Ok` means that nothing contradicts the certificate. The [`VerifiedCertificate`] states what
    /// is proven.
    ///
    /// # Errors
    /// Returns a [`CertificateError`] that names the first contradiction.
    pub fn verify(
        &self,
        question: AuditQuestion<'_>,
        mut receipts: impl FnMut(u64, B256) -> Option<BlockReceipts>,
        result: Option<&[LocatedLog]>,
    ) -> Result<VerifiedCertificate, CertificateError> {
        // A certificate for another query would be valid, but it would answer the wrong question.
        if *question.query != self.query {
            return Err(CertificateError::OtherQuery);
        }
        if question.semantics != self.semantics {
            let (expected, found) = (question.semantics, self.semantics);
            return Err(CertificateError::OtherSemantics { expected, found });
        }
        let audit = match result {
            Some(logs) => Audit::new(question, logs),
            None => Audit::collecting(question),
        };
        let mut audit = audit.map_err(CertificateError::Audit)?;
        self.check_ends(question.chain, &question.blocks)?;
        self.send_receipts(&mut audit, &mut receipts)?;
        let (report, collected, is_whole) = audit.end();
        if report.counts.blocks != self.blocks {
            return Err(CertificateError::NotSo("counts.blocks"));
        }
        if report.counts.examined != self.examined {
            return Err(CertificateError::NotSo("counts.examined"));
        }
        let logs = result.map(<[_]>::to_vec).or(is_whole.then_some(collected));
        if let Some(logs) = &logs {
            if logs.len() as u64 != self.logs {
                return Err(CertificateError::NotSo("result.logs"));
            }
            if log::digest(logs) != self.digest {
                return Err(CertificateError::NotSo("result.digest"));
            }
        }
        if report.status() == Status::Wrong {
            return Err(CertificateError::Refuted(Box::new(report)));
        }
        Ok(VerifiedCertificate { report, logs })
    }

    /// Returns the chain of the embedded headers. The chain is authentic only up to a trusted hash.
    ///
    /// # Errors
    /// Returns [`CertificateError::NoHeaders`] if no headers are embedded, and [`CertificateError::Headers`]
    /// if they do not form a chain.
    pub fn chain(&self) -> Result<LinkedHeaders, CertificateError> {
        let headers = self.headers.as_ref().ok_or(CertificateError::NoHeaders)?;
        let decode = |(index, rlp)| {
            HeaderView::decode(rlp).map_err(|error| {
                let error = ChainError::Header { index, error };
                CertificateError::Headers { index, error }
            })
        };
        let rlp = headers.iter().map(|rlp| &rlp[..]).enumerate();
        let headers = rlp.map(decode).collect::<Result<Vec<_>, _>>()?;
        let mut chain = LinkedHeaders::new();
        chain
            .extend(&headers)
            .map_err(|error| CertificateError::Headers { index: chain.len(), error })?;
        Ok(chain)
    }

    /// Checks that the first and the last queried block are those of the certificate.
    fn check_ends(
        &self,
        chain: &LinkedHeaders,
        blocks: &ResolvedBlocks,
    ) -> Result<(), CertificateError> {
        let (first, last) = match *blocks {
            ResolvedBlocks::Range { first, last } => (first, last),
            ResolvedBlocks::AtHash(_) => (self.first, self.last),
        };
        let asked = |block: Option<B256>| match *blocks {
            ResolvedBlocks::AtHash(hash) => block == Some(hash),
            ResolvedBlocks::Range { .. } => true,
        };
        let hash = |number| chain.block(number).map(|block| block.hash);
        let claims = [
            ("chain.first", self.first == first && asked(hash(self.first))),
            ("chain.last", self.last == last && asked(hash(self.last))),
            ("chain.parentHash", parent_of(chain, self.first) == Some(self.parent_hash)),
            ("chain.lastHash", hash(self.last) == Some(self.last_hash)),
        ];
        match claims.into_iter().find(|(_, is_so)| !is_so) {
            Some((claim, _)) => Err(CertificateError::NotSo(claim)),
            None => Ok(()),
        }
    }

    /// Sends embedded receipts to the audit, and fetches those that are not embedded.
    fn send_receipts(
        &self,
        audit: &mut Audit<'_>,
        receipts: &mut impl FnMut(u64, B256) -> Option<BlockReceipts>,
    ) -> Result<(), CertificateError> {
        // The audit does not need the receipts of a block without receipts. A certificate may
        // nevertheless embed the empty list of receipts for such a block.
        let is_empty = |hash: &B256| {
            let none = self.receipts.get(hash).is_some_and(Vec::is_empty);
            none && audit.is_examined(*hash)
        };
        let mut needless: BTreeSet<B256> =
            self.receipts.keys().filter(|hash| !is_empty(hash)).copied().collect();
        let open: Vec<BlockRef> = audit.open().collect();
        for BlockRef { number, hash: block_hash } in open {
            if let Some(encodings) = self.receipts.get(&block_hash) {
                needless.remove(&block_hash);
                let receipts = BlockReceipts::from_encodings(encodings)
                    .map_err(|error| CertificateError::Receipts { block_hash, error })?;
                // Receipts of another source are ignored if they are wrong, but embedded receipts
                // are part of the certificate's claim.
                let is_decided = audit
                    .check_receipts(block_hash, &receipts)
                    .map_err(|why| CertificateError::OtherReceipts { block_hash, why })?;
                if is_decided {
                    continue;
                }
            }
            if let Some(receipts) = receipts(number, block_hash) {
                let _ = audit.check_receipts(block_hash, &receipts);
            }
        }
        match needless.first() {
            Some(&block_hash) => Err(CertificateError::NeedlessReceipts(block_hash)),
            None => Ok(()),
        }
    }
}

/// Returns the parent hash of the block with this number, if the chain knows it.
pub(super) fn parent_of(chain: &LinkedHeaders, number: u64) -> Option<B256> {
    let numbers = chain.numbers()?;
    if number == *numbers.start() {
        chain.parent_hash()
    } else {
        chain.block(number.checked_sub(1)?).map(|block| block.hash)
    }
}
