//! Arguments of the commands with peers: `btc sync`, `btc watch` and `btc test-node`.

use std::net::SocketAddr;
use std::path::PathBuf;

use chainsieve::bitcoin::{Network, ScriptBuf, Work};
use chainsieve_client::{Birthday, Protocol};
use chainsieve_report::args::{Choice, choice, count, network};
use chainsieve_report::calendar;
use clap::Args;

use super::cf::HeaderAt;
use super::{WatchArgs, folder};

/// The peers to connect to, and the folder of the client's state.
#[derive(Debug, Args)]
pub(crate) struct PeerArgs {
    /// The folder of headers and state, created if missing [default: a folder for each network in
    /// the platform's data folder]
    #[arg(long, value_name = "DIR", value_parser = folder)]
    pub(crate) data: Option<PathBuf>,
    /// Connect only to this peer; may be given again [default: peers from the network's DNS seeds]
    #[arg(long, value_name = "HOST[:PORT]")]
    pub(crate) peer: Vec<String>,
    /// Number of peers to connect to at the same time
    #[arg(long, value_name = "COUNT", default_value_t = 4, value_parser = count(1..=8_u8))]
    pub(crate) max_peers: u8,
    /// Seconds to wait for a response before another peer is asked
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = count(1..=3600_u32))]
    pub(crate) timeout: u32,
    /// Give up after this many seconds without progress; not used by `btc watch` without --once
    ///
    /// See the exit codes 3, 4 and 5 below
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = count(1..=86_400_u32))]
    pub(crate) give_up: u32,
    /// Minimum work of the chain in hex, as -minimumchainwork of Bitcoin Core: with less work,
    /// nothing counts as caught up [default: the work of a block some time before this version]
    #[arg(long, value_name = "HEX", value_parser = work, hide_short_help = true)]
    pub(crate) minimum_work: Option<Work>,
    /// With --network signet, the challenge of a custom signet (BIP325); needs a --peer
    #[arg(long, value_name = "HEX", value_parser = challenge, hide_short_help = true)]
    pub(crate) signet_challenge: Option<ScriptBuf>,
    /// The block time of the custom signet, as set by -signetblocktime at its nodes
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 600,
        requires = "signet_challenge",
        value_parser = count(1..=1_209_600_u32),
        hide_short_help = true
    )]
    pub(crate) signet_block_time: u32,
}

fn work(text: &str) -> Result<Work, &'static str> {
    Work::from_unprefixed_hex(text).map_err(|_| "not hex of at most 32 bytes")
}

fn challenge(text: &str) -> Result<ScriptBuf, &'static str> {
    ScriptBuf::from_hex(text).map_err(|_| "not hex")
}

/// Trusted data and blocks with which the filters of peers are compared.
#[derive(Debug, Args)]
pub(crate) struct TrustArgs {
    /// A filter header that you trust, at a multiple of 1,000: peers whose header differs from it
    /// are disconnected
    #[arg(long, value_name = "HEIGHT:HEX")]
    pub(crate) checkpoint: Vec<HeaderAt>,
    /// Fetch one random block of every COUNT blocks and audit its filter; 0 turns this off
    #[arg(long, value_name = "COUNT", default_value_t = 1_000, value_parser = count(0..=u32::MAX))]
    pub(crate) spot_audits: u32,
}

/// Parses a point in the chain: a height, or a day, which means the first second of this day in
/// UTC.
fn birthday(text: &str) -> Result<Birthday, &'static str> {
    if let Ok(height) = text.parse() {
        return Ok(Birthday::Height(height));
    }
    let day = calendar::day_start(text).map(Birthday::Time);
    day.ok_or("neither a height nor a day, YYYY-MM-DD")
}

/// Possible values of `--protocol`.
const PROTOCOLS: [Choice<Protocol>; 2] = [
    (
        "bip157",
        Protocol::Bip157,
        "Compact block filters: peers learn only which blocks are fetched",
    ),
    (
        "bip37",
        Protocol::Bip37,
        "Bloom filters: peers learn most of what is watched, and can omit transactions",
    ),
];

const SYNC_HELP: &str = "\
Headers are validated as a node validates them, and are stored in --data: after a kill, the next run
continues where the last one stopped. Filter headers and filters, from --birthday on, are then compared
between the peers. Where peers disagree, the filter is compared with the block. Filters are not stored.

Memory: 90 bytes per block for headers, and 33 bytes per block for filter state. For each peer, at most
8 MB of incoming and 8 MB of outgoing data. At most 131,072 headers of side branches are kept, and one
longer branch of at most 96 MB. Log lines are written to standard error.

Exit codes: 0 caught up, or ended with Ctrl-C: false_filters tells which peers were proven wrong
            3 gave up, and in this run a peer was proven wrong: it claimed a filter that the block
              refutes
            4 gave up: no progress for --give-up seconds, every --peer is banned for breaking the
              protocol, or no peer offers compact filters; the received data is kept
            5 no peer could be reached for --give-up seconds; or --data cannot be read or written, or
              belongs to another network";

/// Fetch headers, filter headers and filters, and compare the peers' answers.
#[derive(Debug, Args)]
#[command(after_long_help = SYNC_HELP)]
pub(crate) struct SyncArgs {
    #[command(flatten)]
    pub(crate) peers: PeerArgs,
    /// The network
    #[arg(long, value_parser = network(), default_value = "mainnet")]
    pub(crate) network: Network,
    /// Fetch block headers only, no filter headers and no filters
    #[arg(long, conflicts_with_all = ["birthday", "checkpoint", "spot_audits"])]
    pub(crate) headers_only: bool,
    /// The first block whose filter is fetched: a height, or a day (YYYY-MM-DD)
    #[arg(long, value_name = "HEIGHT|DAY", default_value = "0", value_parser = birthday)]
    pub(crate) birthday: Birthday,
    #[command(flatten)]
    pub(crate) trust: TrustArgs,
}

const WATCH_HELP: &str = "\
The kind of an item is detected from its form: an address, a public key (stands for its P2PK, P2PKH,
P2WPKH and P2SH-P2WPKH scripts), a descriptor (anything with a parenthesis), or TXID:VOUT. Other hex is
written script:HEX. Compact filters contain scripts only, so with bip157 a coin is written
outpoint:TXID:VOUT=SCRIPT, where SCRIPT is hex or an address. Files and standard input contain one item
per line; # starts a comment. Ranged descriptors are watched up to --gap-limit indices past the last
used index.

Past blocks are scanned first, from --birthday on, then new blocks are followed until Ctrl-C. With the
same items and the same --data, the next run continues where the last one stopped. Other items, or
descriptors with another --gap-limit, start over. With --from, the blocks from there to --to are scanned for
items that were not watched before. If such a scan is stopped, a run with the same items, heights and --data
continues it; once the scan has ended, such a run prints no hit again. In the summary, birthday is then the
value of --from.

A transaction in a block is printed once with \"again\" false. It is printed with \"again\" true if it may
already have been printed before the command was killed, or if it was printed before with fewer details.

Evidence: with bip157 a hit is certain, because the header commits to the block. A \"no\" is as reliable
as the grade of its filters (see `btc sync --help`). With bip37 a hit has a merkle proof, but a \"no\" is
the claim of one peer. With bip37, peers also relay unconfirmed transactions, which nothing proves: 1,000
are kept, and --once does not wait for them. A block is as reliable as the work of the headers up to it,
and the confirmations after it.

Memory: 90 bytes per block for headers, and 33 bytes per block for filter state. For each peer, at most
8 MB of incoming and 8 MB of outgoing data. At most 64 MB for blocks, in wire encoding, that wait for
earlier blocks. At most 131,072 headers of side branches are kept, and one longer branch of at most
96 MB.

Exit codes: 0 caught up with --once, or ended with Ctrl-C or SIGTERM: the hits show what was found
            3 gave up, and in this run a peer was proven wrong: it claimed a filter that the block
              refutes
            4 the chain ends before --from or --to; or gave up: with --once, no progress for --give-up
              seconds; in any mode, every --peer was banned for breaking the protocol. The received
              data is kept
            5 a malformed item; with --once, no peer could be reached; or --data cannot be read or written";

/// Watch addresses, scripts, keys and coins, in past blocks and then in new blocks.
#[derive(Debug, Args)]
#[command(after_long_help = WATCH_HELP)]
pub(crate) struct WatchLiveArgs {
    #[command(flatten)]
    pub(crate) watch: WatchArgs,
    #[command(flatten)]
    pub(crate) peers: PeerArgs,
    /// The protocol that finds relevant blocks
    #[arg(long, value_parser = choice(&PROTOCOLS), default_value = "bip157")]
    pub(crate) protocol: Protocol,
    /// For each ranged descriptor, number of indices to watch after the last used index
    #[arg(long, value_name = "COUNT", default_value_t = 20, value_parser = count(1..=10_000_u32))]
    pub(crate) gap_limit: u32,
    #[command(flatten)]
    pub(crate) trust: TrustArgs,
    /// With bip37, the false-positive rate: a higher rate hides items better, but costs more traffic
    #[arg(long, value_name = "RATE", default_value_t = 0.00001, value_parser = super::bloom::fpr)]
    pub(crate) fpr: f64,
    /// The first block to scan, before which no item was used: a height, or a day (YYYY-MM-DD)
    #[arg(long, value_name = "HEIGHT|DAY", default_value = "0", value_parser = birthday)]
    pub(crate) birthday: Birthday,
    /// End when every block that the peers have is scanned, or every block up to --to
    #[arg(long)]
    pub(crate) once: bool,
    /// Scan from this block on, for items that were not watched before: a height, or a day
    ///
    /// Unlike --birthday, this option makes no statement about earlier blocks: items may have been
    /// used there. It needs --once
    #[arg(
        long,
        value_name = "HEIGHT|DAY",
        value_parser = birthday,
        requires = "once",
        conflicts_with = "birthday"
    )]
    pub(crate) from: Option<Birthday>,
    /// With --from, the last height to scan [default: the tip]
    #[arg(long, value_name = "HEIGHT", requires = "from", value_parser = count(0..=u32::MAX))]
    pub(crate) to: Option<u32>,
}

const HELP: &str = "\
The folder contains files of blocks in any order, raw and concatenated, or hex with one block per line.
The blocks must link back to the network's genesis block, which may be absent. The branch with the most
work is served. The folder is polled: new blocks are added and announced, and a branch with more work
causes a reorganisation. A block stays in the chain when its file is deleted. Each file of the subfolder
mempool/ contains one transaction, raw or hex. A transaction is announced while its file exists and no
block contains it or a conflicting transaction.
Write each file under a name that ends with .tmp, then rename it: such files and hidden files are not
read. A truncated file is read again until it has not changed for 2 seconds.

Peers are answered as Bitcoin Core answers them: headers, blocks with and without witnesses, filterload
and filtered blocks (BIP37), mempool (BIP35), filters and filter headers (BIP157), sendheaders. The node
opens no connections, accepts no transactions or blocks from peers, and does not validate transactions.
It keeps all blocks, filters and scripts in memory, and for each peer one message in each direction.

Ctrl-C or SIGTERM ends the node, with exit code 0.";

/// Run a test node for wallets that serves a folder of blocks.
#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub(crate) struct TestNodeArgs {
    /// The folder of blocks
    #[arg(value_name = "BLOCKS_DIR")]
    pub(crate) blocks: PathBuf,
    /// The network of the blocks
    #[arg(long, value_parser = network())]
    pub(crate) network: Network,
    /// The address to listen on; port 0 picks a free port [default: 127.0.0.1, the network's port]
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) listen: Option<SocketAddr>,
    /// Allow --listen to be an address that other machines can reach
    #[arg(long, requires = "listen")]
    pub(crate) listen_anywhere: bool,
    /// Do not offer Bloom filters (BIP37)
    #[arg(long)]
    pub(crate) no_bip37: bool,
    /// Do not offer compact filters (BIP157)
    #[arg(long)]
    pub(crate) no_bip157: bool,
    /// Transactions whose outputs the blocks spend, and which are in no block of the folder: a file
    /// of hex, one transaction per line
    #[arg(long, value_name = "FILE")]
    pub(crate) prev_txs: Vec<String>,
    /// Maximum number of connected peers
    #[arg(long, value_name = "COUNT", default_value_t = 32, value_parser = count(1..=1000_u16))]
    pub(crate) max_connections: u16,
}
