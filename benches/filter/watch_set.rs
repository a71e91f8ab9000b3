//! Watch sets: memory per key, the cost of checking a block's outputs, and the cost of changes.

use std::collections::HashSet;
use std::convert::Infallible;
use std::ops::{Range, RangeInclusive};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use chainsieve_filter::KeyHasher;
use chainsieve_filter::watch_set::{
    Added, Kept, KeyStore, Probe, Removed, WatchSet, WatchSetBuilder,
};

use crate::keys::{Scripts, sizes};
use testkit::timer::Report;

/// Number of outputs of a large block. Each run checks outputs different from those of the run
/// before, so that the parts of the set that a run reads are not in the CPU's caches yet.
const BLOCK: usize = 8_000;
/// One in this many outputs is watched.
const WATCHED_IN: usize = 1_000;
/// Hasher for callers that find keys by their hash.
const HASHER: KeyHasher = KeyHasher::siphash_1_3([1, 2]);
/// Number of keys that are generated and dropped at a time.
const MADE: u64 = 1 << 20;

/// A caller's own key store, which keeps only the hash of each script, in order, as a database
/// index does.
struct Index {
    hashes: Vec<u64>,
    /// For each value of the top bits of a hash: the position in `hashes` where the hashes with
    /// those bits start.
    begins: Vec<u32>,
    /// Keys added and removed since the start, in 64 parts by the top bits of the hash.
    changes: Vec<Mutex<Changes>>,
}

#[derive(Default)]
struct Changes {
    added: std::collections::BTreeMap<u64, u64>,
    removed: HashSet<u64>,
}

impl Index {
    fn new(keys: u64) -> Self {
        let mut hashes = Vec::with_capacity(usize::try_from(keys).expect("fewer than 2^64"));
        for from in (0..keys).step_by(1 << 20) {
            let scripts = Scripts::new(from..keys.min(from + MADE));
            hashes.extend(scripts.iter().map(|script| HASHER.hash::<u64>(script)));
        }
        hashes.sort_unstable();
        hashes.dedup();
        let bits = hashes.len().ilog2().saturating_sub(3);
        let mut begins = vec![0; (1 << bits) + 1];
        for hash in &hashes {
            begins[(hash >> (64 - bits)) as usize + 1] += 1;
        }
        (1..begins.len()).for_each(|at| begins[at] += begins[at - 1]);
        Self { hashes, begins, changes: (0..64).map(|_| Mutex::default()).collect() }
    }

    /// Returns the position of the hash in `hashes`, or the position where it would be inserted.
    fn place(&self, hash: u64) -> usize {
        let bits = (self.begins.len() - 1).ilog2();
        let top = (hash >> (64 - bits)) as usize;
        let [begin, end] = [self.begins[top], self.begins[top + 1]].map(|at| at as usize);
        begin + self.hashes[begin..end].iter().take_while(|other| **other < hash).count()
    }

    fn has(&self, hash: u64) -> bool {
        self.hashes.get(self.place(hash)) == Some(&hash)
    }

    fn changes(&self, hash: u64) -> std::sync::MutexGuard<'_, Changes> {
        self.changes[(hash >> 58) as usize].lock().expect("no panic under it")
    }
}

impl KeyStore for Index {
    type Error = Infallible;

    fn acquire(&self, hash: u64, _: &[u8]) -> Result<Added, Infallible> {
        let mut changes = self.changes(hash);
        if changes.removed.remove(&hash) {
            return Ok(Added::New);
        }
        if self.has(hash) {
            return Ok(Added::Again);
        }
        let count = changes.added.entry(hash).or_default();
        *count += 1;
        Ok(if *count == 1 { Added::New } else { Added::Again })
    }

    fn release(&self, hash: u64, _: &[u8]) -> Result<Option<Removed>, Infallible> {
        let mut changes = self.changes(hash);
        if changes.added.remove(&hash).is_some() {
            return Ok(Some(Removed::Gone));
        }
        let is_here = self.has(hash);
        let is_last = is_here && changes.removed.insert(hash);
        Ok(is_last.then_some(Removed::Gone))
    }

    fn holds(&self, hash: u64, _: &[u8]) -> Result<bool, Infallible> {
        let changes = self.changes(hash);
        let is_here = self.has(hash);
        Ok(changes.added.contains_key(&hash) || is_here && !changes.removed.contains(&hash))
    }

    fn len(&self) -> u64 {
        self.hashes.len() as u64
    }

    fn visit(
        &self,
        range: RangeInclusive<u64>,
        visit: &mut dyn FnMut(Kept<'_>),
    ) -> Result<(), Infallible> {
        let first = self.place(*range.start());
        let here = self.hashes[first..].iter().take_while(|hash| *hash <= range.end());
        let changes = self.changes(*range.start());
        let here = here.filter(|hash| !changes.removed.contains(hash));
        here.for_each(|hash| visit(Kept::Hash(*hash)));
        changes.added.range(range).for_each(|(hash, _)| visit(Kept::Hash(*hash)));
        Ok(())
    }
}

pub(crate) fn run(report: &mut Report) {
    // Measure the largest set first, because the recorded peak of memory is the peak of the whole
    // process so far.
    for n in sizes(report).into_iter().rev().filter(|n| *n >= 1_000_000) {
        of_callers_keys(report, n as u64);
        if n <= 10_000_000 {
            of_kept_keys(report, n as u64);
        }
    }
}

/// Measures sets whose keys stay in the caller's store; the set has only its filters.
fn of_callers_keys(report: &mut Report, n: u64) {
    let index = Index::new(n);
    forget_peak();
    let started = cpu_time();
    let set = WatchSetBuilder::new().hasher(HASHER).over(&index, |_| ()).expect("memory");
    let took = cpu_time() - started;
    let name = format!("{n} keys of the caller's");
    let per_key = |time: Duration| time.as_secs_f64() * 1e9 / n as f64;
    report.value(&format!("watch set, {name}: build"), per_key(took), "ns/key");
    let stats = set.stats();
    report.value(&format!("watch set, {name}: memory"), stats.bits_per_key(), "bits/key");
    report.value(&format!("watch set, {name}: false positives"), stats.fpr * 1e6, "in a million");
    println!("    {stats}");
    let ungated = WatchSetBuilder::new().hasher(HASHER).without_gate();
    let ungated = ungated.over(&index, |_| ()).expect("memory");
    let bits = ungated.stats().bits_per_key();
    report.value(&format!("watch set, {name}: memory without gate"), bits, "bits/key");
    probes(report, &name, n, &set, &ungated);
    drop(ungated);
    changes(report, &name, n, &set);
    let peak = status_bytes("VmHWM") as f64 / 1e9;
    report.value(
        &format!("watch set, {name}: peak memory of the process, including 8 bytes per key"),
        peak,
        "GB",
    );
}

fn probes<S: KeyStore>(
    report: &mut Report,
    name: &str,
    n: u64,
    set: &WatchSet<S>,
    ungated: &WatchSet<S>,
) {
    let strangers = Scripts::new(1 << 40..(1 << 40) + 2_000_000);
    let watched: Vec<_> = (0..strangers.len() / WATCHED_IN)
        .map(|at| {
            let index = at as u64 * 7_919 % n;
            Scripts::new(index..index + 1).get(0).to_vec()
        })
        .collect();
    let script = |at: usize| match at % WATCHED_IN {
        500 => watched[at / WATCHED_IN].as_slice(),
        _ => strangers.get(at),
    };
    let outputs: Vec<&[u8]> = (0..strangers.len()).map(script).collect();
    let hashes: Vec<u64> = outputs.iter().map(|script| HASHER.hash(script)).collect();
    let mut probe = Probe::new();
    let hits: usize =
        outputs.chunks(BLOCK).map(|block| set.contains_batch(block, &mut probe).len()).sum();
    let expected = watched.len()..watched.len() + outputs.len() / 10_000;
    assert!(expected.contains(&hits), "{hits} hits");
    let mut others = Probe::new();
    let runs = || Runs::new(outputs.len());
    let (mut ours, mut theirs) = (runs(), runs().half_way());
    report.ratio(
        &format!("watch set, {name}: an output in blocks of {BLOCK}, with gate against without"),
        BLOCK,
        || ours.run(|block| set.contains_batch(&outputs[block], &mut probe).len()),
        || theirs.run(|block| ungated.contains_batch(&outputs[block], &mut others).len()),
    );
    let hashed = |set: &WatchSet<S>, block: Range<usize>, probe: &mut Probe| {
        set.contains_hashed(&outputs[block.clone()], &hashes[block], probe).len()
    };
    report.ratio(
        &format!("watch set, {name}: a hashed output in blocks, with gate against without"),
        BLOCK,
        || ours.run(|block| hashed(set, block, &mut probe)),
        || theirs.run(|block| hashed(ungated, block, &mut others)),
    );
    report.figure(&format!("watch set, {name}: an output alone"), BLOCK, || {
        ours.run(|block| outputs[block].iter().filter(|script| set.contains(script)).count())
    });
}

/// Chooses the block that is checked next.
struct Runs {
    outputs: usize,
    next: usize,
}

impl Runs {
    fn new(outputs: usize) -> Self {
        Self { outputs, next: 0 }
    }

    /// Starts in the middle, as far as possible from the blocks of a `Runs` that starts at the
    /// beginning.
    fn half_way(self) -> Self {
        Self { next: self.outputs / 2 / BLOCK * BLOCK, ..self }
    }

    /// Checks the next block, and returns the number of hits.
    fn run(&mut self, mut ask: impl FnMut(Range<usize>) -> usize) -> usize {
        let block = self.next..self.next + BLOCK;
        self.next = if block.end + BLOCK > self.outputs { 0 } else { block.end };
        ask(block)
    }
}

/// Measures a million additions one by one, and then the removal of the same keys.
fn changes<S: KeyStore>(report: &mut Report, name: &str, n: u64, set: &WatchSet<S>)
where
    S::Error: std::fmt::Debug,
{
    let more = Scripts::new(n..n + 1_000_000);
    let (mut longest, mut most) = ([Duration::ZERO; 2], 0.0_f64);
    for (which, what) in ["add", "remove"].into_iter().enumerate() {
        let begun = cpu_time();
        let mut aside = Duration::ZERO;
        for (at, script) in more.iter().enumerate() {
            let started = Instant::now();
            match which {
                0 => _ = set.add(script).expect("memory"),
                _ => _ = set.remove(script).expect("it was added"),
            }
            let took = started.elapsed();
            longest[which] = longest[which].max(took);
            if at % 100_000 == 0 {
                let looked = cpu_time();
                most = most.max(set.stats().bits_per_key());
                aside += cpu_time() - looked;
            }
        }
        let seconds = (cpu_time() - begun - aside).as_secs_f64();
        println!("    after each {what}: {}", set.stats());
        report.value(&format!("watch set, {name}: time to {what} a million keys"), seconds, "s");
        let longest = longest[which].as_secs_f64() * 1e3;
        report.value(&format!("watch set, {name}: the longest {what}"), longest, "ms");
    }
    report.value(&format!("watch set, {name}: peak memory of changes"), most, "bits/key");
}

/// Measures sets that keep their keys, against a `HashSet` of the standard library.
fn of_kept_keys(report: &mut Report, n: u64) {
    let name = format!("{n} keys kept");
    let scripts = Scripts::new(0..n);
    let before = status_bytes("VmRSS");
    let started = cpu_time();
    let set = WatchSetBuilder::new().from_keys(scripts.iter(), |_| ()).expect("memory");
    let took = (cpu_time() - started).as_secs_f64() * 1e9 / n as f64;
    report.value(&format!("watch set, {name}: build"), took, "ns/key");
    let ours = status_bytes("VmRSS").saturating_sub(before);
    let before = status_bytes("VmRSS");
    let peer: HashSet<Vec<u8>> = scripts.iter().map(<[u8]>::to_vec).collect();
    let theirs = status_bytes("VmRSS").saturating_sub(before);
    let per_key = |bytes: u64| bytes as f64 / n as f64;
    report.value(&format!("watch set, {name}: memory with the keys"), per_key(ours), "bytes/key");
    report.value(&format!("HashSet<Vec<u8>>, {n} keys: memory"), per_key(theirs), "bytes/key");
    let strangers = Scripts::new(1 << 40..(1 << 40) + 2_000_000);
    let outputs: Vec<&[u8]> = (0..strangers.len())
        .map(|at| match at % WATCHED_IN {
            500 => scripts.get(at * 7_919 % scripts.len()),
            _ => strangers.get(at),
        })
        .collect();
    let mut probe = Probe::new();
    let exact: usize = outputs
        .chunks(BLOCK)
        .map(|block| set.confirm_batch(block, &mut probe).expect("memory").len())
        .sum();
    assert_eq!(exact, outputs.iter().filter(|script| peer.contains(**script)).count());
    let runs = || Runs::new(outputs.len());
    let (mut ours, mut theirs) = (runs(), runs().half_way());
    report.ratio(
        &format!("watch set, {name}: an output in blocks of {BLOCK}, against HashSet<Vec<u8>>"),
        BLOCK,
        || ours.run(|block| set.contains_batch(&outputs[block], &mut probe).len()),
        || {
            theirs
                .run(|block| outputs[block].iter().filter(|script| peer.contains(**script)).count())
        },
    );
    report.figure(&format!("watch set, {name}: an output in blocks, exact answers"), BLOCK, || {
        ours.run(|block| set.confirm_batch(&outputs[block], &mut probe).map_or(0, <[_]>::len))
    });
    drop(peer);
    changes(report, &name, n, &set);
}

/// Returns the CPU time of this thread, or the wall clock time if the system does not report CPU
/// time. Steps that run only once are measured in CPU time, so that other processes do not disturb
/// them.
fn cpu_time() -> Duration {
    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanos = stat.split(' ').next().and_then(|nanos| nanos.parse().ok());
    nanos.map_or_else(|| START.get_or_init(Instant::now).elapsed(), Duration::from_nanos)
}

/// Returns a memory figure of this process from `/proc/self/status`, in bytes, or 0 if the system
/// does not report the figure.
fn status_bytes(what: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(what)?.strip_prefix(':'));
    let kilobytes = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kilobytes.unwrap_or_default() * 1024
}

/// Resets the peak of memory that the system records for this process.
fn forget_peak() {
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}
