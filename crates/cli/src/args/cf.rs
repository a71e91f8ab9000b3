//! `btc cf …` of compact filters, BIP158.

use std::path::PathBuf;
use std::str::FromStr;

use chainsieve::bitcoin::bip158::{FilterHash, FilterHeader};
use chainsieve::bitcoin::{BlockHash, Network};
use clap::Args;

use super::{Range, network};
use crate::args::OverwriteArgs;
use crate::args::number::count;

const BUILD_HELP: &str = "\
Blocks come in the order of the chain, from files, standard input (-) or the command line:
  JSON   what `bitcoin-cli getblock HASH 3` answers, one document behind the other; or
         {\"block\": HEX, \"prevouts\": [{\"script_pubkey\": HEX}, …]}, in the order of the inputs
  hex    one block on each line, as `bitcoin-cli getblock HASH 0` answers
  raw    blocks one behind the other
Hex and raw blocks do not say which scripts they spend: those of outputs that blocks before them
created are known, others come from --prev-txs.

A filter is in the file when its line is printed: what stops the command loses none of these, and
--append goes on. The file is made with the first filter.

JSON: lines, told apart by kind:
  filter   height, hash, elements, bytes, filter, filter_hash, filter_header (null if that of the
           block before is not known): of each block
  summary  blocks, first, last, bytes, filter_header, out, warnings[]: the last line";

/// Build the filters of blocks and the headers over them.
#[derive(Debug, Args)]
#[command(after_long_help = BUILD_HELP)]
pub(crate) struct BuildArgs {
    /// Blocks: hex, files, or - for standard input
    #[arg(value_name = "BLOCKS", required = true)]
    pub(crate) blocks: Vec<String>,
    /// Transactions whose outputs the blocks spend: a file of hex, one on each line
    #[arg(long, value_name = "FILE")]
    pub(crate) prev_txs: Vec<String>,
    /// The height of the first block [default: that of the JSON, 0 for a genesis block, or the height in
    /// the coinbase (BIP34)]
    #[arg(long, value_name = "HEIGHT", value_parser = count(0..=u32::MAX))]
    pub(crate) height: Option<u32>,
    /// The filter header of the block before the first, as a node's getblockfilter gives it
    #[arg(long, value_name = "HEX")]
    pub(crate) previous_header: Option<FilterHeader>,
    /// The chain of the blocks
    #[arg(long, value_parser = network(), default_value = "mainnet")]
    pub(crate) network: Network,
    /// Write the filters to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Go on behind the last filter of the file; one that was not written whole is replaced
    #[arg(long, requires = "out", conflicts_with_all = ["height", "previous_header"])]
    pub(crate) append: bool,
}

const SCAN_HELP: &str = "\
Items are told apart by their form: an address, a public key (stands for its P2PK, P2PKH, P2WPKH and
P2SH-P2WPKH scripts), a descriptor (anything with a parenthesis); other hex is written script:HEX.
Files and standard input hold one item per line; # starts a comment.

A hit means that the block may concern the script: one script in 784,931 is a hit by chance in each
filter. A block whose filter cannot be read is a candidate too. The headers over the filters are recomputed from the file's first on, and with
--header compared to ones that you trust, and the blocks with --block-headers; otherwise a \"no\" is
as good as the file's source.

Exit codes: 0 something was found
            1 nothing was found
            3 a filter header differs from a --header that you trust
            4 a --header is given for a height that the file does not have
            5 a file is damaged: the filters before the damage were matched, and the report has their heights

JSON: lines, told apart by kind:
  hit        height, hash, scripts[{item, path (of a descriptor's <0;1>), index, script}]
  candidate  height, hash, why: a block whose filter cannot be read
  summary    filters, first, last, bytes, hits, scripts, expected_by_chance (scripts found in a
             filter), filter_header, compared_to, seconds, damage (null: none), warnings[]: the
             last line";

/// Look for scripts in the filters of many blocks.
#[derive(Debug, Args)]
#[command(after_long_help = SCAN_HELP)]
pub(crate) struct ScanArgs {
    /// A file of filters as `btc cf build` writes it, or a folder of them
    #[arg(value_name = "FILTERS")]
    pub(crate) filters: PathBuf,
    #[command(flatten)]
    pub(crate) watch: WatchArgs,
    /// Start at this height, before which no script was used
    #[arg(long, value_name = "HEIGHT", value_parser = count(0..=u32::MAX))]
    pub(crate) birthday: Option<u32>,
    /// End with this height
    #[arg(long, value_name = "HEIGHT", value_parser = count(0..=u32::MAX))]
    pub(crate) to: Option<u32>,
    /// Look this many indices past the last one found of each ranged descriptor, and at least at
    /// this many
    #[arg(long, value_name = "COUNT", value_parser = count(1..=100_000_u32))]
    pub(crate) gap_limit: Option<u32>,
    /// A filter header that you trust
    #[arg(long, value_name = "HEIGHT:HEX")]
    pub(crate) header: Vec<HeaderAt>,
    #[command(flatten)]
    pub(crate) blocks: BlockHeadersArgs,
    /// Threads [default: one for each core]
    #[arg(long, value_name = "COUNT", value_parser = count(1..=1024_u16))]
    pub(crate) threads: Option<u16>,
}

/// What to look for.
#[derive(Debug, Args)]
pub(crate) struct WatchArgs {
    /// What to look for, the kind detected; - reads standard input
    #[arg(value_name = "ITEM")]
    pub(crate) items: Vec<String>,
    /// A file of items, one per line
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Vec<PathBuf>,
    /// The indices of ranged descriptors: one, or FIRST-LAST
    #[arg(long, value_name = "RANGE", default_value = "0-99")]
    pub(crate) range: Range,
    /// The chain of addresses and filters
    #[arg(long, value_parser = network(), default_value = "mainnet")]
    pub(crate) network: Network,
}

const AUDIT_HELP: &str = "\
The block is first bound to its hash: proof of work, one coinbase, merkle root, no transaction twice,
and the witness commitment. Then the filter is compared with what the block shows.

Exit codes: 0 valid: every script that the block creates and spends, and no other
            3 invalid, and proven so
            4 not decided: suspicious, or scripts that the block spends are not known
            5 malformed input, or a block that does not match its header

JSON: verdict, block_hash, filter_hash, elements, and by verdict basis (transactions | trusted),
proof{evidence, bytes, out}, reason, missing_txids[] (which --prev-txs takes); warnings[]";

/// Compare a filter with its block: valid, proven wrong, or not to be decided.
#[derive(Debug, Args)]
#[command(after_long_help = AUDIT_HELP)]
pub(crate) struct AuditArgs {
    /// The filter: hex, what `bitcoin-cli getblockfilter HASH` answers, a file of filters as `filter
    /// build` writes it, or - for standard input
    #[arg(value_name = "FILTER")]
    pub(crate) filter: String,
    /// The block: JSON, hex or raw as `btc cf build` takes it, or - for standard input
    #[arg(value_name = "BLOCK")]
    pub(crate) block: String,
    /// Transactions whose outputs the block spends: a file of hex, one on each line. Their ids are
    /// checked, so that a verdict convinces others too
    #[arg(long, value_name = "FILE")]
    pub(crate) prev_txs: Vec<String>,
    /// Don't look at the spent scripts that a JSON block says: nothing in it proves them
    #[arg(long)]
    pub(crate) distrust_prevouts: bool,
    /// Write the proof that the filter is invalid to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) proof_out: Option<PathBuf>,
    /// The chain of the block
    #[arg(long, value_parser = network(), default_value = "mainnet")]
    pub(crate) network: Network,
    #[command(flatten)]
    pub(crate) overwrite: OverwriteArgs,
}

const VERIFY_PROOF_HELP: &str = "\
Exit codes: 0 the proof holds, so the filter is invalid · 3 the proof does not hold · 5 malformed proof.
Anyone can prove that a filter of their own making is invalid: --filter-hash says
whose it should be.

JSON: holds, block_hash, filter_hash, reason, warnings[]";

/// Verify what `btc cf audit --proof-out` wrote, without the block.
#[derive(Debug, Args)]
#[command(after_long_help = VERIFY_PROOF_HELP)]
pub(crate) struct VerifyProofArgs {
    /// The proof: hex, a file, or - for standard input
    #[arg(value_name = "PROOF")]
    pub(crate) proof: String,
    /// The hash of the block in your chain of headers
    #[arg(long, value_name = "HASH")]
    pub(crate) block_hash: Option<BlockHash>,
    /// The hash of the filter that somebody claims to be the block's: a proof of another one says
    /// nothing of it
    #[arg(long, value_name = "HASH")]
    pub(crate) filter_hash: Option<FilterHash>,
    /// The chain of the block
    #[arg(long, value_parser = network(), default_value = "mainnet")]
    pub(crate) network: Network,
}

/// The blocks of filters.
#[derive(Debug, Args)]
pub(crate) struct BlockHeadersArgs {
    /// Block headers that you trust, of all heights that are asked: a file of 80 raw bytes each, or of
    /// hex, one on each line. Filters of other blocks are refused
    #[arg(long, value_name = "FILE")]
    pub(crate) block_headers: Option<PathBuf>,
    /// The height of the first of --block-headers
    #[arg(long, value_name = "HEIGHT", default_value_t = 0, requires = "block_headers", value_parser = count(0..=u32::MAX))]
    pub(crate) block_headers_from: u32,
}

const VERIFY_HEADERS_HELP: &str = "\
Each filter is hashed, and each header is computed from it and the header before. With --headers they
are compared to a list, with --header to single ones; the first that differs is named.

Exit codes: 0 no difference
            3 a filter header differs from one given
            4 filter headers are given for heights that the file does not have
            5 the file is damaged

JSON: filters, first, last, last_hash, filter_header, compared, mismatch{height, computed, given}, damage,
warnings[]";

/// Recompute the filter headers over a file of filters and compare them.
#[derive(Debug, Args)]
#[command(after_long_help = VERIFY_HEADERS_HELP)]
pub(crate) struct VerifyHeadersArgs {
    /// A file of filters as `btc cf build` writes it, or a folder of them
    #[arg(value_name = "FILTERS")]
    pub(crate) filters: PathBuf,
    /// Filter headers from elsewhere: a file of hex, one on each line, or of 32 raw bytes each in
    /// wire order
    #[arg(long, value_name = "FILE")]
    pub(crate) headers: Option<PathBuf>,
    /// The height of the first header of --headers
    #[arg(long, value_name = "HEIGHT", default_value_t = 0, requires = "headers", value_parser = count(0..=u32::MAX))]
    pub(crate) headers_from: u32,
    /// A filter header that you trust
    #[arg(long, value_name = "HEIGHT:HEX")]
    pub(crate) header: Vec<HeaderAt>,
    #[command(flatten)]
    pub(crate) blocks: BlockHeadersArgs,
}

/// A filter header and its height, written `HEIGHT:HEX`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HeaderAt {
    pub(crate) height: u32,
    pub(crate) header: FilterHeader,
}

impl FromStr for HeaderAt {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (height, header) = text.split_once(':').ok_or("not HEIGHT:HEX")?;
        Ok(Self {
            height: height.parse().map_err(|_| "the height is no number from 0 to 4294967295")?,
            header: header.parse().map_err(|_| "the header is not 64 digits of hex")?,
        })
    }
}
