//! Soak test: payments, reorganisations, broken connections, and kills of nodes and commands, drawn
//! at random from a seed. At the end no event is missing, and the memory of no command has grown
//! much.
//!
//! `CHAINSIEVE_SOAK_SECONDS` sets the duration in seconds (120 by default). `CHAINSIEVE_SOAK_SEED`
//! sets the seed.

mod bitcoin;
mod ethereum;
mod watched;

use std::panic;
use std::str::FromStr;
use std::thread;
use std::time::{Duration, Instant};

use libtest_mimic::Trial;

use crate::harness::{Scene, live};
use crate::peers::Need;

const SECONDS: u64 = 120;
const SEED: u64 = 20_261_122;
/// Largest allowed growth of a command's memory from the end of the first third to the end, in KiB.
const GROWTH: u64 = 8 << 10;

pub(crate) fn tests() -> Vec<Trial> {
    vec![live("soak", &[Need::Bcoin, Need::Anvil], soak)]
}

/// Returns a number from the environment.
fn setting<T: FromStr>(name: &str, default: T) -> T {
    let Ok(text) = std::env::var(name) else { return default };
    text.parse().unwrap_or_else(|_| panic!("{name} is not a number: {text}"))
}

/// Start and duration of the soak.
#[derive(Clone, Copy, Debug)]
struct Times {
    start: Instant,
    length: Duration,
}

impl Times {
    fn is_over(&self) -> bool {
        self.start.elapsed() >= self.length
    }

    /// Returns `true` in the first third, in which commands are killed. Afterwards, the commands
    /// are not killed any more, and their memory is measured.
    fn is_first_third(&self) -> bool {
        self.start.elapsed() < self.length / 3
    }
}

/// Counts of events in the soak, with their names.
#[derive(Clone, Debug, Default)]
struct Figures(Vec<(&'static str, u64)>);

impl Figures {
    fn add(&mut self, name: &'static str, count: usize) {
        let count = count as u64;
        match self.0.iter_mut().find(|(known, _)| *known == name) {
            Some((_, sum)) => *sum += count,
            None => self.0.push((name, count)),
        }
    }

    fn text(&self) -> String {
        let mut text = Vec::new();
        for (name, count) in &self.0 {
            text.push(format!("{count} {name}"));
        }
        text.join(", ")
    }
}

fn soak(scene: &Scene) {
    let seconds = setting("CHAINSIEVE_SOAK_SECONDS", SECONDS);
    let seed = setting("CHAINSIEVE_SOAK_SEED", SEED);
    eprintln!("soak: {seconds} s, CHAINSIEVE_SOAK_SEED={seed}");
    let times = Times { start: Instant::now(), length: Duration::from_secs(seconds) };
    let both = thread::scope(|scope| {
        let bitcoin = scope.spawn(|| bitcoin::run(scene, times, seed));
        let ethereum = scope.spawn(|| ethereum::run(scene, times, seed));
        [bitcoin.join(), ethereum.join()]
    });
    for figures in both {
        match figures {
            Ok(figures) => eprintln!("soak: {}", figures.text()),
            Err(failure) => panic::resume_unwind(failure),
        }
    }
}
