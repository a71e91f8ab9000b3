//! Measures what the conformance vectors notice: small changes of chainsieve's own kernels and
//! parsers, of which a seed chooses some. A change is noticed if an answer of the changed program
//! differs from the vectors, or is missing.
//!
//! Usage: `cargo run --release -p conformance-mutants -- FOLDER [SEED [COUNT[:PART/PARTS] [PLACE…]]]`. FOLDER
//! takes a copy of the last commit, and its build, which later runs use again as long as the code stays the
//! same. COUNT is a number, or `all`. With PLACE, only the changes are drawn whose line of the report begins
//! with it: `src/eth/bloom.rs:120`.
//!
//! With PART/PARTS, one part of the drawn changes is tried: `200:3/10` tries the third tenth of 200 changes.
//! Such a run fails if this part alone leaves more changes unnoticed than all parts together may. Whoever
//! runs all parts adds up their last lines.
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
        let inputs = Inputs::new(self.pack);
        let mut selection = Selection::all(self.pack).with_areas(&[area]).expect("an area");
        if let Some(profile) = profile {
            selection = selection.with_profile(profile).expect("a profile");
        }
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

/// Which mutants are drawn, and which of these are tried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Draw {
    /// Number of drawn mutants, or all.
    count: Option<usize>,
    /// The part of the drawn mutants that is tried, counted from 1, and the number of parts.
    part: (usize, usize),
}

impl Draw {
    /// Parses `COUNT` or `COUNT:PART/PARTS`, where `COUNT` is a number or `all`.
    fn parse(text: &str) -> Option<Self> {
        let (count, part) = text.split_once(':').unwrap_or((text, "1/1"));
        let count = if count == "all" { None } else { Some(count.parse().ok()?) };
        let (part, parts) = part.split_once('/')?;
        let (part, parts) = (part.parse().ok()?, parts.parse().ok()?);
        (1..=parts).contains(&part).then_some(Self { count, part: (part, parts) })
    }

    /// Returns the part of the drawn mutants that is tried.
    fn tried<M: Copy>(&self, drawn: &[M]) -> Vec<M> {
        let (part, parts) = self.part;
        drawn.iter().skip(part - 1).step_by(parts).copied().collect()
    }
}

/// Returns the number of mutants that must be noticed, of this number of drawn mutants.
fn needed(drawn: usize) -> usize {
    (drawn * FLOOR).div_ceil(100)
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
        eprintln!("usage: conformance-mutants FOLDER [SEED [COUNT[:PART/PARTS] [PLACE…]]]");
        return ExitCode::FAILURE;
    };
    let seed = arguments.next().map_or(1, |text| text.parse().expect("a number"));
    let draw = arguments.next().unwrap_or_else(|| "200".into());
    let Some(draw) = Draw::parse(&draw) else {
        eprintln!("not a number or `all`, with or without a part like `:3/10`: {draw}");
        return ExitCode::FAILURE;
    };
    let places: Vec<_> = arguments.collect();
    match measure(&folder, seed, draw, &places) {
        Ok(is_enough) if is_enough => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Draws and tries the mutants at these places, or at all if there are none, and prints the report.
/// Returns `true` if enough of the drawn mutants can still be noticed.
fn measure(folder: &Path, seed: u64, draw: Draw, places: &[String]) -> Result<bool, String> {
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
    let drawn = &order[..draw.count.map_or(order.len(), |count| count.min(order.len()))];
    let tried = draw.tried(drawn);
    let survivors = survivors(&pack, &build.program, &tried, &areas);
    println!("these are not noticed:");
    for survivor in &survivors {
        println!("{survivor}");
    }
    let (part, parts) = draw.part;
    println!(
        "seed {seed}, part {part} of {parts}: {} of {} mutants are noticed; {} of {} must be",
        tried.len() - survivors.len(),
        tried.len(),
        needed(drawn.len()),
        drawn.len()
    );
    let is_whole = draw.count.is_none_or(|count| count == drawn.len());
    Ok(is_whole && drawn.len() - survivors.len() >= needed(drawn.len()))
}

#[cfg(test)]
mod tests {
    use super::{Draw, needed};

    #[test]
    fn the_parts_of_a_draw_are_the_draw() {
        let drawn: Vec<usize> = (0..203).collect();
        for parts in [1, 3, 10, 203, 300] {
            let tried = (1..=parts).flat_map(|part| {
                Draw::parse(&format!("203:{part}/{parts}")).expect("a draw").tried(&drawn)
            });
            let mut tried: Vec<usize> = tried.collect();
            tried.sort_unstable();
            assert_eq!(tried, drawn, "{parts} parts");
        }
    }

    #[test]
    fn draws_have_a_count_and_a_part() {
        let draw = |count, part| Some(Draw { count, part });
        assert_eq!(Draw::parse("200"), draw(Some(200), (1, 1)));
        assert_eq!(Draw::parse("200:3/10"), draw(Some(200), (3, 10)));
        assert_eq!(Draw::parse("all"), draw(None, (1, 1)));
        assert_eq!(Draw::parse("all:10/10"), draw(None, (10, 10)));
        for wrong in ["", "some", "200:", "200:3", "200:0/10", "200:11/10", "200:1/0", "200:1/x"] {
            assert_eq!(Draw::parse(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn needed_is_at_least_the_floor() {
        assert_eq!([0, 1, 19, 20, 200, 201].map(needed), [0, 1, 19, 19, 190, 191]);
    }
}
