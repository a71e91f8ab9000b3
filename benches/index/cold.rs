//! Queries right after opening, with nothing of the index in memory.

use std::hint::black_box;
use std::process::Command;
use std::time::Instant;

use crate::blooms::Chain;
use crate::mapped::Segments;
use crate::query::cases;
use crate::store::Store;
use testkit::timer::Report;

pub(crate) fn run(report: &mut Report, chain: &Chain, store: &Store) {
    if !evicts(store) {
        println!("# cold: not measured, because the system keeps the files in its cache");
        return;
    }
    for case in cases(chain) {
        let needed: usize = {
            let segments = Segments::map(&store.path);
            segments.rows(&case.rows()).iter().map(|row| row.len()).sum()
        };
        let runs = (0..3).map(|_| {
            evict(store);
            let (opened, started) = (bytes_read(), Instant::now());
            let index = store.index();
            let (asked, opening) = (bytes_read(), started.elapsed());
            let all = index.numbers().expect("blocks");
            let started = Instant::now();
            let found = index.candidates(&case.query, all).expect("sound");
            let time = started.elapsed();
            (time, opening, bytes_read() - asked, asked - opened, found.count())
        });
        let (time, opening, bytes, opening_bytes, count) = runs.min().expect("three runs");
        assert!(count > 0);
        let name = case.name;
        println!("# {name}, cold: {bytes} bytes read, {needed} of rows; {opening_bytes} to open");
        report.value(&format!("{name}, cold"), time.as_secs_f64() * 1e3, "ms");
        report.value(&format!("{name}, opened cold"), opening.as_secs_f64() * 1e3, "ms");
        let ratio = bytes as f64 / needed as f64;
        report.value(&format!("{name}, cold bytes"), ratio, "times the rows needed");
    }
}

/// Drops the files from the system's cache.
fn evict(store: &Store) {
    for file in store.files() {
        let mut dd = Command::new("dd");
        dd.arg(format!("if={}", file.display())).args(["iflag=nocache", "count=0", "status=none"]);
        assert!(dd.status().is_ok_and(|status| status.success()), "dd drops files from the cache");
    }
}

/// Returns `true` if dropping files works here: a byte in the middle of a segment is then read from
/// the disk.
fn evicts(store: &Store) -> bool {
    evict(store);
    let segments = Segments::map(&store.path);
    let before = bytes_read();
    black_box(segments.byte_in_the_middle());
    bytes_read() > before
}

/// Returns the number of bytes that this process has caused to be read from disk.
fn bytes_read() -> u64 {
    let text = std::fs::read_to_string("/proc/self/io").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("read_bytes: "));
    line.and_then(|bytes| bytes.parse().ok()).unwrap_or(0)
}
