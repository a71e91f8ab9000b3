//! The command line: arguments and help texts of every command.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use chainsieve::bitcoin::Network;
use chainsieve::eth::chain_profile::{BloomSoundness, ReceiptsScope};
use chainsieve_report::args::{OutputArgs, SCOPES, SOUNDNESS, Secret, choice, count, network};
use clap::{ArgGroup, Args, Parser, Subcommand};

/// The table of exit codes, for `--help`.
const EXIT_CODES: &str = "\
Exit codes: 0  yes, or done
            2  invalid command line
            3  wrong answers, or a node that breaks a rule
            4  not decided: the evidence is missing, or nothing was asked
            5  malformed input, an I/O error, an unreachable node or subject";

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
    #[command(flatten)]
    pub(crate) output: OutputArgs,
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

const SERVE_HELP: &str = "\
Without --blocks and --upstream, the node has built-in blocks. The Bitcoin node has a regtest chain of 140
blocks with payments to four known scripts; the notes and the line `listening` have their addresses and
keys. The Ethereum node has mainnet's blocks 17686111 and 17686112.

A Bitcoin node answers as `chainsieve btc test-node` does: headers, blocks, BIP37, BIP157. The folder of
--blocks has the form that this command reads, and is read once. An Ethereum node answers eth_chainId, eth_blockNumber,
eth_getBlockByNumber, eth_getBlockByHash, eth_getLogs, eth_getBlockReceipts and eth_getTransactionReceipt,
also in batches. With --upstream, another node gives the true answers.

--list names the lies, and the verdict that a correct client must reach about each:
  must-detect          the client detects the lie by itself, and does not use the false data
  cannot-detect-alone  only a second node reveals the lie; the client claims no more than one node's word
  must-not-crash       the client asks another node, or reports an error
  must-time-out        the client ends the wait by its own timeout

Ctrl-C or SIGTERM ends the node, with exit code 0.

JSON: one object per line, of one of these kinds:
  lie        id, title, protocol (bitcoin-p2p | ethereum-json-rpc), expected{verdict, by}, source: of --list
  listening  address, lie (as above; null for an honest node), protocol; Bitcoin: network, blocks,
             scripts[{kind, address, script, wif}] (empty with --blocks); Ethereum: upstream (true or false)
  told       count: the lie was told again
  warning    text
  summary    lies (of --list), or connections, calls and told: the last line";

/// Run a Bitcoin or Ethereum node that conforms, or lies in one named way.
#[derive(Debug, Args)]
#[command(
    after_long_help = SERVE_HELP,
    group(ArgGroup::new("node").args(["list", "lie", "bitcoin", "ethereum"]).required(true).multiple(true))
)]
pub(crate) struct ServeNodeArgs {
    /// The lie that the node tells, by its id; --list names them [default: none]
    #[arg(long, value_name = "ID")]
    pub(crate) lie: Option<String>,
    /// List the lies, and the verdict that a correct client must reach about each
    #[arg(long, conflicts_with_all = ["lie", "bitcoin", "ethereum", "blocks", "network", "upstream"])]
    pub(crate) list: bool,
    /// Run a Bitcoin node
    #[arg(long, conflicts_with_all = ["ethereum", "upstream"])]
    pub(crate) bitcoin: bool,
    /// Run an Ethereum node
    #[arg(long, conflicts_with_all = ["blocks", "network"])]
    pub(crate) ethereum: bool,
    /// The address to listen on, of this machine; port 0 picks a free port
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:0")]
    pub(crate) listen: SocketAddr,
    /// Bitcoin: a folder of blocks to serve [default: a built-in chain of regtest]
    #[arg(long, value_name = "DIR", requires = "network")]
    pub(crate) blocks: Option<PathBuf>,
    /// Bitcoin: the network of the blocks
    #[arg(long, value_parser = network(), requires = "blocks")]
    pub(crate) network: Option<Network>,
    /// Ethereum: the URL of a node that gives the true answers [default: built-in blocks]
    #[arg(long, value_name = "URL")]
    pub(crate) upstream: Option<Secret>,
}

const AUDIT_HELP: &str = "\
Bitcoin: each filter and filter header of the range is computed from its block and compared, up to the first
difference. Over JSON-RPC, the scripts of spent outputs come from getblock with verbosity 3; a node without
it, and a peer, names none, so that a filter can be decided only if the range has the blocks that created the
spent outputs. The filter header before the range is the node's word.

Ethereum: each header is fetched by number and by hash, and the receipts by every method that the node
serves. Queries of eth_getLogs that are derived from the receipts are compared with the right answer. If
\"any\" is at the end of a query, geth's and alloy's rules differ, and either is accepted.

The chain id that the node names decides what its headers commit to; the ids 1337 and 31337 are local
networks by Ethereum's rules. Of another unknown chain, filters, receipts and logs decide nothing, unless you
give --assume-bloom and --assume-receipts (for unmodified geth nodes: exact, every-log). Receipts of unknown
types decide nothing, and so do headers with unknown members, unless the node serves debug_getRawHeader.

Rules: bitcoin.header, bitcoin.block, bip158.basic, bip157.header; header.json, header.chain, receipts.root,
receipts.place, logsbloom.build, logs.node. All but bitcoin.*, header.chain and receipts.place are areas
of the conformance vectors.

Exit codes: 0  the node keeps all rules
            3  the node breaks a rule, also if the audit could not go on after that: a note says why
            4  some comparisons cannot be decided, or the chain was reorganised during the audit
            5  the node does not answer, answers without JSON-RPC, or lacks the blocks

JSON: status (agrees | differs | undecided), from, to, blocks, checks{rule: number of comparisons},
differences[{rule, block, what, expected, got, query (the smallest found)}], undecided, why_undecided,
notes[].";

/// Hold a running node to the rules over a range of blocks.
#[derive(Debug, Args)]
#[command(
    after_long_help = AUDIT_HELP,
    group(ArgGroup::new("node").args(["ethereum", "bitcoin_rpc", "bitcoin_p2p"]).required(true)),
    group(ArgGroup::new("range").args(["from", "to", "last"]).required(true).multiple(true))
)]
pub(crate) struct AuditNodeArgs {
    /// The URL of an Ethereum node's JSON-RPC, or @FILE that contains it
    #[arg(long, value_name = "URL")]
    pub(crate) ethereum: Option<Secret>,
    /// The URL of a Bitcoin node's JSON-RPC, as Bitcoin Core serves it, or @FILE that contains it
    #[arg(long, value_name = "URL")]
    pub(crate) bitcoin_rpc: Option<Secret>,
    /// The address of a Bitcoin peer that serves compact filters
    #[arg(long, value_name = "HOST:PORT", requires = "network")]
    pub(crate) bitcoin_p2p: Option<String>,
    // `requires` does not refuse an option beside another kind of node: clap lets the required
    // argument be missing if it conflicts with one that is given.
    /// The network of --bitcoin-p2p
    #[arg(
        long,
        value_parser = network(),
        requires = "bitcoin_p2p",
        conflicts_with_all = ["ethereum", "bitcoin_rpc"]
    )]
    pub(crate) network: Option<Network>,
    /// Bitcoin Core's cookie file, with user and password
    #[arg(
        long,
        value_name = "FILE",
        requires = "bitcoin_rpc",
        conflicts_with_all = ["user", "ethereum", "bitcoin_p2p"]
    )]
    pub(crate) cookie: Option<PathBuf>,
    /// The user of --bitcoin-rpc
    #[arg(
        long,
        value_name = "NAME",
        requires_all = ["bitcoin_rpc", "password_file"],
        conflicts_with_all = ["ethereum", "bitcoin_p2p"]
    )]
    pub(crate) user: Option<String>,
    /// A file with the password of --user
    #[arg(
        long,
        value_name = "FILE",
        requires = "user",
        conflicts_with_all = ["ethereum", "bitcoin_p2p"]
    )]
    pub(crate) password_file: Option<PathBuf>,
    /// Ethereum, for a chain that is unknown: what its filters prove
    #[arg(
        long,
        value_name = "SOUNDNESS",
        value_parser = choice(&SOUNDNESS),
        conflicts_with_all = ["bitcoin_rpc", "bitcoin_p2p"],
        hide_short_help = true
    )]
    pub(crate) assume_bloom: Option<BloomSoundness>,
    /// Ethereum, for a chain that is unknown: whether its receipts contain every log
    #[arg(
        long,
        value_name = "SCOPE",
        value_parser = choice(&SCOPES),
        requires = "assume_bloom",
        conflicts_with_all = ["bitcoin_rpc", "bitcoin_p2p"],
        default_value = "not-every-log",
        hide_short_help = true
    )]
    pub(crate) assume_receipts: ReceiptsScope,
    /// The first block
    #[arg(long, value_name = "NUMBER", value_parser = count(0..=u64::MAX), requires = "to")]
    pub(crate) from: Option<u64>,
    /// The last block
    #[arg(long, value_name = "NUMBER", value_parser = count(0..=u64::MAX), requires = "from")]
    pub(crate) to: Option<u64>,
    /// The newest blocks of the node, in place of --from and --to
    #[arg(
        long,
        value_name = "COUNT",
        value_parser = count(1..=u64::MAX),
        conflicts_with_all = ["from", "to", "bitcoin_p2p"]
    )]
    pub(crate) last: Option<u64>,
    /// Seconds to wait for a response
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = count(1..=3600_u64))]
    pub(crate) timeout: u64,
    /// Number of times that a failed request is retried, with increasing waits
    #[arg(long, value_name = "COUNT", default_value_t = 2, value_parser = count(0..=100_u32))]
    pub(crate) retries: u32,
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
