//! The timer of all benches. It runs our code and the code of the compared library (the peer)
//! alternately in one process.

use std::hint::black_box;
use std::time::{Duration, Instant};

/// Collects the results of a bench, and prints each one when it is measured.
pub struct Report {
    once: bool,
    quick: bool,
    full: bool,
    json: Option<String>,
    parts: Vec<String>,
    rows: Vec<serde_json::Value>,
}

/// Best and median time of many runs, in nanoseconds.
#[derive(Clone, Copy)]
struct Timing {
    best: f64,
    median: f64,
}

impl Report {
    /// Reads `--once`, `--quick`, `--full`, `--json FILE` and names of parts from the arguments.
    /// `--bench`, which `cargo bench` adds, is ignored.
    pub fn from_args() -> Self {
        let (json, parts, rows) = (None, Vec::new(), Vec::new());
        let mut report = Self { once: false, quick: false, full: false, json, parts, rows };
        let mut args = std::env::args().skip(1);
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--bench" => {}
                "--once" => report.once = true,
                "--quick" => report.quick = true,
                "--full" => report.full = true,
                "--json" => report.json = Some(args.next().expect("--json takes a file")),
                flag if flag.starts_with('-') => {
                    panic!(
                        "unknown argument {flag}; known: --once, --quick, --full, --json FILE, names of parts"
                    )
                }
                part => report.parts.push(part.to_owned()),
            }
        }
        report
    }

    /// Returns `true` if this part was asked for, or if no part was named.
    pub fn wants(&self, part: &str) -> bool {
        self.parts.is_empty() || self.parts.iter().any(|asked| asked == part)
    }

    /// Returns `true` if benches should use smaller data: for fewer runs (`--quick`), and where
    /// each function runs once, so that only the answers are checked (`--once`, as in CI).
    pub fn is_quick(&self) -> bool {
        self.quick || self.once
    }

    /// Returns `true` if benches that have data of realistic size should use these data.
    pub fn is_full(&self) -> bool {
        self.full
    }

    /// Times both functions alternately, and prints `ratio: name = …`. The ratio is the best time
    /// of the peer's function divided by the best time of ours. The times are divided by `per`, the
    /// number of elements (or filters, …) of one run.
    pub fn ratio<T, U>(
        &mut self,
        name: &str,
        per: usize,
        mut ours: impl FnMut() -> T,
        mut peer: impl FnMut() -> U,
    ) {
        let mut times = (Vec::new(), Vec::new());
        let started = Instant::now();
        while self.goes_on(started, times.0.len()) {
            times.0.push(time(&mut ours));
            times.1.push(time(&mut peer));
        }
        let (ours, peer) = (Timing::of(times.0, per), Timing::of(times.1, per));
        let (best, median) = (peer.best / ours.best, peer.median / ours.median);
        println!(
            "ratio: {name} = {best:.2}x (ours {}, {}; medians {median:.2}x)",
            show(ours.best),
            show(peer.best)
        );
        self.rows.push(serde_json::json!({
            "ratio": name, "best": best, "median": median,
            "ours_ns": ours.best, "peer_ns": peer.best,
        }));
    }

    /// Times one function, and prints `figure: name = …`. Returns the best time in nanoseconds per
    /// element.
    pub fn figure<T>(&mut self, name: &str, per: usize, mut ours: impl FnMut() -> T) -> f64 {
        self.figure_of(name, per, || (), |()| ours())
    }

    /// The same as [`figure`](Self::figure), but with a step `prepare` before each run. This step
    /// is not timed.
    pub fn figure_of<P, T>(
        &mut self,
        name: &str,
        per: usize,
        mut prepare: impl FnMut() -> P,
        mut ours: impl FnMut(&mut P) -> T,
    ) -> f64 {
        let mut times = Vec::new();
        let started = Instant::now();
        while self.goes_on(started, times.len()) {
            let mut prepared = prepare();
            times.push(time(&mut || ours(&mut prepared)));
        }
        let timing = Timing::of(times, per);
        println!("figure: {name} = {} (median {})", show(timing.best), show(timing.median));
        self.rows.push(serde_json::json!({ "figure": name, "best_ns": timing.best }));
        timing.best
    }

    /// Prints `figure: name = value unit`, for values that are not times.
    pub fn value(&mut self, name: &str, value: f64, unit: &str) {
        println!("figure: {name} = {value:.3} {unit}");
        self.rows.push(serde_json::json!({ "figure": name, "value": value, "unit": unit }));
    }

    /// Writes the results to the file that `--json` named.
    pub fn finish(self) {
        if let Some(file) = self.json {
            let text = serde_json::to_string_pretty(&self.rows).expect("plain values");
            std::fs::write(&file, text).unwrap_or_else(|error| panic!("{file}: {error}"));
        }
    }

    fn goes_on(&self, started: Instant, runs: usize) -> bool {
        if self.once {
            return runs == 0;
        }
        let (time, least, most) = if self.quick { (60, 3, 200) } else { (400, 15, 2_000) };
        let elapsed = started.elapsed();
        let is_long = elapsed > Duration::from_secs(5);
        runs < 3
            || (!is_long && runs < least)
            || (runs < most && elapsed < Duration::from_millis(time))
    }
}

impl Timing {
    fn of(mut times: Vec<Duration>, per: usize) -> Self {
        times.sort_unstable();
        let per = f64::from(u32::try_from(per).expect("a divisor of 32 bits"));
        let nanos = |time: Duration| time.as_secs_f64() * 1e9 / per;
        Self { best: nanos(times[0]), median: nanos(times[times.len() / 2]) }
    }
}

fn time<T>(run: &mut impl FnMut() -> T) -> Duration {
    let started = Instant::now();
    black_box(run());
    started.elapsed()
}

fn show(nanos: f64) -> String {
    match nanos {
        ..1e3 => format!("{nanos:.1} ns"),
        ..1e6 => format!("{:.2} us", nanos / 1e3),
        _ => format!("{:.3} ms", nanos / 1e6),
    }
}
