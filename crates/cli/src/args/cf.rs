//! Arguments of `btc cf …`: compact block filters (BIP158).

use std::path::PathBuf;
use std::str::FromStr;

use chainsieve::bitcoin::bip158::{FilterHash, FilterHeader};
use chainsieve::bitcoin::{BlockHash, Network};
use chainsieve_report::args::{count, network};
use clap::Args;

use super::{OverwriteArgs, Range};

const BUILD_HELP: &str = "\
Blocks must be given in the order of the chain, from files, standard input (-) or the command line:
  JSON   concatenated replies of `bitcoin-cli getblock HASH 3`; or documents
         {\"block\": HEX, \"prevouts\": [{\"script_pubkey\": HEX}, …]}, prevouts in the order of the inputs
  hex    one block per line, as in replies of `bitcoin-cli getblock HASH 0`
  raw    concatenated blocks
Hex and raw blocks do not contain the scripts that they spend. Scripts of outputs that earlier blocks of
the input created are known; the others must be in --prev-txs.

Each filter is written to the file before its line is printed. If the command is stopped, these filters
are kept, and --append continues after them. The file is created when the first filter is written.";

/// Build the compact filters of blocks and the filter headers.
#[derive(Debug, Args)]
#[command(after_long_help = BUILD_HELP)]
pub(crate) struct BuildArgs {
    /// Blocks: hex, files, or - for standard input
    #[arg(value_name = "BLOCKS", required = true)]
    pub(crate) blocks: Vec<String>,
    /// Transactions whose outputs the blocks spend: a file of hex, one transaction per line
    #[arg(long, value_name = "FILE")]
    pub(crate) prev_txs: Vec<String>,
    /// The height of the first block [default: from the JSON, 0 for a genesis block, or from the
    /// coinbase (BIP34)]
    #[arg(long, value_name = "HEIGHT", value_parser = count(0..=u32::MAX))]
    pub(crate) height: Option<u32>,
    /// The filter header of the block before the first block, from a node's getblockfilter
    #[arg(long, value_name = "HEX")]
    pub(crate) previous_header: Option<FilterHeader>,
    /// The network of the blocks
    #[arg(long, value_parser = network(), default_value = "mainnet")]
    pub(crate) network: Network,
    /// Write the filters to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) out: Option<PathBuf>,
    /// Continue after the last filter of the file; an incomplete last filter is replaced
    #[arg(long, requires = "out", conflicts_with_all = ["height", "previous_header"])]
    pub(crate) append: bool,
}

const SCAN_HELP: &str = "\
The kind of an item is detected from its form: an address, a public key (stands for its P2PK, P2PKH,
P2WPKH and P2SH-P2WPKH scripts), or a descriptor (anything with a parenthesis). Other hex is written
script:HEX. Files and standard input contain one item per line; # starts a comment.

A hit means that the block may contain the script: in each filter, one script in 784,931 is a hit by
chance. A block whose filter cannot be decoded is a candidate too. Filter headers are recomputed from
the first filter of the file on. --header compares them with filter headers that you trust, and
--block-headers compares the block hashes with headers that you trust. Without both, a \"no\" is only as
reliable as the source of the file.

The gap limit is a rule about indices, as in BIP44: a script that a hit adds may be in a block before that
hit. With --gap-limit, the filters are therefore read again for the added scripts only, until no pass adds
any. The hits of a later pass come after those of the pass before. A pipe cannot be read again: the exit
code is then 4, and the report has the indices and the heights that were not searched.

Exit codes: 0 something was found
            1 nothing was found
            3 a filter header differs from a --header that you trust
            4 a --header is given for a height that the file does not contain, or the filters came through
              a pipe and some were not searched for scripts that --gap-limit added
            5 a file is damaged: the filters before the damage were searched; the report has their heights";

/// Search the filters of many blocks for scripts.
#[derive(Debug, Args)]
#[command(after_long_help = SCAN_HELP)]
pub(crate) struct ScanArgs {
    /// A file of filters as `btc cf build` writes it, or a folder of them
    #[arg(value_name = "FILTERS")]
    pub(crate) filters: PathBuf,
    #[command(flatten)]
    pub(crate) watch: WatchArgs,
    /// The first height to search: no script was used before it
    #[arg(long, value_name = "HEIGHT", value_parser = count(0..=u32::MAX))]
    pub(crate) birthday: Option<u32>,
    /// The last height to search
    #[arg(long, value_name = "HEIGHT", value_parser = count(0..=u32::MAX))]
    pub(crate) to: Option<u32>,
    /// For each ranged descriptor, number of indices to search after the last index that was found;
    /// at least this number of indices is searched in total
    #[arg(long, value_name = "COUNT", value_parser = count(1..=100_000_u32))]
    pub(crate) gap_limit: Option<u32>,
    /// A filter header that you trust
    #[arg(long, value_name = "HEIGHT:HEX")]
    pub(crate) header: Vec<HeaderAt>,
    #[command(flatten)]
    pub(crate) blocks: BlockHeadersArgs,
    /// Number of threads [default: one per core]
    #[arg(long, value_name = "COUNT", value_parser = count(1..=1024_u16))]
    pub(crate) threads: Option<u16>,
}

/// The items to search for.
#[derive(Debug, Args)]
pub(crate) struct WatchArgs {
    /// Items to search for; their kinds are detected; - reads standard input
    #[arg(value_name = "ITEM")]
    pub(crate) items: Vec<String>,
    /// A file of items, one per line
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Vec<PathBuf>,
    /// The indices of ranged descriptors: a single index, or FIRST-LAST
    #[arg(long, value_name = "RANGE", default_value = "0-99")]
    pub(crate) range: Range,
    /// The network of the addresses and filters
    #[arg(long, value_parser = network(), default_value = "mainnet")]
    pub(crate) network: Network,
}

const AUDIT_HELP: &str = "\
The block is first verified against its hash: proof of work, a single coinbase, merkle root, no
duplicate transaction, and the witness commitment. Then the filter is compared with the block.

Exit codes: 0 valid: the filter contains every script that the block creates and spends, and no other
            3 invalid: with a proof, unless the verdict relies on spent scripts that you gave
            4 not decided: suspicious, or scripts that the block spends are unknown
            5 malformed input, or a block that does not match its header

With --proof, a proof that --proof-out wrote is verified. Exit code 0 then means that the proof holds, so
the filter is invalid, and 3 that it does not hold. Anyone can make an invalid filter and prove that it is
invalid: give the hash of the filter in question with --filter-hash, so that a proof about another filter is
rejected.";

/// Compare a filter with its block: valid, invalid, or not decided; or verify the proof of an invalid
/// filter.
#[derive(Debug, Args)]
#[command(after_long_help = AUDIT_HELP)]
pub(crate) struct AuditArgs {
    /// The filter: hex, a reply of `bitcoin-cli getblockfilter HASH`, a file of filters as `btc cf
    /// build` writes it, or - for standard input
    #[arg(value_name = "FILTER", required_unless_present = "proof")]
    pub(crate) filter: Option<String>,
    /// The block: JSON, hex or raw as `btc cf build` accepts it, or - for standard input
    #[arg(value_name = "BLOCK", required_unless_present = "proof")]
    pub(crate) block: Option<String>,
    /// Instead of a filter and its block, a proof to verify: hex, a file, or - for standard input
    #[arg(long, value_name = "PROOF", conflicts_with = "filter")]
    pub(crate) proof: Option<String>,
    /// Transactions whose outputs the block spends: a file of hex, one transaction per line. Their
    /// ids are verified, so the verdict also convinces others
    #[arg(long, value_name = "FILE", requires = "block")]
    pub(crate) prev_txs: Vec<String>,
    /// Ignore the spent scripts in a JSON block, because the block does not prove them
    #[arg(long, requires = "block")]
    pub(crate) distrust_prevouts: bool,
    /// If the filter is invalid, write the proof of that to this file
    #[arg(long, value_name = "FILE", requires = "block")]
    pub(crate) proof_out: Option<PathBuf>,
    /// Of a proof: the hash of the block in your chain of headers
    #[arg(long, value_name = "HASH", requires = "proof")]
    pub(crate) block_hash: Option<BlockHash>,
    /// Of a proof: the hash of the filter that a peer claims for the block
    #[arg(long, value_name = "HASH", requires = "proof")]
    pub(crate) filter_hash: Option<FilterHash>,
    /// The network of the block
    #[arg(long, value_parser = network(), default_value = "mainnet")]
    pub(crate) network: Network,
    #[command(flatten)]
    pub(crate) overwrite: OverwriteArgs,
}

/// Trusted block headers, with which the block hashes of filters are compared.
#[derive(Debug, Args)]
pub(crate) struct BlockHeadersArgs {
    /// Block headers that you trust, for every height in question: a file of 80 raw bytes per
    /// header, or of hex, one header per line. Filters of other blocks are rejected
    #[arg(long, value_name = "FILE")]
    pub(crate) block_headers: Option<PathBuf>,
    /// The height of the first header of --block-headers
    #[arg(long, value_name = "HEIGHT", default_value_t = 0, requires = "block_headers", value_parser = count(0..=u32::MAX))]
    pub(crate) block_headers_from: u32,
}

const VERIFY_HEADERS_HELP: &str = "\
Each filter header is computed from the hash of its filter and the previous filter header. --headers
compares the computed filter headers with a list, --header with single ones. The first difference is
printed.

Exit codes: 0 no difference
            3 a filter header differs from a given one
            4 filter headers are given for heights that the file does not contain
            5 the file is damaged";

/// Recompute the filter headers of a file of filters and compare them.
#[derive(Debug, Args)]
#[command(after_long_help = VERIFY_HEADERS_HELP)]
pub(crate) struct VerifyHeadersArgs {
    /// A file of filters as `btc cf build` writes it, or a folder of them
    #[arg(value_name = "FILTERS")]
    pub(crate) filters: PathBuf,
    /// Filter headers to compare with: a file of hex, one header per line, or of 32 raw bytes per
    /// header in wire order
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
        let (height, header) = text.split_once(':').ok_or("not of the form HEIGHT:HEX")?;
        Ok(Self {
            height: height
                .parse()
                .map_err(|_| "the height is not a number from 0 to 4294967295")?,
            header: header.parse().map_err(|_| "the header is not 64 digits of hex")?,
        })
    }
}
