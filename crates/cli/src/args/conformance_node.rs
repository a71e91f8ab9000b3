//! Arguments of `conformance serve-node` and `conformance audit-node`.

use std::net::SocketAddr;
use std::path::PathBuf;

use chainsieve::bitcoin::Network;
use chainsieve::eth::chain_profile::{BloomSoundness, ReceiptsScope};
use clap::{ArgGroup, Args};

use super::eth::{SCOPES, SOUNDNESS};
use super::{choice, network};
use crate::args::number::count;
use crate::eth::rpc::Secret;

const SERVE_HELP: &str = "\
Without --blocks and --upstream, the node has built-in blocks. The Bitcoin node has a regtest chain of 140
blocks with payments to four known scripts; the notes and the line `listening` have their addresses and
keys. The Ethereum node has mainnet's blocks 17686111 and 17686112.

A Bitcoin node answers as `btc test-node` does: headers, blocks, BIP37, BIP157. The folder of --blocks has
the form that `btc test-node` reads, and is read once. An Ethereum node answers eth_chainId, eth_blockNumber,
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
    group(ArgGroup::new("node").args(["ethereum", "bitcoin_rpc", "bitcoin_p2p"]).required(true))
)]
pub(crate) struct AuditNodeArgs {
    /// The URL of an Ethereum node's JSON-RPC
    #[arg(long, value_name = "URL")]
    pub(crate) ethereum: Option<Secret>,
    /// The URL of a Bitcoin node's JSON-RPC, as Bitcoin Core serves it
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
    #[arg(long, value_name = "NUMBER", value_parser = count(0..=u64::MAX))]
    pub(crate) from: u64,
    /// The last block
    #[arg(long, value_name = "NUMBER", value_parser = count(0..=u64::MAX))]
    pub(crate) to: u64,
    /// Seconds to wait for a response
    #[arg(long, value_name = "SECONDS", default_value_t = 30, value_parser = count(1..=3600_u64))]
    pub(crate) timeout: u64,
    /// Number of times that a failed request is retried, with increasing waits
    #[arg(long, value_name = "COUNT", default_value_t = 2, value_parser = count(0..=100_u32))]
    pub(crate) retries: u32,
}
