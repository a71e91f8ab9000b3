//! Measures what the conformance vectors notice: small changes of chainsieve's own kernels and
//! parsers, of which a seed chooses some. A change is noticed if an answer of the changed program
//! differs from the vectors, or is missing.
//!
//! Usage: `cargo run --release -p conformance-mutants -- FOLDER [SEED [COUNT]]`. FOLDER takes a copy of
//! the last commit, and its build.

#![expect(clippy::print_stdout, reason = "a program that prints a report")]

mod sites;
mod tree;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::Duration;
use std::{env, fs, thread};

use chainsieve_conformance::{Inputs, Limits, Pack, Process, Selection, run};

use tree::Mutant;

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

/// Asks a program with a mutant the cases of one area after another, and returns the first finding.
fn noticed(pack: &Pack, program: &Path, number: usize, reached: Option<&Path>) -> Option<String> {
    // A changed length must not take the memory of the machine.
    let note =
        reached.map_or_else(String::new, |file| format!("MUTANTS_REACHED={}", file.display()));
    let program = program.display();
    let command = format!(
        "ulimit -v 16000000; MUTANT={number} {note} exec {program} conformance answer 2>/dev/null"
    );
    let mut limits = Limits::default();
    limits.answer = Duration::from_secs(60);
    limits.failures = 1;
    let inputs = Inputs::new(pack, None);
    for area in pack.areas() {
        let selection =
            Selection::new(pack, std::slice::from_ref(&area.name), &[], None).expect("an area");
        let mut subject = Process::with_limits(&command, limits);
        let asked =
            run(&inputs, &selection, &mut subject, &mut |_| std::ops::ControlFlow::Continue(()));
        match asked {
            Ok(result) if result.is_clean() => {}
            Ok(result) => {
                let cases = result.areas.iter().flat_map(|area| &area.cases);
                let first = cases.into_iter().find(|case| case.outcome.is_finding());
                return Some(first.map_or_else(|| area.name.clone(), |case| case.id.clone()));
            }
            Err(error) => return Some(error.to_string()),
        }
    }
    None
}

fn main() -> ExitCode {
    let mut arguments = env::args().skip(1);
    let Some(folder) = arguments.next().map(PathBuf::from) else {
        eprintln!("usage: conformance-mutants FOLDER [SEED [COUNT]]");
        return ExitCode::FAILURE;
    };
    let mut number =
        |default| arguments.next().map_or(default, |text| text.parse().expect("a number"));
    let (seed, count) = (number(1), number(200));
    let count = usize::try_from(count).expect("a small number");
    fs::create_dir_all(&folder).expect("a folder");
    let folder = folder.canonicalize().expect("a folder");
    let repository =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("a folder");

    let copy = folder.join("tree");
    tree::copy(&repository, &copy).expect("a copy of the repository");
    let all = tree::mutants(&copy);
    let mut order: Vec<_> = (0..all.len()).collect();
    let mut numbers = Numbers(seed);
    for at in (1..order.len()).rev() {
        let other = numbers.next() % (at as u64 + 1);
        order.swap(at, usize::try_from(other).expect("small"));
    }
    // Some do not compile, and some are in code that no area asks for.
    let drawn: BTreeMap<usize, Mutant> =
        (1..).zip(order.iter().take(2 * count).map(|&place| all[place].clone())).collect();
    println!("{} places, {} of them drawn with seed {seed}", all.len(), drawn.len());
    let (program, built) = tree::build(&copy, drawn).expect("a build");

    let pack = Pack::built_in().expect("the vectors");
    let reached = folder.join("reached");
    let _ = fs::remove_file(&reached);
    if let Some(case) = noticed(&pack, &program, 0, Some(&reached)) {
        println!("without a change, the program fails {case}");
        return ExitCode::FAILURE;
    }
    let reached: BTreeSet<usize> = fs::read_to_string(&reached)
        .expect("the places that were reached")
        .lines()
        .map(|line| line.parse().expect("a number"))
        .collect();
    let missed = built.iter().filter(|(number, _)| !reached.contains(number));
    for (_, mutant) in missed {
        println!("not asked for: {}:{} {}", mutant.file, mutant.line, mutant.site.change);
    }
    let chosen: Vec<_> =
        built.iter().filter(|(number, _)| reached.contains(number)).take(count).collect();

    let next = Mutex::new(chosen.iter());
    let survivors = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let Some((number, mutant)) = next.lock().expect("no panic").next().copied()
                    else {
                        break;
                    };
                    let place = format!("{}:{} {}", mutant.file, mutant.line, mutant.site.change);
                    match noticed(&pack, &program, *number, None) {
                        Some(case) => println!("noticed {number}: {place}: {case}"),
                        None => {
                            survivors.lock().expect("no panic").push(format!("{number}: {place}"));
                        }
                    }
                }
            });
        }
    });
    let survivors = survivors.into_inner().expect("no panic");
    for survivor in &survivors {
        println!("not noticed {survivor}");
    }
    let noticed = chosen.len() - survivors.len();
    println!("{noticed} of {} mutants are noticed", chosen.len());
    if noticed * 100 >= chosen.len() * FLOOR && chosen.len() == count {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
