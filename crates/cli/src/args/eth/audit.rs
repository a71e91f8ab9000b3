//! Arguments of `eth audit` and `eth verify-certificate`, and arguments for what the user trusts.

use std::path::PathBuf;

use anyhow::{Context as _, anyhow, bail};
use chainsieve::alloy_primitives::B256;
use chainsieve::eth::chain_profile::{BloomSoundness, ChainProfile, ReceiptsScope};
use chainsieve_report::args::{SCOPES, SOUNDNESS, Secret, choice, count};
use chainsieve_report::{Exit, UsageError};
use clap::Args;

use super::anchor::{BeaconArgs, beacon_help, needs_rpc};
use super::scan::{FORMATS, HeaderFormat, formats_help};
use crate::args::OverwriteArgs;
use crate::eth::RpcArgs;
use crate::eth::query::{QueryArgs, hash};

/// Help text about the exit codes of an audit.
macro_rules! exit_help {
    () => {
        "\
Exit codes: 0 complete: proven to be exactly the logs of these blocks that match the query
            3 wrong: proven that a log is omitted, forged, altered, duplicate, or does not match the query
            4 not decided: for some blocks the evidence is missing; they are printed with the reasons
            5 malformed input, an I/O error, or an unreachable provider"
    };
}
macro_rules! receipts_help {
    () => {
        "\
All receipts of a block are needed: a part of them proves nothing. Sources: files of one block in RLP (as in
eth/68, or the slim form of eth/69); replies of eth_getBlockReceipts, debug_getRawReceipts, or
eth_getTransactionReceipt for each transaction; era1 and ere archives; folders, from which archives and
files with \"receipts\" in their name are read. Receipts need no trusted source: the receipts root in the
header proves whether receipts belong to the block."
    };
}

const AUDIT_HELP: &str = concat!(
    exit_help!(),
    "\n\n",
    formats_help!(),
    "\n\n",
    receipts_help!(),
    "

A trusted hash authenticates its block and all earlier blocks. Therefore pass with --anchor the hash of the
last block of the range or of a later block (finalised, from your own node or a light client), and give the
headers up to that block. You also vouch for the chain's profile: headers do not contain the chain id, and do
not show whether their filters are sound. The verdict is about these logs, not about their sender: replies are
not signed.

With --rpc, logs, headers and receipts are fetched. The range starts at --from and ends at the finalised
block: --to selects an earlier end, --unfinalized allows a later end. Logs of blocks up to the finalised
block are requested by number, in as many calls of eth_getLogs as the provider needs; logs of later blocks
are requested block by block, by hash. Headers are requested with debug_getRawHeader if the node serves it,
otherwise as JSON that must hash to the block hash. Receipts are requested with eth_getBlockReceipts or
another method that the node serves. The chain id is the provider's claim, unless you give --chain or
--assume-bloom. Without --anchor, the hash of the last block is the provider's claim too: the verdict, exit
code 0 included, is then valid only if that block is on the chain, and a warning says so.

With --rpc and --logs, the provider is not asked for logs: the answer in the files is audited against the
headers and receipts of the provider.

",
    beacon_help!(),
    "

With --rpc given twice, each answer is audited over the same chain, and the answers are compared. Headers
and receipts are taken from whichever provider has authentic ones. Exit code 3 means that at least one
answer is wrong. Exit code 4 means that the providers are on different chains and no --anchor decides
between them. Exit code 5 means that a provider cannot be reached. Blocks whose receipts cannot be fetched
are undecided, and all other blocks are reported. If no receipts of any block can be fetched, the exit code is 5,
unless an answer is proven wrong. URLs and HTTP headers are secrets: only the host is ever shown."
);

/// Prove whether an answer of eth_getLogs is complete and correct.
#[derive(Debug, Args)]
#[command(
    after_long_help = AUDIT_HELP,
    mut_args(needs_rpc)
)]
pub(crate) struct AuditArgs {
    /// The headers of the blocks, in order, up to an anchor: files, - for standard input, or hex
    #[arg(value_name = "HEADERS", required_unless_present = "rpc", conflicts_with = "rpc")]
    pub(crate) headers: Vec<String>,
    /// The format of the headers
    #[arg(
        long,
        value_parser = choice(&FORMATS),
        default_value = "auto",
        conflicts_with = "rpc",
        hide_short_help = true
    )]
    pub(crate) format: HeaderFormat,
    /// The answer: replies of eth_getLogs, lists of logs, or one log per line
    ///
    /// May be given again. [default with --rpc: each provider is asked]
    #[arg(long, value_name = "FILE", required_unless_present = "rpc")]
    pub(crate) logs: Vec<String>,
    /// Receipts of blocks: a file, a folder or an archive
    ///
    /// May be given again
    #[arg(long, value_name = "PATH")]
    pub(crate) receipts: Vec<PathBuf>,
    /// era1 or ere archives with the transactions, to prove the transaction hashes in the answer
    #[arg(long, value_name = "FILE", hide_short_help = true)]
    pub(crate) transactions: Vec<PathBuf>,
    /// Write a certificate, which others can verify, to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) certificate: Option<PathBuf>,
    /// Put headers and receipts into the certificate
    ///
    /// The certificate can then be verified without other files
    #[arg(long, requires = "certificate")]
    pub(crate) embed: bool,
    /// Write the blocks whose receipts are missing to this file: number and hash, one block per
    /// line
    #[arg(long, value_name = "FILE")]
    pub(crate) wanted: Option<PathBuf>,
    // These arguments come before the groups, because the heading of a group applies to all
    // arguments after the heading.
    #[command(flatten)]
    pub(crate) overwrite: OverwriteArgs,
    #[command(flatten)]
    pub(crate) query: QueryArgs,
    #[command(flatten)]
    pub(crate) trust: TrustArgs,
    #[command(flatten)]
    pub(crate) beacon: BeaconArgs,
    #[command(flatten)]
    pub(crate) rpc: RpcArgs,
    #[command(flatten)]
    pub(crate) asking: AskingArgs,
}

/// Arguments that limit what an audit fetches from providers.
#[derive(Debug, Args)]
#[command(next_help_heading = "The provider")]
pub(crate) struct AskingArgs {
    /// An HTTP header for the second provider; --rpc-header is for the first
    #[arg(long, value_name = "HEADER", requires = "rpc", hide_short_help = true)]
    pub(crate) rpc2_header: Vec<Secret>,
    /// Include blocks after the finalised block, which a reorganisation may still remove
    #[arg(long, requires = "rpc")]
    pub(crate) unfinalized: bool,
    /// Maximum number of blocks whose receipts are fetched
    #[arg(
        long,
        value_name = "BLOCKS",
        default_value_t = 1_000,
        value_parser = count(0..=u64::MAX),
        hide_short_help = true
    )]
    pub(crate) max_receipts: u64,
    /// Maximum number of headers that are fetched, up to the anchor
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
Exit codes: 0 complete: the result that the certificate commits to is proven
            3 wrong: the certificate is of another query, or headers, receipts or the given logs
              contradict it
            4 not decided: for some blocks the evidence is missing; they are printed with the reasons
            5 malformed input, or an I/O error

The whole result is proven again. Anchor, chain, query and blocks must be given by you; they are never
taken from the certificate. Give the blocks as --from and --to, or as numbers in --query. Headers and
receipts may be embedded in the certificate, or come from anyone. The logs are derived from the receipts
unless they are given.

",
    formats_help!(),
    "\n\n",
    receipts_help!()
);

/// The long help of `--chain` for a command that asks no provider.
const CHAIN: &str = "The chain, by name or id, which defines what its headers commit to";

/// Verify a certificate that `eth audit` wrote.
#[derive(Debug, Args)]
#[command(
    after_long_help = CERTIFICATE_HELP,
    mut_arg("from", |from| from.long_help("The first block of the range [default: fromBlock of --query]")),
    mut_arg("to", |to| to.long_help("The last block of the range [default: toBlock of --query]")),
    mut_arg("chain", |chain| chain.long_help(CHAIN)),
)]
pub(crate) struct VerifyCertificateArgs {
    /// The certificate: a file, or - for standard input
    #[arg(value_name = "CERTIFICATE")]
    pub(crate) certificate: PathBuf,
    /// The headers of the blocks, in order, up to an anchor [default: the embedded headers]
    #[arg(long, value_name = "HEADERS")]
    pub(crate) headers: Vec<String>,
    /// The format of the headers
    #[arg(long, value_parser = choice(&FORMATS), default_value = "auto", hide_short_help = true)]
    pub(crate) format: HeaderFormat,
    /// Receipts of blocks: a file, a folder, an archive [default: the embedded receipts]
    ///
    /// May be given again
    #[arg(long, value_name = "PATH")]
    pub(crate) receipts: Vec<PathBuf>,
    /// The logs to compare with the result that the certificate commits to
    #[arg(long, value_name = "FILE")]
    pub(crate) logs: Vec<String>,
    #[command(flatten)]
    pub(crate) query: QueryArgs,
    #[command(flatten)]
    pub(crate) trust: TrustArgs,
}

/// Facts that the user vouches for, without proof.
#[derive(Debug, Args)]
#[command(next_help_heading = "What you trust")]
pub(crate) struct TrustArgs {
    /// The hash of a block that you trust to be on the chain
    ///
    /// May be given again
    #[arg(long, value_name = "HASH", value_parser = hash)]
    pub(crate) anchor: Vec<B256>,
    /// The chain, by name or id, which defines what its headers commit to
    ///
    /// [default with --rpc: the chain id that the provider returns]
    #[arg(long, value_name = "CHAIN")]
    pub(crate) chain: Option<String>,
    /// For a chain that --chain does not know: what its filters prove
    #[arg(
        long,
        value_name = "SOUNDNESS",
        value_parser = choice(&SOUNDNESS),
        conflicts_with = "chain",
        hide_short_help = true
    )]
    pub(crate) assume_bloom: Option<BloomSoundness>,
    /// For a chain that --chain does not know: whether its receipts contain every log
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

impl TrustArgs {
    /// Returns the profile of `--chain` or `--assume-bloom`, one of which must be given.
    pub(crate) fn profile(&self) -> anyhow::Result<ChainProfile> {
        let given = self.given_profile()?;
        given.ok_or_else(|| UsageError("--chain or --assume-bloom is missing: see --help").into())
    }

    /// Returns the profile of `--chain` or `--assume-bloom`; `None` if neither is given.
    pub(crate) fn given_profile(&self) -> anyhow::Result<Option<ChainProfile>> {
        let Some(chain) = &self.chain else {
            let assumed = |bloom| ChainProfile::assumed("assumed", bloom, self.assume_receipts);
            return Ok(self.assume_bloom.map(assumed));
        };
        let found = match chain.parse() {
            Ok(id) => ChainProfile::of_chain_id(id),
            Err(_) if chain == "mainnet" => Some(ChainProfile::ethereum()),
            Err(_) => ChainProfile::by_name(chain),
        };
        found.map(Some).ok_or_else(|| {
            let names: Vec<_> =
                ChainProfile::known().map(|profile| profile.name().to_owned()).collect();
            Exit::Usage.error(anyhow!(
                "--chain {chain}: this chain is unknown. Known chains, by name or chain id: {}. For \
                 another chain, give --assume-bloom and --assume-receipts",
                names.join(", ")
            ))
        })
    }

    /// Returns the profile for the chain id that a provider returns. A profile that the user gives
    /// takes precedence, but the chain of `--chain` must have the provider's chain id.
    pub(crate) fn profile_of(&self, chain_id: u64) -> anyhow::Result<ChainProfile> {
        let known = ChainProfile::of_chain_id(chain_id);
        let Some(given) = self.given_profile()? else {
            return known.with_context(|| {
                format!(
                    "the provider's chain has id {chain_id}, which is unknown to this command: give \
                     --assume-bloom and --assume-receipts (for unmodified geth nodes: exact, every-log)"
                )
            });
        };
        if self.chain.is_some() && known.as_ref() != Some(&given) {
            let name = known.map_or_else(String::new, |known| format!(", {}", known.name()));
            bail!(
                "--chain {}: the provider serves another chain, with id {chain_id}{name}",
                given.name()
            );
        }
        Ok(given)
    }

    /// Returns `true` if the user names the chain, or states its properties.
    pub(crate) fn names_chain(&self) -> bool {
        self.chain.is_some() || self.assume_bloom.is_some()
    }
}
