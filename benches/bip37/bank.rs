//! One transaction, or a block, against the filters of many peers.

use bitcoin::consensus::deserialize;
use bitcoin::{Block, Transaction};
use chainsieve::btc::bip37::{BlockElements, BloomFilter, Elements, FilterBank, UpdateMode};
use chainsieve::simd::Backend;

use crate::element::{half_full, ours};
use crate::plain::{Extracted, PlainFilter};
use testkit::Rng;
use testkit::timer::Report;

pub(crate) fn run(report: &mut Report) {
    let heights: &[u32] = if report.is_quick() { &[413_567] } else { &[413_567, 702_861] };
    let blocks = crate::blocks(heights);
    for (height, raw) in &blocks {
        relay(report, *height, raw);
    }
    let (height, raw) = &blocks[0];
    large(report, *height, raw);
}

/// Measures single transactions against 1,000 filters of 1,000 elements.
fn relay(report: &mut Report, height: u32, raw: &[u8]) {
    let (num_filters, num_transactions) = if report.is_quick() { (250, 25) } else { (1_000, 100) };
    let block: Block = deserialize(raw).expect("a block of the corpus");
    let num_transactions = num_transactions.min(block.txdata.len() - 1);
    let transactions = &block.txdata[1..=num_transactions];
    let elements: Vec<Elements> = transactions.iter().map(Elements::from_transaction).collect();
    let extracted: Vec<Extracted> =
        transactions.iter().map(|transaction| alone(&block, transaction)).collect();
    let count: usize = elements.iter().map(Elements::num_elements).sum();
    println!("# block {height}: {num_transactions} transactions, {count} elements");

    let mut random = Rng::new(13);
    let filters: Vec<PlainFilter> = (0..num_filters).map(|_| thousand(&mut random)).collect();
    println!(
        "# {num_filters} filters of {} B, k = {}, all update",
        filters[0].data.len(),
        filters[0].hash_funcs
    );
    for backend in Backend::available() {
        let mut theirs = filters.clone();
        let mut bank = FilterBank::new().with_backend(backend);
        for (id, filter) in filters.iter().enumerate() {
            bank.load(id, ours(filter, 1)).expect("within the limits");
        }
        let mut expected = Vec::new();
        for transaction in &extracted {
            expected.push(plain_loop(transaction, &mut theirs));
        }
        let found: Vec<Vec<usize>> = elements
            .iter()
            .map(|transaction| bank.match_elements(transaction).iter().map(|(id, _)| *id).collect())
            .collect();
        assert_eq!(found, expected);
        for (id, filter) in theirs.iter().enumerate() {
            assert_eq!(bank.get(&id).expect("loaded").data(), filter.data);
        }
        report.ratio(
            &format!("bank, transactions of {height}, per filter, {backend:?} vs mur3"),
            num_filters * num_transactions,
            || elements.iter().map(|transaction| bank.match_elements(transaction)).count(),
            || extracted.iter().map(|transaction| plain_loop(transaction, &mut theirs)).count(),
        );
    }
}

/// Measures a whole block against filters of 36,000 bytes.
fn large(report: &mut Report, height: u32, raw: &[u8]) {
    let num_filters = if report.is_quick() { 4 } else { 32 };
    let block: Block = deserialize(raw).expect("a block of the corpus");
    let elements = BlockElements::from_raw(raw).expect("a block of the corpus");
    let extracted = Extracted::new(&block);
    println!("# block {height}: {} elements", extracted.num_elements());
    let mut random = Rng::new(17);
    let mut theirs: Vec<PlainFilter> =
        (0..num_filters).map(|_| half_full(17, &mut random).1).collect();
    for backend in Backend::available() {
        let mut bank = FilterBank::new().with_backend(backend);
        for (id, filter) in theirs.iter().enumerate() {
            bank.load(id, ours(filter, 0)).expect("within the limits");
        }
        let found: Vec<(usize, Vec<u32>)> = bank
            .match_block(&elements)
            .into_iter()
            .map(|(id, matches)| (id, matches.iter().map(|found| found.index).collect()))
            .collect();
        let expected: Vec<(usize, Vec<u32>)> = theirs
            .iter_mut()
            .map(|filter| extracted.matches(filter, false))
            .enumerate()
            .filter(|(_, matches)| !matches.is_empty())
            .collect();
        assert_eq!(found, expected);
        let each = format!("block {height}, per filter of 36,000 B half full, k = 17, {backend:?}");
        report.ratio(
            &format!("bank, {each} vs mur3"),
            num_filters,
            || bank.match_block(&elements),
            || {
                let matches = theirs.iter_mut().map(|filter| extracted.matches(filter, false));
                matches.collect::<Vec<_>>()
            },
        );
    }
}

fn plain_loop(transaction: &Extracted, filters: &mut [PlainFilter]) -> Vec<usize> {
    let matches = filters.iter_mut().enumerate().filter_map(|(id, filter)| {
        let matches = transaction.matches(filter, true);
        (!matches.is_empty()).then_some(id)
    });
    matches.collect()
}

fn alone(block: &Block, transaction: &Transaction) -> Extracted {
    Extracted::new(&Block { header: block.header, txdata: vec![transaction.clone()] })
}

/// Returns a filter sized for 1,000 elements at 1e-4, with 1,000 elements in it.
fn thousand(random: &mut Rng) -> PlainFilter {
    let tweak = u32::try_from(random.u64() >> 32).expect("32 bits");
    let mut filter = BloomFilter::new(1_000, 1e-4, tweak, UpdateMode::None).expect("sized");
    (0..1_000).for_each(|_| filter.insert(&random.bytes(20)));
    PlainFilter { data: filter.data().to_vec(), hash_funcs: filter.hash_funcs(), tweak }
}
