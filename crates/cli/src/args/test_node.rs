//! Arguments of `btc test-node`.

use std::net::SocketAddr;
use std::path::PathBuf;

use chainsieve::bitcoin::Network;
use clap::Args;

use super::network;
use crate::args::number::count;

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

Ctrl-C or SIGTERM ends the node, with exit code 0.

JSON: one object per line, of one of these kinds:
  listening     address, network, blocks, height, tip, transactions, services[]
  chain         blocks, height, tip, disconnected
  mempool       transactions
  connected     peer, address
  ready         peer, user_agent, protocol
  disconnected  peer, reason, misbehaved
  refused       address, reason
  warning       text
  summary       connections, blocks, height, tip: the last line";

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
