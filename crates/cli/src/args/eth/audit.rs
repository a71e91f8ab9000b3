//! `eth audit` and `eth verify-certificate`.

use std::path::PathBuf;

use chainsieve::alloy_primitives::B256;
use chainsieve::eth::chain_profile::{BloomSoundness, ReceiptsScope};
use clap::Args;

use super::headers::{FORMATS, HeaderFormat, formats_help};
use super::query::{QueryArgs, hash};
use super::rpc::RpcArgs;
use crate::args::OverwriteArgs;
use crate::args::number::count;
use crate::args::{Choice, choice};
use crate::eth::rpc::Secret;

/// What the exit codes mean for a verdict.
macro_rules! exit_help {
    () => {
        "\
Exit codes: 0 complete: exactly the logs of the blocks that the query wants, proven
            3 wrong: a log omitted, forged, not as the chain has it, twice or not asked for, proven
            4 not decided in parts: which ones, and why, is printed
            5 malformed input, an I/O error, or an unreachable provider"
    };
}
macro_rules! receipts_help {
    () => {
        "\
Receipts of a block are all or none. They come from files of one block in RLP (as of eth/68, or the
slim form of eth/69), from replies of eth_getBlockReceipts, debug_getRawReceipts or of
eth_getTransactionReceipt for each transaction, from era1 and ere archives, and from folders: those
of their files that have \"receipts\" in their name, and archives. Anyone may give them, the header
says whether they are the block's."
    };
}

const AUDIT_HELP: &str = concat!(
    exit_help!(),
    "\n\n",
    formats_help!(),
    "\n\n",
    receipts_help!(),
    "

A hash authenticates its block and all before it. So trust the hash of a block at the end of the
range or behind it (finalised, from your own node or a light client), and give the headers up to it.
The chain's profile is your word too: no header says which chain it is of, or whether its filters
are sound. What is found speaks of these logs, not of who sent them: replies are not signed.

With --rpc, logs, headers and receipts are asked for: nothing need be at hand. The range begins at
--from and ends at the finalised block, unless --to says earlier or --unfinalized allows later.
Blocks up to the finalised one are asked about by number, in as many eth_getLogs as the provider
needs, later ones each by its hash. Headers come from debug_getRawHeader, where a node serves it, or
as JSON under their hash; receipts from eth_getBlockReceipts or what else there is. The chain is told
by the id that the provider says, which is its word: --chain or --assume-bloom are yours. Without --anchor the last block's hash is the provider's own word,
which is said: what is found then holds if that block is on the chain, and exit code 0 says no more.
With --rpc given twice, each answer is audited by itself over one chain, and both are compared;
headers and receipts come from whichever provider has authentic ones. Exit code 3 if either answer is
wrong, 4 if the two are of different chains and no --anchor says which: the word of one proves
nothing against the other. A provider that can't be reached ends the command with 5. If receipts
of some blocks do not come, those blocks are undecided and the rest is reported. If receipts of no
block come, nothing is reported but a proof that an answer is wrong; without one the exit code is 5.
URLs and headers are secrets: of them only the host
is ever shown.

JSON: status (complete | wrong | undecided), first, last, anchored_to (null: nothing is authentic),
blocks{all, examined, absent_by_bloom, checked_by_receipts, undecidable}, examined[{number, hash,
verdict, and why if undecidable}], contradicted[{start, end}] (blocks whose filters turned out to
lack bits; only if there are any), undecided[{number, why}] (1,000 at the most), findings[{kind,
block, grounds (answer | anchored | unanchored), proof (whether it proves the answer wrong), at (index
of the log in the answer, or null), words, log, and by kind: index_in_receipt, receipt_proof{transactionIndex,
nodes[]}, shown_by (bloom | receipts), instead (the block's log in its place, where known), field,
actual and answered (for a timestamp), first, claimed, missing_bits, extra_bits}],
wanted[{number, hash}] (blocks whose receipts are missing), logs (how many were answered), digest,
transaction_hashes_unbound, query, semantics, chain, certificate (the file), warnings[]. A kind is
omitted_log, forged_log, wrong_field, duplicate, not_matching, out_of_range, beyond_tag, other_fork,
arity_dependent, removed or profile_contradicted. With --rpc also: provider{name (A | B), host}, and
name in each finding as provider; chain_id, chain_from (user | provider: who said so),
anchor{number, hash} (null if --anchor is not on the chain), anchor_from (user | provider; then
anchored_to is null), anchor_agreed (whether the other provider has the same block there; null
without one), finalized{number, hash} or null, providers[{name, host, receipts_of_blocks}]. With
two: status (of both), first, last, anchored_to, audits[] (each as of one provider), compared{same,
only_a[], only_b[] (1,000 logs at the most)}, warnings[] and the fields behind chain_id."
);

/// Whether an answer of eth_getLogs is complete and true.
#[derive(Debug, Args)]
#[command(after_long_help = AUDIT_HELP)]
pub(crate) struct AuditArgs {
    /// The headers of the blocks, in order, up to an anchor: files, - for standard input, or hex
    #[arg(value_name = "HEADERS", required_unless_present = "rpc", conflicts_with = "rpc")]
    pub(crate) headers: Vec<String>,
    /// What the headers are written in
    #[arg(
        long,
        value_parser = choice(&FORMATS),
        default_value = "auto",
        conflicts_with = "rpc",
        hide_short_help = true
    )]
    pub(crate) format: HeaderFormat,
    /// The logs answered: replies of eth_getLogs, lists, or a log a line
    ///
    /// May be given again
    #[arg(long, value_name = "FILE", required_unless_present = "rpc", conflicts_with = "rpc")]
    pub(crate) logs: Vec<String>,
    /// Receipts of blocks: a file, a folder, an archive
    ///
    /// May be given again
    #[arg(long, value_name = "PATH")]
    pub(crate) receipts: Vec<PathBuf>,
    /// era1 or ere archives whose transactions show the transaction hashes in the answer
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub(crate) transactions: Vec<PathBuf>,
    /// Write the certificate, for others to verify
    #[arg(long, value_name = "FILE")]
    pub(crate) certificate: Option<PathBuf>,
    /// Put headers and receipts into the certificate
    ///
    /// Nothing else is needed then to verify it
    #[arg(long, requires = "certificate")]
    pub(crate) embed: bool,
    /// Write the blocks whose receipts are missing: number and hash, one a line
    #[arg(long, value_name = "FILE")]
    pub(crate) wanted: Option<PathBuf>,
    // Before the groups: the heading of a group holds for all that comes after it.
    #[command(flatten)]
    pub(crate) overwrite: OverwriteArgs,
    #[command(flatten)]
    pub(crate) query: QueryArgs,
    #[command(flatten)]
    pub(crate) trust: TrustArgs,
    #[command(flatten)]
    pub(crate) rpc: RpcArgs,
    #[command(flatten)]
    pub(crate) asking: AskingArgs,
}

/// What is asked of providers, and how much of it.
#[derive(Debug, Args)]
#[command(next_help_heading = "The provider")]
pub(crate) struct AskingArgs {
    /// A header for the second provider: --rpc-header is for the first
    #[arg(long, value_name = "HEADER", requires = "rpc", hide_short_help = true)]
    pub(crate) rpc2_header: Vec<Secret>,
    /// Take blocks behind the finalised one too, which may still leave the chain
    #[arg(long, requires = "rpc")]
    pub(crate) unfinalized: bool,
    /// Blocks whose receipts are fetched at the most
    #[arg(
        long,
        value_name = "BLOCKS",
        default_value_t = 1_000,
        value_parser = count(0..=u64::MAX),
        hide_short_help = true
    )]
    pub(crate) max_receipts: u64,
    /// Headers that are fetched at the most, up to the anchor
    #[arg(
        long,
        value_name = "BLOCKS",
        default_value_t = 1_000_000,
        value_parser = count(0..=u64::MAX),
        hide_short_help = true
    )]
    pub(crate) max_headers: u64,
}

const CERTIFICATE_HELP: &str = concat!(
    "\
Exit codes: 0 complete: the result that the certificate binds is proven
            3 wrong: the certificate does not hold: it is of another query, or headers, receipts or
              the logs given say something else
            4 not decided in parts: which ones, and why, is printed
            5 malformed input, or an I/O error

Everything is proven anew. Anchor, chain and query are yours and never the certificate's, and so are
the blocks: say --from and --to, or numbers in --query. Headers and receipts may be embedded, or come
from anyone. The logs are derived from receipts unless they are given.

",
    formats_help!(),
    "\n\n",
    receipts_help!(),
    "

JSON: status (complete | wrong | undecided), error (null unless wrong), first, last, anchored_to,
blocks{all, examined, absent_by_bloom, checked_by_receipts, undecidable}, undecided[{number, why}]
(1,000 at the most), wanted[{number, hash}], logs (null unless known: the logs as of eth_getLogs),
count and digest (as the certificate binds them), certificate{profile, query, semantics, first, last,
last_hash, parent_hash}, warnings[]."
);

/// Prove the result of a certificate anew.
#[derive(Debug, Args)]
#[command(after_long_help = CERTIFICATE_HELP)]
pub(crate) struct VerifyCertificateArgs {
    /// The certificate: a file, or - for standard input
    #[arg(value_name = "CERTIFICATE")]
    pub(crate) certificate: PathBuf,
    /// The headers of the blocks, in order, up to an anchor [default: those embedded]
    #[arg(long, value_name = "HEADERS")]
    pub(crate) headers: Vec<String>,
    /// What the headers are written in
    #[arg(long, value_parser = choice(&FORMATS), default_value = "auto", hide_short_help = true)]
    pub(crate) format: HeaderFormat,
    /// Receipts of blocks: a file, a folder, an archive [default: those embedded]
    ///
    /// May be given again
    #[arg(long, value_name = "PATH")]
    pub(crate) receipts: Vec<PathBuf>,
    /// The result: logs that are to be the certificate's
    #[arg(long, value_name = "FILE")]
    pub(crate) logs: Vec<String>,
    #[command(flatten)]
    pub(crate) query: QueryArgs,
    #[command(flatten)]
    pub(crate) trust: TrustArgs,
}

/// What is taken for true without proof.
#[derive(Debug, Args)]
#[command(next_help_heading = "What you trust")]
pub(crate) struct TrustArgs {
    /// The hash of a block that you trust to be on the chain
    ///
    /// May be given again
    #[arg(long, value_name = "HASH", value_parser = hash)]
    pub(crate) anchor: Vec<B256>,
    /// The chain, by name or id: says what its headers commit to
    ///
    /// [default with --rpc: the id that the provider says]
    #[arg(long, value_name = "CHAIN")]
    pub(crate) chain: Option<String>,
    /// For another chain: what its filters are
    #[arg(
        long,
        value_name = "SOUNDNESS",
        value_parser = choice(&SOUNDNESS),
        conflicts_with = "chain",
        hide_short_help = true
    )]
    pub(crate) assume_bloom: Option<BloomSoundness>,
    /// For another chain: what its receipts are
    #[arg(
        long,
        value_name = "SCOPE",
        value_parser = choice(&SCOPES),
        requires = "assume_bloom",
        default_value = "not-every-log",
        hide_short_help = true
    )]
    pub(crate) assume_receipts: ReceiptsScope,
}

/// `--assume-bloom`.
const SOUNDNESS: [Choice<BloomSoundness>; 4] = [
    ("exact", BloomSoundness::Exact, "The bits of the block's logs and no other"),
    ("superset", BloomSoundness::Superset, "The bits of the block's logs, and perhaps others"),
    ("absent", BloomSoundness::Absent, "None, or a constant"),
    ("unsound", BloomSoundness::Unsound, "They may lack bits of a log"),
];

/// `--assume-receipts`.
const SCOPES: [Choice<ReceiptsScope>; 2] = [
    ("every-log", ReceiptsScope::EveryLog, "Every log that nodes return is in a receipt"),
    ("not-every-log", ReceiptsScope::NotEveryLog, "Nodes return logs that are in no receipt"),
];
