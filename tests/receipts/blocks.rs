//! Real blocks: those of the fixtures, and those of the corpus if there is one.

use std::path::PathBuf;

use alloy_consensus::Header;
use alloy_primitives::hex;
use alloy_rlp::Decodable as _;

use testkit::corpus;

/// A block's header and the consensus encodings of its receipts.
pub(crate) struct RealBlock {
    pub(crate) name: String,
    pub(crate) header: Header,
    /// The encodings one by one, as alloy reads them from the list.
    pub(crate) encodings: Vec<Vec<u8>>,
    /// The RLP list of the corpus. For a fixture, a list composed of the encodings.
    pub(crate) rlp: Vec<u8>,
    /// The answer of a node over JSON-RPC.
    pub(crate) json: Option<String>,
}

/// Returns the blocks of the fixtures and of the corpus.
pub(crate) fn all() -> Vec<RealBlock> {
    let mut blocks = fixtures();
    blocks.extend(corpus());
    blocks
}

pub(crate) fn fixtures() -> Vec<RealBlock> {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures/ethereum/blocks");
    let files = std::fs::read_dir(directory).expect("the fixtures");
    let files = files.map(|file| file.expect("a file").path());
    let blocks: Vec<_> = files
        .map(|file| {
            let text = std::fs::read_to_string(&file).expect("a file");
            let fixture: serde_json::Value = serde_json::from_str(&text).expect("JSON");
            let bytes =
                |value: &serde_json::Value| hex::decode(value.as_str().expect("hex")).expect("hex");
            let encodings: Vec<_> =
                fixture["receipts"].as_array().expect("receipts").iter().map(bytes).collect();
            RealBlock {
                name: file.display().to_string(),
                header: header(&bytes(&fixture["header"])),
                rlp: list_of(&encodings),
                encodings,
                json: None,
            }
        })
        .collect();
    assert_eq!(blocks.len(), 5);
    blocks
}

/// Returns the blocks of the corpus, or none if there is no corpus.
///
/// # Panics
/// If there is no corpus and `CI` is set.
pub(crate) fn corpus() -> Vec<RealBlock> {
    let Some((root, files)) = corpus::index("ethereum") else { return Vec::new() };
    let names = files.iter().map(|file| file["file"].as_str().expect("a name"));
    let blocks: Vec<_> = names
        .filter_map(|name| {
            let stem = name.strip_suffix(".receipts.rlp")?;
            let read = |ending: &str| std::fs::read(root.join(format!("{stem}{ending}"))).ok();
            let rlp = read(".receipts.rlp").expect("receipts");
            Some(RealBlock {
                name: stem.to_owned(),
                header: header(&read(".header.rlp").expect("a header")),
                encodings: encodings_of(&rlp),
                rlp,
                json: read(".receipts.json").map(|json| String::from_utf8(json).expect("UTF-8")),
            })
        })
        .collect();
    assert_eq!(blocks.len(), 37);
    assert_eq!(blocks.iter().filter(|block| block.json.is_some()).count(), 3);
    blocks
}

fn header(rlp: &[u8]) -> Header {
    Header::decode(&mut &rlp[..]).expect("a header")
}

/// Splits a list into encodings without using the library.
fn encodings_of(rlp: &[u8]) -> Vec<Vec<u8>> {
    use alloy_consensus::ReceiptEnvelope;
    use alloy_consensus::private::alloy_eips::Encodable2718 as _;
    let receipts = Vec::<ReceiptEnvelope>::decode(&mut &rlp[..]).expect("receipts");
    receipts.iter().map(ReceiptEnvelope::encoded_2718).collect()
}

/// Returns the receipts as an `eth/68` list.
pub(crate) fn list_of(encodings: &[Vec<u8>]) -> Vec<u8> {
    use alloy_rlp::{Encodable as _, Header as RlpHeader};
    let mut payload = Vec::new();
    for encoding in encodings {
        if encoding[0] >= 0xc0 {
            payload.extend_from_slice(encoding);
        } else {
            encoding.as_slice().encode(&mut payload);
        }
    }
    let mut rlp = Vec::new();
    RlpHeader { list: true, payload_length: payload.len() }.encode(&mut rlp);
    rlp.append(&mut payload);
    rlp
}
