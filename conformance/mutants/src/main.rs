//! Measures what the conformance vectors notice: small changes of chainsieve's own kernels and
//! parsers, of which a seed chooses some. A change is noticed if an answer of the changed program
//! differs from the vectors, or is missing.
//!
//! Usage: `cargo run --release -p conformance-mutants -- FOLDER [SEED [COUNT [PLACE…]]]`. FOLDER takes a
//! copy of the last commit, and its build, which later runs use again as long as the code stays the same.
//! COUNT is a number, or `all`. With PLACE, only the changes are drawn whose line of the report begins
//! with it: `src/eth/bloom.rs:120`.
//!
//! Two kinds of changes are not drawn. `equivalent.json` lists those that no input can show, each with
//! its reason. The other kind is in code that no area asks for, which a run without a change tells.

#![expect(clippy::print_stdout, reason = "a program that prints a report")]

mod equivalent;
mod sites;
mod tree;

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::Duration;
use std::{env, fs, thread};

use chainsieve_conformance::{Inputs, Limits, Pack, Process, Selection, matches, run};

use tree::Mutant;

/// The changes that no input can show.
const EQUIVALENT: &str = include_str!("../equivalent.json");

/// Share of the mutants that the vectors must notice, in percent.
const FLOOR: usize = 95;

/// Numbers that a seed gives: `SplitMix64`.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

/// Longest time for one answer. A change can make a loop endless.
const ANSWER: Duration = Duration::from_secs(30);

/// The profiles by which the program is asked, its argument, and the areas. Without a profile, a case
/// where implementations differ would accept the answers of both sides.
const PROFILES: [(&str, &str, &str); 3] =
    [("core-exact", "geth", "*"), ("geth", "geth", "*"), ("alloy", "alloy", "logs.*")];

/// A mutant of the program, and the vectors that judge it.
struct Trial<'a> {
    pack: &'a Pack,
    program: &'a Path,
    /// The number of the mutant; 0 is the program without a change.
    number: usize,
}

impl Trial<'_> {
    /// Asks the cases of an area by each profile, and returns the first finding. Writes the places
    /// that the answers reach to `reached`.
    fn finding(&self, area: &str, reached: Option<&Path>) -> Option<String> {
        let profiles = self.pack.profiles();
        let has_area =
            |profile: &str| profiles[profile].areas.iter().any(|pattern| matches(pattern, area));
        let covers =
            |(profile, _, areas): &&(&str, _, &str)| has_area(profile) && matches(areas, area);
        let mut asked = PROFILES.iter().filter(covers).peekable();
        if asked.peek().is_none() {
            return self.finding_by(area, None, "", reached);
        }
        asked.find_map(|(profile, argument, _)| {
            self.finding_by(area, Some(profile), argument, reached)
        })
    }

    fn finding_by(
        &self,
        area: &str,
        profile: Option<&str>,
        argument: &str,
        reached: Option<&Path>,
    ) -> Option<String> {
        let note =
            reached.map_or_else(String::new, |file| format!("MUTANTS_REACHED={}", file.display()));
        let (number, program) = (self.number, self.program.display());
        // A changed length must not take the memory of the machine.
        let command = format!(
            "ulimit -v 16000000; MUTANT={number} {note} exec {program} {argument} 2>/dev/null"
        );
        let mut limits = Limits::default();
        limits.answer = ANSWER;
        limits.failures = 1;
        let inputs = Inputs::new(self.pack, None);
        let selection =
            Selection::new(self.pack, &[area.to_owned()], &[], profile).expect("an area");
        let mut subject = Process::with_limits(&command, limits);
        let asked = run(&inputs, &selection, &mut subject, &mut |_| ControlFlow::Continue(()));
        match asked {
            Ok(result) if result.is_clean() => None,
            Ok(result) => {
                let mut cases = result.areas.iter().flat_map(|area| &area.cases);
                let first = cases.find(|case| case.outcome.is_finding());
                Some(first.map_or_else(|| area.to_owned(), |case| case.id.clone()))
            }
            Err(error) => Some(error.to_string()),
        }
    }
}

/// Returns for each place the areas that reach it, by a run without a change.
fn areas_by_place<'p>(
    pack: &'p Pack,
    program: &Path,
    folder: &Path,
) -> Result<BTreeMap<usize, Vec<&'p str>>, String> {
    let unchanged = Trial { pack, program, number: 0 };
    let mut areas: BTreeMap<usize, Vec<&str>> = BTreeMap::new();
    for area in pack.areas() {
        let reached = folder.join("reached");
        let _ = fs::remove_file(&reached);
        if let Some(case) = unchanged.finding(&area.name, Some(&reached)) {
            return Err(format!("without a change, the program fails {case}"));
        }
        // An area of nodes starts no subject.
        for number in fs::read_to_string(&reached).unwrap_or_default().lines() {
            areas.entry(number.parse().expect("a number")).or_default().push(&area.name);
        }
    }
    Ok(areas)
}

/// Tries all mutants, several at a time, and returns the places of those that no case notices.
fn survivors(
    pack: &Pack,
    program: &Path,
    chosen: &[&Mutant],
    areas: &BTreeMap<usize, Vec<&str>>,
) -> Vec<String> {
    let next = Mutex::new(chosen.iter());
    let survivors = Mutex::new(Vec::new());
    let try_mutants = || {
        loop {
            let Some(mutant) = next.lock().expect("no panic").next() else { break };
            let trial = Trial { pack, program, number: mutant.number };
            let noticed = areas[&mutant.number].iter().find_map(|area| trial.finding(area, None));
            if let Some(case) = noticed {
                println!("noticed {mutant}: {case}");
            } else {
                println!("not noticed {mutant}");
                survivors.lock().expect("no panic").push(mutant.to_string());
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(try_mutants);
        }
    });
    survivors.into_inner().expect("no panic")
}

fn main() -> ExitCode {
    let mut arguments = env::args().skip(1);
    let Some(folder) = arguments.next().map(PathBuf::from) else {
        eprintln!("usage: conformance-mutants FOLDER [SEED [COUNT [PLACE…]]]");
        return ExitCode::FAILURE;
    };
    let seed = arguments.next().map_or(1, |text| text.parse().expect("a number"));
    let count = match arguments.next() {
        Some(text) if text == "all" => None,
        text => Some(text.map_or(200, |text| text.parse().expect("a number, or `all`"))),
    };
    let places: Vec<_> = arguments.collect();
    match measure(&folder, seed, count, &places) {
        Ok(is_enough) if is_enough => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Draws and tries the mutants at these places, or at all if there are none, and prints the report.
/// Returns `true` if enough of them are noticed.
fn measure(
    folder: &Path,
    seed: u64,
    count: Option<usize>,
    places: &[String],
) -> Result<bool, String> {
    fs::create_dir_all(folder).expect("a folder");
    let folder = folder.canonicalize().expect("a folder");
    let repository =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("a folder");

    let build = tree::build(&repository, &folder).expect("a build");
    let all = build.mutants.len();
    let equivalent = equivalent::numbers(EQUIVALENT, &build.mutants)?;
    let left = build.mutants.iter().filter(|mutant| !equivalent.contains(&mutant.number));
    let (compiled, broken): (Vec<_>, Vec<_>) = left.partition(|mutant| mutant.compiles);

    let pack = Pack::built_in().expect("the vectors");
    let areas = areas_by_place(&pack, &build.program, &folder)?;
    let (mut order, missed): (Vec<_>, Vec<_>) =
        compiled.into_iter().partition(|mutant| areas.contains_key(&mutant.number));
    for mutant in &missed {
        println!("not asked for: {mutant}");
    }
    println!(
        "{all} places: {} equivalent, {} that do not compile, {} that no area reaches; {} are left",
        equivalent.len(),
        broken.len(),
        missed.len(),
        order.len()
    );
    order.retain(|mutant| {
        let line = mutant.to_string();
        places.is_empty() || places.iter().any(|place| line.starts_with(place))
    });
    let mut numbers = Numbers(seed);
    for at in (1..order.len()).rev() {
        let other = numbers.next() % (at as u64 + 1);
        order.swap(at, usize::try_from(other).expect("small"));
    }
    let chosen = &order[..count.map_or(order.len(), |count| count.min(order.len()))];
    let survivors = survivors(&pack, &build.program, chosen, &areas);
    println!("these are not noticed:");
    for survivor in &survivors {
        println!("{survivor}");
    }
    let noticed = chosen.len() - survivors.len();
    println!("seed {seed}: {noticed} of {} mutants are noticed", chosen.len());
    let is_whole = count.is_none_or(|count| count == chosen.len());
    Ok(is_whole && noticed * 100 >= chosen.len() * FLOOR)
}
