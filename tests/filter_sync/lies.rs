//! False filters: filters that differ from those of their blocks.

use std::collections::BTreeMap;

use chainsieve::bitcoin::bip158::FilterHeader;
use chainsieve::bitcoin::hashes::Hash as _;
use chainsieve::btc::bip158::{BlockFilter, GcsParams, filter_key, gcs};
use chainsieve::btc::server::filters::FilterStore;

use testkit::Rng;
use testkit::btc::filter_world::World;

/// A change to a filter.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Tamper {
    /// Drops the wallet's scripts, or any one script if the block has none of the wallet's.
    DropWallet,
    /// Drops the first element, mostly the script of an output. The block proves that it is
    /// missing.
    DropOutput,
    /// Drops one script, of an output or of a spent output.
    DropAny,
    /// Adds a script that is not in the block. The block alone can't prove that.
    Add,
    /// Replaces the filter by the filter of no scripts.
    Empty,
    /// Flips one bit. The result is another filter, or malformed.
    Flip,
    /// Cuts the filter short. The result is malformed.
    Cut,
}

/// All changes to a filter.
pub(crate) const TAMPERS: [Tamper; 7] = [
    Tamper::DropWallet,
    Tamper::DropOutput,
    Tamper::DropAny,
    Tamper::Add,
    Tamper::Empty,
    Tamper::Flip,
    Tamper::Cut,
];

/// The blocks whose filters are changed.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Reach {
    One,
    /// One in this many blocks.
    OneIn(usize),
    /// All blocks from a random height on.
    Onwards,
}

/// The false filters, by the numbers of their blocks.
pub(crate) type Lie = BTreeMap<usize, Vec<u8>>;

/// Returns the changed filter of a block, or `None` if it equals the true one.
pub(crate) fn tamper(world: &World, rng: &mut Rng, number: usize, how: Tamper) -> Option<Vec<u8>> {
    let block = &world.blocks[number];
    let mut elements: Vec<&[u8]> = block.elements.iter().map(|script| script.as_bytes()).collect();
    let added = rng.bytes(22);
    if elements.is_empty() && !matches!(how, Tamper::Add) {
        return None;
    }
    match how {
        Tamper::Empty => elements.clear(),
        Tamper::Add => elements.push(&added),
        Tamper::DropWallet if block.matches => {
            elements.retain(|element| !world.wallet.iter().any(|own| own.as_bytes() == *element));
        }
        Tamper::DropOutput => {
            let first = elements[0];
            elements.retain(|element| *element != first);
        }
        Tamper::DropWallet | Tamper::DropAny => {
            let one = *rng.pick(&elements);
            elements.retain(|element| *element != one);
        }
        Tamper::Flip | Tamper::Cut => {
            let mut bytes = block.filter.clone();
            if matches!(how, Tamper::Flip) {
                let at = rng.below(bytes.len());
                bytes[at] ^= 1 << rng.below(8);
            } else {
                bytes.truncate(rng.below(bytes.len()));
            }
            return Some(bytes);
        }
    }
    let bytes = gcs::encode(GcsParams::BASIC, filter_key(&block.hash), elements).expect("few");
    (bytes != block.filter).then_some(bytes)
}

/// Changes the filters of some of the blocks `numbers`, given in ascending order of height.
pub(crate) fn lie(
    world: &World,
    rng: &mut Rng,
    numbers: &[usize],
    how: Tamper,
    reach: Reach,
) -> Lie {
    let from = rng.below(numbers.len());
    let chosen: Vec<usize> = match reach {
        Reach::One => vec![numbers[from]],
        Reach::OneIn(n) => numbers.iter().copied().filter(|_| rng.one_in(n)).collect(),
        Reach::Onwards => numbers[from..].to_vec(),
    };
    let tampered = |number: usize| Some((number, tamper(world, rng, number, how)?));
    chosen.into_iter().filter_map(tampered).collect()
}

/// Returns the filters of a node that has followed `chains` one after the other.
pub(crate) fn store(world: &World, chains: &[Vec<usize>], lie: &Lie) -> FilterStore {
    store_behind(world, chains, lie, FilterHeader::all_zeros())
}

/// Does the same as `store`, with another filter header before genesis.
pub(crate) fn store_behind(
    world: &World,
    chains: &[Vec<usize>],
    lie: &Lie,
    before: FilterHeader,
) -> FilterStore {
    let mut store = FilterStore::behind(before);
    let mut active: &[usize] = &[];
    for chain in chains {
        let shared = active.iter().zip(chain).take_while(|(one, other)| one == other).count();
        if let Some(fork) = shared.checked_sub(1) {
            store.rollback(&world.blocks[chain[fork]].hash).expect("in the chain");
        }
        for &number in &chain[shared..] {
            let block = &world.blocks[number];
            let content = lie.get(&number).unwrap_or(&block.filter).clone();
            store.append(BlockFilter { block_hash: block.hash, content }).expect("a new block");
        }
        active = chain;
    }
    store
}
