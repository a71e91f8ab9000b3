//! `btc sync`, `btc watch`, `btc rescan`: a light client of Bitcoin's peers.

use std::path::PathBuf;

use chainsieve::bitcoin::Network;
use chainsieve_client::{Birthday, Protocol};
use clap::Args;

use super::cf::HeaderAt;
use super::{Choice, WatchArgs, choice, network};
use crate::args::number::count;
use crate::calendar;

/// Peers, and where the state is kept.
#[derive(Debug, Args)]
pub(crate) struct PeerArgs {
    /// The folder of headers and state, created if missing [default: the platform's folder for data, with
    /// a folder for each network]
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Option<PathBuf>,
    /// A peer to connect to, and to no others [default: those of the network's DNS seeds]
    #[arg(long, value_name = "HOST[:PORT]")]
    pub(crate) peer: Vec<String>,
    /// As many peers at a time
    #[arg(long, value_name = "COUNT", default_value_t = 4, value_parser = count(1..=8_u8))]
    pub(crate) max_peers: u8,
    /// Seconds that a response may take before another peer is asked
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = count(1..=3600_u32))]
    pub(crate) timeout: u32,
    /// Where the command is to end by itself: end after as long without any progress, with exit code 4
    #[arg(long, value_name = "SECONDS", default_value_t = 300, value_parser = count(1..=86_400_u32))]
    pub(crate) give_up: u32,
}

/// What filters are held against.
#[derive(Debug, Args)]
pub(crate) struct TrustArgs {
    /// A filter header that you trust, at a multiple of 1,000: who differs is disconnected
    #[arg(long, value_name = "HEIGHT:HEX")]
    pub(crate) checkpoint: Vec<HeaderAt>,
    /// Of so many blocks, fetch one at random and audit its filter; 0 for none
    #[arg(long, value_name = "COUNT", default_value_t = 1_000, value_parser = count(0..=u32::MAX))]
    pub(crate) spot_audits: u32,
}

/// A point in the chain: a height, or the second at which a day begins.
fn birthday(text: &str) -> Result<Birthday, &'static str> {
    if let Ok(height) = text.parse() {
        return Ok(Birthday::Height(height));
    }
    let day = calendar::day_start(text).map(Birthday::Time);
    day.ok_or("neither a height nor a day, YYYY-MM-DD")
}

/// `--protocol`.
const PROTOCOLS: [Choice<Protocol>; 2] = [
    (
        "bip157",
        Protocol::Bip157,
        "Compact block filters: peers learn only which blocks are fetched",
    ),
    (
        "bip37",
        Protocol::Bip37,
        "Bloom filters: peers learn most of what is watched, and can leave out what they like",
    ),
];

const SYNC_HELP: &str = "\
Headers are checked as a node checks them, and kept in --data: a command that is killed goes on
where it stopped. Filter headers and filters are then compared between the peers, from --birthday on;
where they differ, the block decides. The filters are not kept.

Memory: headers take 90 bytes for each block, and what is known of its filter 33; each peer has at most
8 MB under way in and 64 messages of at most 36 kB out; a branch of headers that has no room on the side
has 96 MB. Log lines go to standard error.

Exit codes: 0 caught up, or ended with Ctrl-C
            4 gave up: no progress for --give-up seconds; what came is kept
            5 no peer could be reached, or --data cannot be read or written, or is of another network

JSON: ended (caught_up | interrupted | gave_up), network, tip{height, block, time}, work (hex),
headers_only, from, answered_to (null: nothing), grades[{from, to, grade, peers}], disputes[text],
peers[{address, agent, height, services[], state}], warnings[]
Grades: scanned (the block itself was looked at) > audited (equals the filter built from the block)
> checkpoint (a --checkpoint commits to it) > peers (so many agree) > one_peer";

/// Fetch headers, filter headers and filters, and compare what the peers say.
#[derive(Debug, Args)]
#[command(after_long_help = SYNC_HELP)]
pub(crate) struct SyncArgs {
    #[command(flatten)]
    pub(crate) peers: PeerArgs,
    /// The chain
    #[arg(long, value_parser = network(), default_value = "mainnet")]
    pub(crate) network: Network,
    /// Block headers, and nothing about filters
    #[arg(long, conflicts_with_all = ["birthday", "checkpoint", "spot_audits"])]
    pub(crate) headers_only: bool,
    /// The first height whose filter is wanted, or a day
    #[arg(long, value_name = "HEIGHT|DAY", default_value = "0", value_parser = birthday)]
    pub(crate) birthday: Birthday,
    #[command(flatten)]
    pub(crate) trust: TrustArgs,
}

const WATCH_HELP: &str = "\
Items are told apart by their form: an address, a public key (stands for its P2PK, P2PKH, P2WPKH and
P2SH-P2WPKH scripts), a descriptor (anything with a parenthesis), TXID:VOUT; other hex is written
script:HEX. Compact filters hold scripts only, so that a coin is written outpoint:TXID:VOUT=SCRIPT,
where SCRIPT is hex or an address. Files and standard input hold one item per line; # starts a
comment. Ranged descriptors go on --gap-limit indices past the last one used.

The past comes first, from --birthday on, and then what is new, until Ctrl-C. The same items with
the same --data go on where they stopped; others start over, and so do descriptors with another --gap-limit. A
transaction in a block comes once with \"again\" false; it comes with \"again\" true where it may have been
printed before the command was killed, or was printed with less of it.

Evidence: with bip157 a hit is certain, as its block is bound to its header, and a \"no\" is worth the
grade of its filters (see `btc sync --help`). With bip37 a hit has a merkle proof, and a \"no\" is one
peer's word; transactions that are in no block yet are relayed too, which nothing vouches for: 1,000 are
kept, and --once does not wait for them. A block is worth the work of the headers up to it and the
confirmations above it.

Memory: headers take 90 bytes for each block, and what is known of its filter 33; each peer has at most
8 MB under way in and 64 messages of at most 36 kB out; blocks that wait for those before them have 64 MB
as they are sent, and a branch of headers that has no room on the side 96 MB.

Exit codes: 0 caught up with --once, or ended with Ctrl-C or SIGTERM: see the hits for what was found
            4 gave up; what came is kept. With --once: no progress for --give-up seconds. In any case:
              every --peer has broken the protocol
            5 a malformed item, no peer could be reached with --once, or --data cannot be read or written

JSON: lines, told apart by kind:
  hit        height, block, index (null while unconfirmed), txid, received[{vout, satoshis, script,
             address, item, path, index}], spent[{vin, outpoint, item, script, certain}], evidence
             (block | merkle_proof | unconfirmed), confirmations, reason (matched | disputed |
             spot_audit | filtered_block | relayed), peer, again
  reorg      fork{height, block}, disconnected[{height, block}] (while the command ran),
             withdrawn[{height, block, txid}] (also hits that a kill kept from being printed)
  graded     from, to, grade, peers: what a \"no\" in these blocks is worth, from now on
  reopened   from, to: what was said of these blocks counts no more, until they are graded again
  finding    finding (disputed | undecided | suspicious | block_unavailable | refused | none_seen |
             first_unknown), height, block (null: none), text: what peers differ on, do not deliver,
             or what is not certain
  caught_up  height, block, work, answered_to, confirmed, unconfirmed: all that the peers have is seen
  summary    ended (caught_up | interrupted | gave_up | closed), network, protocol, tip{height, block,
             time}, work, birthday, answered_to, grades[], hits, again, withdrawn, peers[…],
             warnings[]: the last line";

/// What is looked for, with whom and how.
#[derive(Debug, Args)]
pub(crate) struct LookArgs {
    #[command(flatten)]
    pub(crate) watch: WatchArgs,
    #[command(flatten)]
    pub(crate) peers: PeerArgs,
    /// How blocks are looked through
    #[arg(long, value_parser = choice(&PROTOCOLS), default_value = "bip157")]
    pub(crate) protocol: Protocol,
    /// Look this many indices past the last one used of each ranged descriptor
    #[arg(long, value_name = "COUNT", default_value_t = 20, value_parser = count(1..=10_000_u32))]
    pub(crate) gap_limit: u32,
    #[command(flatten)]
    pub(crate) trust: TrustArgs,
    /// bip37: the share of others' elements that match as well; more hides better and costs more
    #[arg(long, value_name = "RATE", default_value_t = 0.00001, value_parser = super::bloom::fpr)]
    pub(crate) fpr: f64,
}

/// Watch addresses, scripts, keys and coins: the past, then live.
#[derive(Debug, Args)]
#[command(after_long_help = WATCH_HELP)]
pub(crate) struct WatchLiveArgs {
    #[command(flatten)]
    pub(crate) look: LookArgs,
    /// The first height to look at, or a day; nothing was used before
    #[arg(long, value_name = "HEIGHT|DAY", default_value = "0", value_parser = birthday)]
    pub(crate) birthday: Birthday,
    /// End when all is seen that the peers have
    #[arg(long)]
    pub(crate) once: bool,
}

const RESCAN_HELP: &str = "\
Goes over blocks again for items that were not watched then, and ends. Items, evidence, exit codes
and JSON lines are those of `btc watch --help`; in the summary, birthday is --from. Stopped and
called again with the same items and heights, it goes on where it was.";

/// Go over past blocks again for more items.
#[derive(Debug, Args)]
#[command(after_long_help = RESCAN_HELP)]
pub(crate) struct RescanArgs {
    #[command(flatten)]
    pub(crate) look: LookArgs,
    /// The first height, or a day
    #[arg(long, value_name = "HEIGHT|DAY", value_parser = birthday)]
    pub(crate) from: Birthday,
    /// The last height [default: the tip]
    #[arg(long, value_name = "HEIGHT", value_parser = count(0..=u32::MAX))]
    pub(crate) to: Option<u32>,
}
