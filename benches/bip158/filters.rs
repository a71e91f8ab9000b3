//! What is asked: a synthetic filter, that of a block, and scripts that wallets have.

use std::path::Path;

use bitcoin::consensus::deserialize;
use bitcoin::hashes::Hash as _;
use bitcoin::{Block, BlockHash, ScriptBuf};
use chainsieve::btc::bip158::{Acceptance, BlockFilter, GcsFilter, GcsParams, filter_key, gcs};

/// A name for it, and the filter in both forms.
#[derive(Debug)]
pub(crate) struct Subject {
    pub(crate) name: String,
    pub(crate) ours: BlockFilter,
    pub(crate) peer: bitcoin::bip158::BlockFilter,
}

impl Subject {
    fn new(what: &str, filter: BlockFilter) -> Self {
        let peer = bitcoin::bip158::BlockFilter::new(&filter.content);
        let mut subject = Self { name: String::new(), ours: filter, peer };
        subject.name = format!("{what} of {} elements", subject.gcs().num_elements());
        subject
    }

    pub(crate) fn gcs(&self) -> GcsFilter<'_> {
        self.ours.gcs(Acceptance::Strict).expect("a filter")
    }

    /// Bitcoin's answer, its arguments in the form that costs it least.
    pub(crate) fn peer_matches(&self, scripts: &[Vec<u8>]) -> bool {
        let scripts = scripts.iter().map(Vec::as_slice);
        self.peer.match_any(&self.ours.block_hash, scripts).expect("a filter")
    }

    /// `sets` sets of `count` scripts each, none of which the filter may contain.
    pub(crate) fn absent(
        &self,
        sets: usize,
        count: usize,
        random: &mut Random,
    ) -> Vec<Vec<Vec<u8>>> {
        let absent = |_| loop {
            let scripts = random.scripts(count);
            if !self.peer_matches(&scripts) {
                return scripts;
            }
        };
        (0..sets).map(absent).collect()
    }
}

/// A filter of 5,000 scripts.
pub(crate) fn synthetic() -> Subject {
    let scripts = Random(5_000).scripts(5_000);
    let block_hash = BlockHash::from_byte_array([0x5a; 32]);
    let elements = scripts.iter().map(Vec::as_slice);
    let content = gcs::encode(GcsParams::BASIC, filter_key(&block_hash), elements).expect("few");
    Subject::new("a synthetic filter", BlockFilter { block_hash, content })
}

/// The filter of block 413,567 of the corpus that `CHAINSIEVE_CORPUS` names, without it of a small
/// block of the fixtures. The scripts that the block spends are made up, one for each input.
pub(crate) fn block() -> Subject {
    let (height, raw) = match std::env::var_os("CHAINSIEVE_CORPUS") {
        Some(corpus) => {
            let file = Path::new(&corpus).join("bitcoin/mainnet/blocks/block_413567.raw");
            let raw = std::fs::read(&file);
            (413_567, raw.unwrap_or_else(|error| panic!("{}: {error}", file.display())))
        }
        None => {
            println!("# CHAINSIEVE_CORPUS is not set: a small block of the fixtures instead");
            let fixture = include_str!("../../fixtures/bitcoin/blocks/mainnet_757753.json");
            let fixture: serde_json::Value = serde_json::from_str(fixture).expect("a fixture");
            (757_753, hex::decode(fixture["block"].as_str().expect("a block")).expect("hex"))
        }
    };
    let block: Block = deserialize(&raw).expect("a block");
    let inputs = block.txdata.iter().skip(1).map(|tx| tx.input.len()).sum();
    let spent: Vec<ScriptBuf> =
        Random(height).scripts(inputs).into_iter().map(ScriptBuf::from_bytes).collect();
    println!("# block {height}: the scripts of its {inputs} spent outputs are made up");
    let filter = BlockFilter::from_prevout_scripts(&block, &spent).expect("one for each input");
    Subject::new(&format!("the filter of block {height},"), filter)
}

/// Numbers without a pattern, the same in every run.
#[derive(Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    fn next(&mut self) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.next().to_le_bytes()[..chunk.len()]);
        }
        bytes
    }

    /// Scripts to look for, as many of each kind as wallets have: two fifths P2WPKH, a fifth each
    /// of P2TR, P2SH and P2PKH.
    pub(crate) fn scripts(&mut self, count: usize) -> Vec<Vec<u8>> {
        let script = |_| match self.next() % 5 {
            0 | 1 => [&[0x00, 0x14], &self.bytes::<20>()[..]].concat(),
            2 => self.taproot(),
            3 => [&[0xa9, 0x14], &self.bytes::<20>()[..], &[0x87]].concat(),
            _ => [&[0x76, 0xa9, 0x14], &self.bytes::<20>()[..], &[0x88, 0xac]].concat(),
        };
        (0..count).map(script).collect()
    }

    /// A P2TR script.
    pub(crate) fn taproot(&mut self) -> Vec<u8> {
        [&[0x51, 0x20], &self.bytes::<32>()[..]].concat()
    }
}
