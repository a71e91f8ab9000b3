//! The Bitcoin blocks of the repository's `fixtures/` folder.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::btc::oracle::{TestBlock, from_hex};

/// Heights of the mainnet blocks in `fixtures/bitcoin/blocks`.
pub const BLOCKS: [u32; 5] = [170, 57_043, 150_013, 255_018, 757_753];

/// Returns a path under `fixtures/bitcoin`.
pub fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/bitcoin").join(name)
}

pub fn read(name: &str) -> String {
    let path = path(name);
    std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Returns the block at a height that [`BLOCKS`] lists.
pub fn block(height: u32) -> Rc<TestBlock> {
    let json = read(&format!("blocks/mainnet_{height}.json"));
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let block = TestBlock::new(from_hex(json["block"].as_str().expect("hex")));
    assert_eq!(Some(block.block.block_hash().to_string().as_str()), json["hash"].as_str());
    block
}
