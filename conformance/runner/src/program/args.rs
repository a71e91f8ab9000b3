//! The command line: arguments and help texts of every command.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use crate::exit::EXIT_CODES;
use crate::node_args::{AuditNodeArgs, ServeNodeArgs};

/// Tests implementations with vectors, wallets with nodes that lie, and running nodes.
#[derive(Debug, Parser)]
#[command(
    name = "chainsieve-conformance",
    version,
    after_help = EXIT_CODES,
    after_long_help = after_help(),
    arg_required_else_help = true
)]
pub(crate) struct Cli {
    /// Print JSON; each command's --help lists the fields
    #[arg(long, global = true, display_order = 100)]
    pub(crate) json: bool,
    /// Print no notes and no progress on standard error
    #[arg(long, short, global = true, display_order = 101, conflicts_with = "verbose")]
    pub(crate) quiet: bool,
    /// Begin each note with the time since the start, and print the total time at the end
    #[arg(long, short, global = true, display_order = 102)]
    pub(crate) verbose: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Returns the last part of the program's `--help`; `-h` ends with the exit codes.
fn after_help() -> String {
    format!(
        "{EXIT_CODES}

Results go to standard output, errors, warnings and notes to standard error. With --json, a command
that prints several lines prints one JSON object on each line. The first member of such an object is
kind. In the last line, kind is summary."
    )
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Ask implementations the cases of the vectors, and compare their answers
    Run(Box<RunArgs>),
    /// Write the vectors as plain JSON files with all references resolved
    Export(ExportArgs),
    /// Run a Bitcoin or Ethereum node that conforms, or lies in one named way
    ServeNode(ServeNodeArgs),
    /// Hold a running node to the rules over a range of blocks
    AuditNode(Box<AuditNodeArgs>),
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
conformance/docs/vectors.md has a program of 25 lines that does so. The command is run by the shell, in the
current folder. A subject of the area logs.node answers with the URL of an Ethereum node that it has started. With --rpc, a node
that already runs is a subject. The command deploys contracts on such a node, and asks it for logs.

In patterns, * stands for any text. A case that needs a block of the corpus is not run without it. A
subject that dies, is silent, or breaks the protocol is started anew; the case counts as an error.

The table has, for each area: run (cases that were answered, or should have been), agree, differ
(wrong answers), skipped (the subject has no such call), error (crashes and missing answers), not run.

A baseline is a file of known findings. With --baseline, only other findings count: new ones, and known
ones with another outcome or another wrong value. The texts of errors are not compared. --write-baseline records the findings of this run.

With --show, long values are shortened in the table, but not in the JSON. Without the corpus, an input
that needs it is shown with its references.

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
refusal is expected) or error. Answers of more than 64 KiB are shortened.
--list: version, licence, areas[{area, title, source, licence, cases (their number), needs_corpus (of
them), flags{name: meaning}}], profiles[{name, areas[], by, about}]; with --area or --id: cases[{id,
level, flags[], comment, needs}]
--show: id, area, title, comment, level, source, flags{name: meaning}, needs, input, expect, warnings[]";

/// Ask implementations the cases of the vectors, and compare their answers.
#[derive(Debug, Args)]
#[command(after_long_help = RUN_HELP)]
pub(crate) struct RunArgs {
    /// A command that starts a subject
    #[arg(long, value_name = "COMMAND", required_unless_present_any = ["rpc", "list", "show"])]
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
    /// Write report.json and junit.xml to this folder, and replace older ones
    #[arg(long, value_name = "DIR")]
    pub(crate) report: Option<PathBuf>,
    /// Ask nothing, and list the areas of the vectors, or with --area or --id their cases
    #[arg(
        long,
        conflicts_with_all = ["subject", "rpc", "show", "profile", "baseline", "report"]
    )]
    pub(crate) list: bool,
    /// Ask nothing, and show a case: its input with references resolved, the expected answer, its source
    #[arg(
        long,
        value_name = "ID",
        conflicts_with_all = ["subject", "rpc", "area", "id", "profile", "baseline", "report"]
    )]
    pub(crate) show: Option<String>,
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
    /// Replace output files that already exist
    #[arg(long)]
    pub(crate) force: bool,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.001..=3600.0).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "not between 0.001 and 3600".into())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::Cli;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    /// The output of `-h` fits on a screen of 100 columns, and the output of `--help` is longer.
    #[test]
    fn short_help_fits_a_screen() {
        let rows = |text: &str| -> usize {
            text.trim_end().lines().map(|line| line.chars().count().div_ceil(100).max(1)).sum()
        };
        let mut cli = Cli::command();
        cli.build();
        let names = ["run", "export", "serve-node", "audit-node"];
        for name in [None].into_iter().chain(names.map(Some)) {
            let command = name.map_or(Some(&cli), |name| cli.find_subcommand(name));
            let mut command = command.expect("a command").clone();
            let [short, long] =
                [command.render_help(), command.render_long_help()].map(|help| help.to_string());
            assert!(rows(&short) <= 50, "{name:?}: {} rows\n{short}", rows(&short));
            assert!(rows(&long) > rows(&short), "{name:?}\n{long}");
        }
    }
}
