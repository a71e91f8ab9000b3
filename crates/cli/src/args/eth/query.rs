//! Arguments that describe a log query, for every `eth` command that takes one.

use std::path::PathBuf;

use chainsieve::alloy_primitives::{Address, B256};
use chainsieve::eth::log_query::Semantics;
use chainsieve_report::args::{self, Choice, choice};
use clap::Args;

/// The log query, as flags or as the filter object of `eth_getLogs`.
#[derive(Debug, Args)]
#[command(next_help_heading = "Which logs")]
pub(crate) struct QueryArgs {
    /// Logs of this contract; may be given again; @FILE reads a file with one address per line
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) address: Vec<String>,
    /// Logs of this event, as Transfer(address,address,uint256) or as a Solidity declaration
    ///
    /// May be given again
    #[arg(long, value_name = "SIGNATURE")]
    pub(crate) event: Vec<String>,
    /// Logs with this first topic: 32 bytes, address:0x…, any or @FILE
    ///
    /// address:0x… is an address padded to 32 bytes. May be given again. The first topic of an event is
    /// the hash of its signature
    #[arg(long, value_name = "TOPIC")]
    pub(crate) topic0: Vec<String>,
    /// Logs with this second topic: the first indexed argument of an event
    #[arg(long, value_name = "TOPIC")]
    pub(crate) topic1: Vec<String>,
    /// Logs with this third topic
    #[arg(long, value_name = "TOPIC")]
    pub(crate) topic2: Vec<String>,
    /// Logs with this fourth topic
    #[arg(long, value_name = "TOPIC")]
    pub(crate) topic3: Vec<String>,
    /// The filter object of eth_getLogs, in a file, or - for standard input
    #[arg(
        long,
        value_name = "FILE",
        conflicts_with_all = ["address", "event", "topic0", "topic1", "topic2", "topic3"]
    )]
    pub(crate) query: Option<PathBuf>,
    /// The first block of the range
    ///
    /// [default: fromBlock of --query, or the first header]
    #[arg(long, value_name = "BLOCK", value_parser = block_number)]
    pub(crate) from: Option<u64>,
    /// The last block of the range
    ///
    /// [default: toBlock of --query, or the last header]
    #[arg(long, value_name = "BLOCK", value_parser = block_number)]
    pub(crate) to: Option<u64>,
    /// The rules to apply where nodes differ: for topics [A, null], geth requires two topics in a
    /// log, alloy only one
    #[arg(long, value_parser = choice(&SEMANTICS), default_value = "geth", hide_short_help = true)]
    pub(crate) semantics: Semantics,
}

/// Possible values of `--semantics`.
const SEMANTICS: [Choice<Semantics>; 2] =
    [("geth", Semantics::Geth, "go-ethereum"), ("alloy", Semantics::Alloy, "alloy and reth")];

fn not_a_number() -> String {
    String::from("not a block number")
}

/// Parses a block number: `17686111`, `17,686,111`, `1e6` or `0x10dde5f`.
pub(crate) fn block_number(text: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => return args::number(text).ok_or_else(not_a_number),
    };
    parsed.map_err(|_| not_a_number())
}

/// Parses a topic of the command line; returns `None` for `any`.
pub(crate) fn topic(text: &str) -> anyhow::Result<Option<B256>> {
    if text == "any" {
        return Ok(None);
    }
    if let Some(address) = text.strip_prefix("address:") {
        return Ok(Some(self::address(address)?.into_word()));
    }
    let bytes = bytes(text)?;
    match bytes.len() {
        32 => Ok(Some(B256::from_slice(&bytes))),
        20 => anyhow::bail!(
            "20 bytes, but a topic has 32: for an indexed address, write address:{text}"
        ),
        length => anyhow::bail!("{length} bytes, but a topic has 32"),
    }
}

/// Parses an address. Mixed-case hex must be a valid checksum (EIP-55).
pub(crate) fn address(text: &str) -> anyhow::Result<Address> {
    let bytes = bytes(text)?;
    match bytes.len() {
        20 => {}
        32 => anyhow::bail!("32 bytes, but an address has 20: is it a topic?"),
        length => anyhow::bail!("{length} bytes, but an address has 20"),
    }
    let mixed = text.bytes().any(|byte| byte.is_ascii_lowercase() && byte != b'x')
        && text.bytes().any(|byte| byte.is_ascii_uppercase());
    let address = Address::from_slice(&bytes);
    if mixed && address.to_checksum(None)[2..] != text[text.len() - 40..] {
        anyhow::bail!("invalid EIP-55 checksum: at least one digit is wrong");
    }
    Ok(address)
}

fn bytes(text: &str) -> anyhow::Result<Vec<u8>> {
    chainsieve_report::decode_hex(text.strip_prefix("0x").unwrap_or(text))
}

/// Parses a block hash.
pub(crate) fn hash(text: &str) -> Result<B256, String> {
    let bytes = bytes(text).map_err(|error| format!("{error:#}"))?;
    B256::try_from(bytes.as_slice())
        .map_err(|_| format!("{} bytes, but a hash has 32", bytes.len()))
}

#[cfg(test)]
mod tests {
    use super::address as address_of;
    use super::*;

    #[test]
    fn topics_are_padded_only_where_it_is_said() {
        let address = "0xdAC17F958D2ee523a2206206994597C13D831ec7";
        let padded = topic(&format!("address:{address}")).unwrap().unwrap();
        assert!(padded[..12].iter().all(|&byte| byte == 0));
        assert_eq!(hex::encode(&padded[12..]), address[2..].to_lowercase());
        let error = topic(address).unwrap_err().to_string();
        assert!(error.contains("write address:0xdAC1"), "{error}");
        assert_eq!(topic("any").unwrap(), None);
        assert_eq!(topic(&padded.to_string()).unwrap(), Some(padded));
    }

    #[test]
    fn a_wrong_digit_shows_in_the_checksum() {
        let right = "0xdAC17F958D2ee523a2206206994597C13D831ec7";
        assert!(address_of(right).is_ok());
        assert!(address_of(&right.to_lowercase()).is_ok());
        assert!(address_of(&right.replace("31ec7", "31ec8")).is_err());
        assert_eq!(block_number("17,686,111"), block_number("0x10dde5f"));
        assert!(block_number("latest").is_err());
    }
}
