//! Filters that are not those of their blocks.

use std::collections::BTreeMap;

use chainsieve::bitcoin::bip158::FilterHeader;
use chainsieve::bitcoin::hashes::Hash as _;
use chainsieve::btc::bip158::{BlockFilter, GcsParams, filter_key, gcs};
use chainsieve::btc::server::filters::MemoryFilterStore;

use testkit::Rng;
use testkit::btc::filter_world::World;

/// What is done to a filter.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Tamper {
    /// Without the wallet's scripts; without any one where there are none.
    DropWallet,
    /// Without the script of the first output. The block shows that it is missing.
    DropOutput,
    /// Without one script, of an output or a previous one.
    DropAny,
    /// With a script that is not in the block. No block shows that.
    Add,
    /// The filter of no scripts.
    Empty,
    /// With one bit turned: any filter, or none.
    Flip,
    /// Cut short: no filter.
    Cut,
}

pub(crate) const TAMPERS: [Tamper; 7] = [
    Tamper::DropWallet,
    Tamper::DropOutput,
    Tamper::DropAny,
    Tamper::Add,
    Tamper::Empty,
    Tamper::Flip,
    Tamper::Cut,
];

/// Where it is done.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Reach {
    One,
    /// Once in so many blocks.
    OneIn(usize),
    /// From a height on, drawn at random.
    Onwards,
}

/// The filters that differ from the true ones, by the numbers of their blocks.
pub(crate) type Lie = BTreeMap<usize, Vec<u8>>;

/// The tampered filter of a block; `None` if it comes out as the true one.
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

/// Tampers with the filters of the blocks `numbers`, given in ascending order of height.
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

/// The filters of several chains as one node has them, which has seen one after the other.
pub(crate) fn store(world: &World, chains: &[Vec<usize>], lie: &Lie) -> MemoryFilterStore {
    store_behind(world, chains, lie, FilterHeader::all_zeros())
}

/// The same, but for the filter header before genesis.
pub(crate) fn store_behind(
    world: &World,
    chains: &[Vec<usize>],
    lie: &Lie,
    before: FilterHeader,
) -> MemoryFilterStore {
    let mut store = MemoryFilterStore::behind(before);
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
