//! `btc serve`.

use std::net::SocketAddr;
use std::path::PathBuf;

use chainsieve::bitcoin::Network;
use clap::Args;

use super::network;
use crate::args::number::count;

const HELP: &str = "\
The folder holds files of blocks, raw one behind the other or hex on lines, in any order; together
they link back to the network's genesis block, which need not be there. The chain with most work is
served. The folder is looked at again and again: new blocks are taken in and announced, and a
reorganization is a branch with more work. A block stays when its file goes. The subfolder mempool/
has a transaction in each file, raw or hex: announced while the file is there and no block has the
transaction or one that conflicts with it.
Write a file under a name that ends with .tmp and rename it: those and hidden files are not read. A
file that ends early is tried again until it has stayed the same for 2 seconds.

To peers it is as Bitcoin Core is: headers, blocks with witnesses and without, filterload and filtered
blocks (BIP37), mempool (BIP35), filters and the headers over them (BIP157), sendheaders. It dials
nobody, takes no transactions and blocks from peers, and does not look whether transactions are valid.
All blocks, filters and scripts are held in memory, and for each peer one message each way.

Ctrl-C or SIGTERM end it, with exit code 0.

JSON: lines, told apart by kind:
  listening     address, network, blocks, height, tip, transactions, services[]
  chain         blocks, height, tip, disconnected
  mempool       transactions
  connected     peer, address
  ready         peer, user_agent, protocol
  disconnected  peer, reason, misbehaved
  refused       address, reason
  warning       text
  summary       connections, blocks, height, tip: the last line";

/// Serve a folder of blocks to wallets' tests.
#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub(crate) struct ServeArgs {
    /// The folder of blocks
    #[arg(value_name = "BLOCKS_DIR")]
    pub(crate) blocks: PathBuf,
    /// The chain of the blocks
    #[arg(long, value_parser = network())]
    pub(crate) network: Network,
    /// The address to listen at; port 0 picks a free one [default: 127.0.0.1, the network's port]
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub(crate) listen: Option<SocketAddr>,
    /// Allow an address that other machines can reach
    #[arg(long, requires = "listen")]
    pub(crate) listen_anywhere: bool,
    /// Offer no Bloom filters
    #[arg(long)]
    pub(crate) no_bip37: bool,
    /// Offer no compact filters
    #[arg(long)]
    pub(crate) no_bip157: bool,
    /// Transactions whose outputs the blocks spend, where no block of the folder has them: a file
    /// of hex, one on each line
    #[arg(long, value_name = "FILE")]
    pub(crate) prev_txs: Vec<String>,
    /// How many peers may be connected at once
    #[arg(long, value_name = "COUNT", default_value_t = 32, value_parser = count(1..=1000_u16))]
    pub(crate) max_connections: u16,
}
