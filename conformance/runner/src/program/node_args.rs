//! Arguments of `serve-node` and `audit-node`.

use std::fmt::{self, Display};
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use chainsieve::bitcoin::Network;
use chainsieve::eth::chain_profile::{BloomSoundness, ReceiptsScope};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{ArgGroup, Args};

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

/// A possible value of an option: its word on the command line, its meaning, and its help text.
type Choice<T> = (&'static str, T, &'static str);

/// Returns a parser that accepts exactly the words of `choices`.
fn choice<T>(choices: &'static [Choice<T>]) -> impl TypedValueParser<Value = T>
where
    T: Copy + Send + Sync + 'static,
{
    let words = choices.iter().map(|(word, _, help)| PossibleValue::new(word).help(help));
    let named = |name: String| choices.iter().find(|(word, ..)| *word == name);
    PossibleValuesParser::new(words).map(move |name| named(name).expect("a possible word").1)
}

/// Returns the parser of `--network`, which also accepts Bitcoin Core's names of the networks.
fn network() -> impl TypedValueParser<Value = Network> {
    const NETWORKS: [(&str, Network, &[&str]); 5] = [
        ("mainnet", Network::Bitcoin, &["main", "bitcoin"]),
        ("testnet", Network::Testnet, &["test", "testnet3"]),
        ("testnet4", Network::Testnet4, &[]),
        ("signet", Network::Signet, &[]),
        ("regtest", Network::Regtest, &[]),
    ];
    let words = NETWORKS.map(|(name, _, aliases)| PossibleValue::new(name).aliases(aliases));
    PossibleValuesParser::new(words).map(|word| {
        let named = |(name, _, aliases): &(&str, _, &[&str])| {
            *name == word || aliases.contains(&word.as_str())
        };
        NETWORKS.into_iter().find(named).expect("a possible word").1
    })
}

/// Returns the name of a network as `--network` accepts it.
pub(crate) fn network_name(network: Network) -> String {
    if network == Network::Bitcoin { "mainnet".into() } else { network.to_string() }
}

/// Possible values of `--assume-bloom`.
const SOUNDNESS: [Choice<BloomSoundness>; 4] = [
    ("exact", BloomSoundness::Exact, "Filters have the bits of the block's logs and no other bits"),
    ("superset", BloomSoundness::Superset, "Filters have at least the bits of the block's logs"),
    ("absent", BloomSoundness::Absent, "There are no filters, or they are constant"),
    ("unsound", BloomSoundness::Unsound, "Filters may lack bits of a log"),
];

/// Possible values of `--assume-receipts`.
const SCOPES: [Choice<ReceiptsScope>; 2] = [
    ("every-log", ReceiptsScope::EveryLog, "Every log that nodes return is in a receipt"),
    ("not-every-log", ReceiptsScope::NotEveryLog, "Nodes may return logs that are in no receipt"),
];

/// Returns a parser of numbers as people write them (`1000`, `1_000`, `1,000`, `1e3`, `1.5e6`) that
/// rejects numbers outside `range`.
fn count<T>(range: RangeInclusive<T>) -> impl Fn(&str) -> Result<T, String> + Clone
where
    T: TryFrom<u64> + PartialOrd + Display + Clone,
{
    move |text| {
        let number = parse(text).ok_or("not a number: write 1000, 1_000 or 1e3")?;
        let found = T::try_from(number).ok().filter(|number| range.contains(number));
        found.ok_or_else(|| format!("{number} is not in {}..={}", range.start(), range.end()))
    }
}

/// Parses a whole number; returns `None` if the text is not a whole number of at most 64 bits.
fn parse(text: &str) -> Option<u64> {
    let (digits, exponent) = match text.split_once(['e', 'E']) {
        Some((digits, exponent)) => (digits, exponent.parse().ok()?),
        None => (text, 0_u32),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let fraction = fraction.trim_end_matches('0');
    let zeros = exponent.checked_sub(u32::try_from(fraction.len()).ok()?)?;
    if !whole.starts_with(|first: char| first.is_ascii_digit()) {
        return None;
    }
    let whole = whole.replace(['_', ','], "");
    let digits: u64 = format!("{whole}{fraction}").parse().ok()?;
    10_u64.checked_pow(zeros)?.checked_mul(digits)
}

/// A secret argument, which no error, debug output or help shows.
#[derive(Clone)]
pub(crate) struct Secret(pub(crate) String);

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

#[cfg(test)]
mod tests {
    use super::{count, parse};

    #[test]
    fn as_people_write_them() {
        for (text, number) in [
            ("0", 0),
            ("1000", 1_000),
            ("1_000", 1_000),
            ("17,686,111", 17_686_111),
            ("1e6", 1_000_000),
            ("1.5E6", 1_500_000),
            ("1.50e1", 15),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(parse(text), Some(number), "{text}");
        }
        for text in
            ["", "-1", "+1", "1.5", "1.55e1", "e3", "_1", "1e20", "1e", "0x10", "1 000", "²"]
        {
            assert_eq!(parse(text), None, "{text}");
        }
        assert_eq!(count(1..=64_u16)("1e1"), Ok(10));
        assert_eq!(count(1..=64_u16)("65"), Err("65 is not in 1..=64".into()));
        assert_eq!(count(0..=255_u8)("1e9"), Err("1000000000 is not in 0..=255".into()));
    }
}
