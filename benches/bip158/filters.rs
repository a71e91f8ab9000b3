//! The inputs of the benches: synthetic filters, filters of a block, and scripts of wallets.

use std::path::Path;

use bitcoin::consensus::deserialize;
use bitcoin::hashes::Hash as _;
use bitcoin::{Block, BlockHash, ScriptBuf};
use chainsieve::btc::bip158::{
    Acceptance, BlockFilter, GcsFilter, GcsParams, PreparedScripts, filter_elements, filter_key,
    gcs,
};
use testkit::Rng;

/// Filters of one kind. There are so many that the CPU can't learn their branches, because a client
/// reads each filter once.
pub(crate) struct Family {
    pub(crate) name: String,
    pub(crate) filters: Vec<Filter>,
}

/// A filter in the library's form and in `bitcoin`'s.
pub(crate) struct Filter {
    pub(crate) ours: BlockFilter,
    peer: bitcoin::bip158::BlockFilter,
    /// The scripts that the filter was built from. Some occur more than once.
    pub(crate) elements: Vec<Vec<u8>>,
}

/// A filter, and scripts that it does not contain, prepared and as bytes.
pub(crate) struct Question<'f> {
    pub(crate) filter: &'f Filter,
    pub(crate) scripts: Vec<Vec<u8>>,
    pub(crate) prepared: PreparedScripts,
}

/// Number of filters in a family.
const FILTERS: u64 = 64;

impl Filter {
    fn new(ours: BlockFilter, elements: Vec<Vec<u8>>) -> Self {
        let peer = bitcoin::bip158::BlockFilter::new(&ours.content);
        Self { ours, peer, elements }
    }

    pub(crate) fn gcs(&self) -> GcsFilter<'_> {
        self.ours.gcs(Acceptance::Strict).expect("a filter")
    }

    /// Returns `bitcoin`'s answer. The arguments have the form that costs it least.
    pub(crate) fn peer_matches(&self, scripts: &[Vec<u8>]) -> bool {
        let scripts = scripts.iter().map(Vec::as_slice);
        self.peer.match_any(&self.ours.block_hash, scripts).expect("a filter")
    }
}

impl Family {
    fn new(what: &str, filters: Vec<Filter>) -> Self {
        let name = format!("{what}, {} elements", filters[0].gcs().num_elements());
        Self { name, filters }
    }

    pub(crate) fn filters(&self) -> impl Iterator<Item = &Filter> {
        self.filters.iter()
    }

    /// Keeps the first filter alone.
    pub(crate) fn into_first(mut self) -> Self {
        self.filters.truncate(1);
        Self { name: format!("{}, again and again", self.name), ..self }
    }

    /// Returns sets of `scripts`, each for one of the filters in turn. No filter matches its set,
    /// because a false positive would end a walk early.
    pub(crate) fn absent<'f>(
        &'f self,
        questions: usize,
        mut scripts: impl FnMut() -> Vec<Vec<u8>>,
    ) -> Vec<Question<'f>> {
        let question = |filter: &'f Filter| loop {
            let scripts = scripts();
            if !filter.peer_matches(&scripts) {
                let prepared = scripts.iter().collect();
                return Question { filter, scripts, prepared };
            }
        };
        self.filters.iter().cycle().take(questions).map(question).collect()
    }
}

/// Returns filters of 5,000 scripts each.
pub(crate) fn synthetic() -> Family {
    let filter = |seed| {
        let mut random = Rng::new(seed << 32);
        let block_hash = BlockHash::from_byte_array(random.packed());
        let scripts = scripts(&mut random, 5_000);
        let elements = scripts.iter().map(Vec::as_slice);
        let content = gcs::encode(GcsParams::BASIC, filter_key(&block_hash), elements);
        Filter::new(BlockFilter { block_hash, content: content.expect("few") }, scripts)
    };
    Family::new("synthetic", (0..FILTERS).map(filter).collect())
}

/// Returns filters of [`raw_block`]. The scripts that the block spends are made up: one for each
/// input, and different ones for each filter.
pub(crate) fn block() -> Family {
    let (height, raw) = raw_block();
    let block: Block = deserialize(&raw).expect("a block");
    let filter = |seed| {
        let spent = spent_scripts(&block, seed << 32 | u64::from(height));
        let filter = BlockFilter::from_prevout_scripts(&block, &spent).expect("one for each input");
        let elements = filter_elements(&block, &spent).expect("one for each input");
        Filter::new(filter, elements.map(<[u8]>::to_vec).collect())
    };
    Family::new(&format!("block {height}"), (0..FILTERS).map(filter).collect())
}

/// Returns the height and the bytes of block 413,567, from the corpus that `CHAINSIEVE_CORPUS`
/// names, or of a small block of the fixtures if there is no corpus.
pub(crate) fn raw_block() -> (u32, Vec<u8>) {
    if let Some(corpus) = std::env::var_os("CHAINSIEVE_CORPUS") {
        let file = Path::new(&corpus).join("bitcoin/mainnet/blocks/block_413567.raw");
        let raw = std::fs::read(&file);
        return (413_567, raw.unwrap_or_else(|error| panic!("{}: {error}", file.display())));
    }
    println!("# CHAINSIEVE_CORPUS is not set: a small block of the fixtures instead");
    let fixture = include_str!("../../fixtures/bitcoin/blocks/mainnet_757753.json");
    let fixture: serde_json::Value = serde_json::from_str(fixture).expect("a fixture");
    (757_753, hex::decode(fixture["block"].as_str().expect("a block")).expect("hex"))
}

/// Returns a made-up script for each input of a block.
pub(crate) fn spent_scripts(block: &Block, seed: u64) -> Vec<ScriptBuf> {
    let inputs = block.txdata.iter().skip(1).map(|tx| tx.input.len()).sum();
    scripts(&mut Rng::new(seed), inputs).into_iter().map(ScriptBuf::from_bytes).collect()
}

/// Returns scripts of the kinds that wallets have: two fifths P2WPKH, and a fifth each of P2TR,
/// P2SH and P2PKH.
pub(crate) fn scripts(random: &mut Rng, count: usize) -> Vec<Vec<u8>> {
    let script = |_| match random.u64() % 5 {
        0 | 1 => [&[0x00, 0x14], &random.packed::<20>()[..]].concat(),
        2 => taproot(random),
        3 => [&[0xa9, 0x14], &random.packed::<20>()[..], &[0x87]].concat(),
        _ => [&[0x76, 0xa9, 0x14], &random.packed::<20>()[..], &[0x88, 0xac]].concat(),
    };
    (0..count).map(script).collect()
}

/// Returns a P2TR script.
pub(crate) fn taproot(random: &mut Rng) -> Vec<u8> {
    [&[0x51, 0x20], &random.packed::<32>()[..]].concat()
}
