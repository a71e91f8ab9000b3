//! The time that a wallet needs to rescan a chain of full blocks.

use std::ops::ControlFlow;
use std::thread;

use bitcoin::BlockHash;
use bitcoin::hashes::Hash as _;
use chainsieve::btc::bip158::scan::{Commitment, FilterItem, FilterScan, ScanCursor};
use chainsieve::btc::bip158::{BlockFilter, GcsParams, filter_key, gcs};

use crate::filters;
use testkit::Rng;
use testkit::timer::Report;

/// Number of elements in the filter of a full block, which takes 26 kB.
const ELEMENTS: usize = 10_000;
/// About the height of mainnet in January 2026.
const CHAIN: f64 = 930_000.0;

pub(crate) fn run(report: &mut Report) {
    let filters = filters(if report.is_quick() { 500 } else { 20_000 });
    let commitments: Vec<_> = filters.iter().map(BlockFilter::filter_hash).collect();
    let bytes: usize = filters.iter().map(|filter| filter.content.len()).sum();
    println!("# {} filters of {} bytes", filters.len(), bytes / filters.len());
    for count in [10, 1_000, 100_000] {
        let scripts = filters::scripts(&mut Rng::new(count as u64), count);
        compare(report, &filters, &scripts);
        for verified in [false, true] {
            let item = |(index, filter)| item(index, filter, verified.then(|| commitments[index]));
            let items = || filters.iter().enumerate().map(item);
            rescan(report, &format!("{count} scripts"), verified, &scripts, items);
        }
    }
}

fn item(
    index: usize,
    filter: &BlockFilter,
    commitment: Option<bitcoin::bip158::FilterHash>,
) -> FilterItem<'_> {
    FilterItem {
        height: u32::try_from(index).expect("few"),
        block_hash: filter.block_hash,
        content: &filter.content,
        commitment: commitment.map(Commitment::Hash),
    }
}

/// Measures passes over all filters, on one core and then with threads.
fn rescan<'a, I: Iterator<Item = FilterItem<'a>>>(
    report: &mut Report,
    scripts_named: &str,
    verified: bool,
    scripts: &[Vec<u8>],
    items: impl Fn() -> I + Sync,
) {
    let count = items().count();
    let check = if verified { "with the hash check" } else { "unverified" };
    let mut figure = |threads: &str, pass: &mut (dyn FnMut() -> u64 + Send)| {
        let name = format!("rescan for {scripts_named}, {check}, {threads}, a filter");
        let nanos = report.figure(&name, count, pass);
        println!("# {:.0} filters/s, 930,000 blocks in {:.1} s", 1e9 / nanos, CHAIN * nanos / 1e9);
    };
    let mut scan = FilterScan::new(ScanCursor::at(0));
    let wallet = scan.wallets_mut().add(0);
    scan.wallets_mut().extend(wallet, scripts);
    let mut found = None;
    figure("scan", &mut || {
        scan.rewind(0);
        let before = scan.statistics().candidates;
        let done = scan.scan(items(), |_, _| ControlFlow::<()>::Continue(()));
        assert_eq!(done, Ok(ControlFlow::Continue(())));
        let candidates = scan.statistics().candidates - before;
        assert_eq!(*found.get_or_insert(candidates), candidates);
        candidates
    });
    // All matches are by chance, so their number must be close to the expected one.
    let float = |number: usize| f64::from(u32::try_from(number).expect("few"));
    let chance = -(-float(scripts.len()) / f64::from(GcsParams::BASIC.m())).exp_m1();
    let expected = float(count) * chance;
    let found = found.expect("a pass");
    let off = float(usize::try_from(found).expect("few")) - expected;
    assert!(off.abs() <= 5.0 * expected.sqrt() + 1.0, "{found} candidates, {expected:.1} expected");
    for threads in [1, 2] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("threads");
        figure(&format!("par_scan by {threads} threads"), &mut || {
            scan.rewind(0);
            let before = scan.statistics().candidates;
            let pass = || scan.par_scan(items(), |_, _| ControlFlow::<()>::Continue(()));
            assert_eq!(pool.install(pass), Ok(ControlFlow::Continue(())));
            assert_eq!(scan.statistics().candidates - before, found);
            found
        });
    }
}

/// Measures a part of the filters, against `bitcoin`'s `match_any` on each.
fn compare(report: &mut Report, filters: &[BlockFilter], scripts: &[Vec<u8>]) {
    let part = &filters[..(20_000 / scripts.len()).clamp(4, 100)];
    let mut scan = FilterScan::new(ScanCursor::at(0));
    let wallet = scan.wallets_mut().add(0);
    scan.wallets_mut().extend(wallet, scripts);
    let mut ours = || {
        let mut heights = Vec::new();
        scan.rewind(0);
        let items = part.iter().enumerate().map(|(index, filter)| item(index, filter, None));
        let done = scan.scan(items, |candidate, _| {
            heights.push(candidate.height as usize);
            ControlFlow::<()>::Continue(())
        });
        assert_eq!(done, Ok(ControlFlow::Continue(())));
        heights
    };
    let theirs: Vec<_> =
        part.iter().map(|filter| bitcoin::bip158::BlockFilter::new(&filter.content)).collect();
    let peer = || {
        let matches = |&index: &usize| {
            let scripts = scripts.iter().map(Vec::as_slice);
            theirs[index].match_any(&part[index].block_hash, scripts).expect("a filter")
        };
        (0..part.len()).filter(matches).collect::<Vec<_>>()
    };
    assert_eq!(ours(), peer());
    let name = format!("scan of {} full filters for {} scripts", part.len(), scripts.len());
    report.ratio(&name, part.len(), ours, peer);
}

/// Returns filters of made-up blocks that have nothing but a hash, built on all cores.
fn filters(count: usize) -> Vec<BlockFilter> {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let part = |thread: usize| {
        let mut random = Rng::new(158 + thread as u64);
        let filter = |_| {
            let block_hash = BlockHash::from_byte_array(random.packed());
            let elements: Vec<[u8; 8]> = (0..ELEMENTS).map(|_| random.packed()).collect();
            let elements = elements.iter().map(<[u8; 8]>::as_slice);
            let content = gcs::encode(GcsParams::BASIC, filter_key(&block_hash), elements);
            BlockFilter { block_hash, content: content.expect("few") }
        };
        (thread..count).step_by(threads).map(filter).collect::<Vec<_>>()
    };
    thread::scope(|scope| {
        let parts: Vec<_> = (0..threads).map(|thread| scope.spawn(move || part(thread))).collect();
        parts.into_iter().flat_map(|part| part.join().expect("no panic")).collect()
    })
}
