//! Arguments of `conformance …`.

use std::path::PathBuf;
use std::time::Duration;

use chainsieve::eth::log_query::Semantics;
use clap::{Args, Subcommand};

use super::conformance_node::{AuditNodeArgs, ServeNodeArgs};
use super::eth::SEMANTICS;
use super::{OverwriteArgs, choice};

#[derive(Debug, Subcommand)]
pub(crate) enum ConformanceCommand {
    /// Ask implementations the cases of the vectors, and compare their answers
    Run(RunArgs),
    /// List the areas of the vectors, or the cases of areas
    List(ListArgs),
    /// Show a case: its input with references resolved, the expected answer, its source
    Show(ShowArgs),
    /// Write the vectors as plain JSON files with all references resolved
    Export(ExportArgs),
    /// Answer a runner's questions with chainsieve itself
    Answer(AnswerArgs),
    /// Run a Bitcoin or Ethereum node that conforms, or lies in one named way
    ServeNode(ServeNodeArgs),
    /// Hold a running node to the rules over a range of blocks
    AuditNode(AuditNodeArgs),
}

const CORPUS: &str = "The folder of large blocks that some inputs refer to [default: the variable CHAINSIEVE_CORPUS]";

/// The vectors, and the large files that some inputs refer to.
#[derive(Debug, Args)]
pub(crate) struct PackArgs {
    /// A folder of vectors [default: the vectors that are part of this program]
    #[arg(long, value_name = "DIR")]
    pub(crate) pack: Option<PathBuf>,
    /// The folder of large blocks that some inputs refer to
    #[arg(long, value_name = "DIR", help = CORPUS)]
    pub(crate) corpus: Option<PathBuf>,
}

const RUN_HELP: &str = "\
A subject is a program that answers questions on standard input and output. The page
docs/test-vectors.md has a program of 25 lines that does so. The command is run by the shell, in the
current folder. A subject of the area logs.node answers with the URL of an Ethereum node that it has started. With --rpc, a node
that already runs is a subject. The command deploys contracts on such a node, and asks it for logs.

In patterns, * stands for any text. A case that needs a block of the corpus is not run without it. A
subject that dies, is silent, or breaks the protocol is started anew; the case counts as an error.

The table has, for each area: run (cases that were answered, or should have been), agree, differ
(wrong answers), skipped (the subject has no such call), error (crashes and missing answers), not run.

A baseline is a file of known findings. With --baseline, only other findings count: new ones, and known
ones with another outcome or another wrong value. The texts of errors are not compared. --write-baseline records the findings of this run.

Exit codes: 0  all answers agree, or all findings are known
            2  the command line is wrong, such as a profile that the vectors do not have
            3  an answer differs, or a subject crashed or broke the protocol
            4  no case was run
            5  a subject could not be started, or a file could not be read or written

JSON: pack, profile, date, subjects[{name, version, language, counts{run, agree, differ, skipped, error,
not_run}, faults[] (of no case), unknown_areas[], areas[{area, title, counts, gave_up, kinds[{number,
outcome, text, smallest}], findings[{id, outcome, comment, level, flags[], source, input, input_bytes, expected, got, differs_at,
milliseconds}], skipped[{id, why}], not_run[{id, why}]}]}], not_started[{subject, error}],
baseline{regressions[{subject, id, before, now}], fixed[], known, not_in_pack[] (ids)} (null without
--baseline), failures[] (of writing). An outcome is differs, refused (a value is expected), accepted (a
refusal is expected) or error. Answers of more than 64 KiB are shortened.";

/// Ask implementations the cases of the vectors, and compare their answers.
#[derive(Debug, Args)]
#[command(after_long_help = RUN_HELP)]
pub(crate) struct RunArgs {
    /// A command that starts a subject
    #[arg(long, value_name = "COMMAND", required_unless_present = "rpc")]
    pub(crate) subject: Vec<String>,
    /// The URL of a running Ethereum node for tests, as a subject of the area logs.node
    #[arg(long, value_name = "URL")]
    pub(crate) rpc: Vec<String>,
    /// Ask only the areas that match one of these patterns, such as gcs.*
    #[arg(long, value_name = "PATTERN")]
    pub(crate) area: Vec<String>,
    /// Ask only the cases whose id matches one of these patterns
    #[arg(long, value_name = "PATTERN")]
    pub(crate) id: Vec<String>,
    /// Where implementations differ, accept only the answers of this profile
    #[arg(long, value_name = "NAME")]
    pub(crate) profile: Option<String>,
    #[command(flatten)]
    pub(crate) pack: PackArgs,
    /// Maximum time without an answer, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds)]
    pub(crate) time_limit: Duration,
    /// A file of known findings, which do not count
    #[arg(long, value_name = "FILE")]
    pub(crate) baseline: Option<PathBuf>,
    /// Write the findings of this run to the file of --baseline
    #[arg(long, requires = "baseline")]
    pub(crate) write_baseline: bool,
    /// Write report.json, report.md, report.html and junit.xml to this folder, and replace older ones
    #[arg(long, value_name = "DIR")]
    pub(crate) report: Option<PathBuf>,
}

const LIST_HELP: &str = "\
JSON: version, licence, areas[{area, title, source, licence, cases (their number), needs_corpus (of
them), flags{name: meaning}}], profiles[{name, areas[], by, about}]
With an area: cases[{id, level, flags[], comment, needs}]";

/// List the areas of the vectors, or the cases of areas.
#[derive(Debug, Args)]
#[command(after_long_help = LIST_HELP)]
pub(crate) struct ListArgs {
    /// List the cases of the areas that match one of these patterns, such as gcs.*
    #[arg(value_name = "AREA")]
    pub(crate) area: Vec<String>,
    /// A folder of vectors [default: the vectors that are part of this program]
    #[arg(long, value_name = "DIR")]
    pub(crate) pack: Option<PathBuf>,
}

const SHOW_HELP: &str = "\
Long values are shortened in the table, but not in the JSON. Without the corpus, an input that needs
it is shown with its references.

JSON: id, area, title, comment, level, source, flags{name: meaning}, needs, input, expect, warnings[]";

/// Show a case: its input with references resolved, the expected answer, its source.
#[derive(Debug, Args)]
#[command(after_long_help = SHOW_HELP)]
pub(crate) struct ShowArgs {
    /// The id of the case, such as bip37.sizing/core-unit-test
    pub(crate) id: String,
    #[command(flatten)]
    pub(crate) pack: PackArgs,
}

const EXPORT_HELP: &str = "\
The folder gets pack.json, vectors/, schema/ and pages/. No tool is needed to read the files: each
input contains its bytes, and the members that a group of cases shares. Cases that need the corpus are
left out; with --corpus, they are written too, and the files take about a gigabyte.

JSON: folder, files (their number), cases, left_out (cases that need the corpus)";

/// Write the vectors as plain JSON files with all references resolved.
#[derive(Debug, Args)]
#[command(after_long_help = EXPORT_HELP)]
pub(crate) struct ExportArgs {
    /// The folder to write to, created if missing
    #[arg(value_name = "DIR")]
    pub(crate) folder: PathBuf,
    /// A folder of vectors [default: the vectors that are part of this program]
    #[arg(long, value_name = "DIR")]
    pub(crate) pack: Option<PathBuf>,
    /// The folder of large blocks that some inputs refer to
    #[arg(long, value_name = "DIR")]
    pub(crate) corpus: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) overwrite: OverwriteArgs,
}

const ANSWER_HELP: &str = "\
The command is a subject for `conformance run`:
  chainsieve conformance run --subject 'chainsieve conformance answer'
It reads questions from standard input and writes answers to standard output, one line of JSON each,
until the question stop.

JSON: without --json, the answers only; --json is refused";

/// Answer a runner's questions with chainsieve itself, by each of its ways.
///
/// An answer is found in each way that the library has: one value or a batch, decoded once or anew,
/// with each set of instructions of this CPU. If two ways differ, the answer is an error that names
/// them.
#[derive(Debug, Args)]
#[command(after_long_help = ANSWER_HELP)]
pub(crate) struct AnswerArgs {
    /// The rules to apply where nodes differ: for topics [A, null], geth requires two topics in a
    /// log, alloy only one
    #[arg(long, value_parser = choice(&SEMANTICS), default_value = "geth")]
    pub(crate) semantics: Semantics,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.001..=3600.0).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "not between 0.001 and 3600".into())
}
