//! Blocks with the scripts that they spend, and filters that another implementation built for them.

use std::collections::{BTreeSet, HashMap};
use std::path::Path;

use chainsieve::bitcoin::bip158::BlockFilterWriter;
use chainsieve::bitcoin::consensus::{deserialize, deserialize_partial};
use chainsieve::bitcoin::{Block, Network, OutPoint, ScriptBuf, Transaction, TxIn};
use chainsieve::btc::bip158::BoundBlock;
use chainsieve::btc::bip158::audit::{Prevouts, Verdict, audit};
use serde_json::Value;

use testkit::corpus;

/// A block, the scripts that it spends, and its filter.
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) network: Network,
    pub(crate) block: Block,
    pub(crate) prevouts: HashMap<OutPoint, ScriptBuf>,
    /// The transactions that created the spent outputs, where they are known.
    pub(crate) previous: Vec<Transaction>,
    /// The filter, as published or as built by another implementation.
    pub(crate) filter: Vec<u8>,
}

impl Case {
    pub(crate) fn new(
        name: String,
        network: Network,
        block: Block,
        scripts: Vec<ScriptBuf>,
        filter: Vec<u8>,
    ) -> Self {
        let outpoints: Vec<_> = spends(&block).map(|(.., input)| input.previous_output).collect();
        assert_eq!(outpoints.len(), scripts.len(), "{name}: prevouts");
        let prevouts = outpoints.into_iter().zip(scripts).collect();
        Self { name, network, block, prevouts, previous: Vec::new(), filter }
    }

    pub(crate) fn bind(&self) -> BoundBlock<'_> {
        BoundBlock::bind(&self.block, self.block.block_hash(), self.network)
            .unwrap_or_else(|e| panic!("{}: {e}", self.name))
    }

    pub(crate) fn blind(&self, filter: &[u8]) -> Verdict {
        audit(&self.bind(), filter, Prevouts::None)
    }

    pub(crate) fn trusting(&self, filter: &[u8]) -> Verdict {
        let scripts = |outpoint: &OutPoint| self.prevouts.get(outpoint).cloned();
        audit(&self.bind(), filter, Prevouts::Trusted(&scripts))
    }

    /// Returns the elements of the filter according to the text of BIP158.
    pub(crate) fn elements(&self) -> BTreeSet<Vec<u8>> {
        let outputs = self.block.txdata.iter().flat_map(|tx| &tx.output);
        let outputs = outputs.map(|output| &output.script_pubkey).filter(|s| !s.is_op_return());
        let elements = outputs.chain(self.prevouts.values()).map(|script| script.to_bytes());
        elements.filter(|script| !script.is_empty()).collect()
    }

    /// Returns a filter of other elements, built by `bitcoin`'s writer.
    pub(crate) fn filter_of(&self, elements: &BTreeSet<Vec<u8>>) -> Vec<u8> {
        filter_of(&self.block, elements)
    }
}

pub(crate) fn filter_of(block: &Block, elements: &BTreeSet<Vec<u8>>) -> Vec<u8> {
    let mut filter = Vec::new();
    let mut writer = BlockFilterWriter::new(&mut filter, block);
    for element in elements {
        writer.add_element(element);
    }
    writer.finish().expect("a vector");
    filter
}

/// Returns the inputs of all transactions except the coinbase, with the positions of the
/// transaction and of the input.
pub(crate) fn spends(block: &Block) -> impl Iterator<Item = (usize, usize, &TxIn)> {
    block.txdata.iter().enumerate().skip(1).flat_map(|(index, tx)| {
        tx.input.iter().enumerate().map(move |(vin, input)| (index, vin, input))
    })
}

fn unhex(value: &Value) -> Vec<u8> {
    hex::decode(value.as_str().expect("hex")).expect("hex")
}

/// Returns the five mainnet blocks of the fixtures, which every clone has.
pub(crate) fn fixtures() -> Vec<Case> {
    let read = |height: u32| {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/bitcoin/blocks");
        let text = std::fs::read(folder.join(format!("mainnet_{height}.json"))).expect("a fixture");
        let json: Value = serde_json::from_slice(&text).expect("JSON");
        let block = deserialize(&unhex(&json["block"])).expect("a block");
        let scripts = json["prevouts"].as_array().expect("a list").iter();
        let scripts = scripts.map(|p| ScriptBuf::from_bytes(unhex(&p["script_pubkey"]))).collect();
        let filter = unhex(&json["basic_filter"]);
        Case::new(format!("mainnet {height}"), Network::Bitcoin, block, scripts, filter)
    };
    [170, 57_043, 150_013, 255_018, 757_753].map(read).into()
}

/// Returns the blocks of the corpus with the scripts that they spend: 18 single blocks, and the
/// first 256 of mainnet with the transactions that they spend from.
pub(crate) fn corpus() -> Option<Vec<Case>> {
    let (root, files) = corpus::index("bitcoin")?;
    let read =
        |name: &str| std::fs::read(root.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"));
    let names = files.iter().filter_map(|file| file["file"].as_str());
    let named = names.filter_map(|name| name.strip_suffix(".prevouts.bin"));
    let mut cases: Vec<_> = named
        .map(|name| {
            let network =
                if name.starts_with("mainnet") { Network::Bitcoin } else { Network::Testnet };
            let block: Block = deserialize(&read(&format!("{name}.raw"))).expect("a block");
            let mut prevouts = &read(&format!("{name}.prevouts.bin"))[..];
            let mut scripts = Vec::new();
            while let Some((_value, rest)) = prevouts.split_at_checked(8) {
                let (script, taken) = deserialize_partial(rest).expect("a script");
                scripts.push(script);
                prevouts = &rest[taken..];
            }
            let filter = read(&format!("{name}.basic_filter.hex"));
            let filter = hex::decode(filter.trim_ascii()).expect("hex");
            Case::new(name.to_owned(), network, block, scripts, filter)
        })
        .collect();
    assert_eq!(cases.len(), 18);

    let blocks = read("mainnet/chain_0-255/blocks_0-255.bin");
    let filters = String::from_utf8(read("mainnet/chain_0-255/basic_filters_0-255.txt"));
    let filters = filters.expect("hex");
    let mut rest = &blocks[..];
    let mut created = HashMap::new();
    for (height, filter) in filters.lines().enumerate() {
        let (length, behind) = rest.split_first_chunk().expect("a block");
        let (raw, behind) = behind.split_at(u32::from_le_bytes(*length) as usize);
        rest = behind;
        let block: Block = deserialize(raw).expect("a block");
        for tx in &block.txdata {
            created.insert(tx.compute_txid(), tx.clone());
        }
        let outpoints = spends(&block).map(|(.., input)| input.previous_output);
        let previous: Vec<_> =
            outpoints.map(|outpoint| (created[&outpoint.txid].clone(), outpoint.vout)).collect();
        let script =
            |(tx, vout): &(Transaction, u32)| tx.output[*vout as usize].script_pubkey.clone();
        let scripts = previous.iter().map(script).collect();
        let filter = hex::decode(filter).expect("hex");
        let name = format!("mainnet {height} of the chain");
        let mut case = Case::new(name, Network::Bitcoin, block, scripts, filter);
        case.previous = previous.into_iter().map(|(tx, _)| tx).collect();
        cases.push(case);
    }
    assert_eq!(cases.len(), 18 + 256);
    Some(cases)
}
