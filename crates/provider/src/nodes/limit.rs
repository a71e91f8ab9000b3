//! Recognises a provider's limits from its errors.
//!
//! No standard defines these errors. Many codes are in use, so a limit is recognised by the words
//! of the message. A number in the message is only a hint: the caller must also work if the number
//! is wrong.

use std::fmt;
use std::time::Duration;

/// A limit of a provider, recognised from its error. All numbers are the provider's claims.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Limit {
    /// Number of blocks in one `eth_getLogs` request; `None` if the error states no number.
    Blocks(Option<u64>),
    /// Number of logs in one answer; `None` if the error states no number.
    Results(Option<u64>),
    /// Number of bytes in one answer.
    ResponseBytes,
    /// Time for one answer.
    Time,
    /// Number of calls in one batch request; `None` if the error states no number.
    Batch(Option<usize>),
    /// The requested range is too large, and the provider suggests a smaller range.
    SuggestedRange {
        /// First block of the suggested range.
        from: u64,
        /// Last block of the suggested range.
        to: u64,
    },
    /// The number of requests in a period of time exceeds a limit.
    RateLimited {
        /// Wait that the provider asks for, if it states one.
        retry_after: Option<Duration>,
    },
    /// An unknown limit: the error code states that there is a limit, but the message does not name
    /// it.
    Unspecified,
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Blocks(Some(blocks)) => {
                write!(f, "the provider accepts at most {blocks} blocks at a time")
            }
            Self::Blocks(None) => {
                f.write_str("the provider accepts fewer blocks at a time than were requested")
            }
            Self::Results(Some(logs)) => {
                write!(f, "the provider returns at most {logs} logs at a time")
            }
            Self::Results(None) => {
                f.write_str("the provider returns fewer logs at a time than the query finds")
            }
            Self::ResponseBytes => f.write_str("the answer is too large for the provider"),
            Self::Time => f.write_str("the provider takes too long to answer"),
            Self::Batch(Some(calls)) => {
                write!(f, "the provider accepts at most {calls} calls in a request")
            }
            Self::Batch(None) => {
                f.write_str("the provider accepts fewer calls in a request than were sent")
            }
            Self::SuggestedRange { from, to } => {
                write!(f, "the provider suggests requesting blocks {from} to {to}")
            }
            Self::RateLimited { .. } => f.write_str("too many requests for the provider"),
            Self::Unspecified => f.write_str("an unnamed limit of the provider"),
        }
    }
}

/// Maximum number of characters that are examined in each of the two texts of an error, message and
/// data: a hostile provider may send texts of any length.
const MOST_WORDS: usize = 4096;

impl Limit {
    /// Returns the limit that a JSON-RPC error describes; `None` if the error has another cause.
    ///
    /// `data` is the JSON text of the error's `data` member, or empty.
    ///
    /// ```
    /// use chainsieve_provider::Limit;
    /// // A message of Infura (INFURA/infura#237).
    /// let limit = Limit::of_error(-32602, "range 1000000 exceeds limit of 10000", "");
    /// assert_eq!(limit, Some(Limit::Blocks(Some(10_000))));
    /// assert_eq!(Limit::of_error(-32000, "execution reverted", ""), None);
    /// ```
    pub fn of_error(code: i64, message: &str, data: &str) -> Option<Self> {
        learn(code, message, data)
    }
}

fn learn(code: i64, message: &str, data: &str) -> Option<Limit> {
    let mut text = format!("{} {}", cut(message), cut(data));
    text.make_ascii_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| text.contains(word));
    // These errors mention ranges or methods, but a smaller request would fail as well.
    if has(&["beyond current head", "beyond the head", "invalid block range", "method not"]) {
        return None;
    }
    // Test for rate limits first: some of their errors share the code -32005 or words such as
    // "exceeded" with the errors of other limits.
    if has(&[
        "rate limit",
        "rate-limit",
        "ratelimit",
        "too many requests",
        "compute units per second",
        "requests per second",
        "request rate",
        "request limit",
        "throughput",
        "call rate",
        "quota",
    ]) || matches!(code, 429 | -32029)
    {
        return Some(Limit::RateLimited { retry_after: seconds(&text) });
    }
    // If a message mentions a batch, the limit is the number of calls in a batch.
    if has(&["batch"]) {
        let calls =
            number_after(&text, &["exceeded max limit of", "than", "max", "limit", "up to"]);
        return Some(Limit::Batch(calls.and_then(|calls| calls.try_into().ok())));
    }
    // A suggested range is more precise than the number in the same message.
    if let Some((from, to)) = suggested(&text) {
        return Some(Limit::SuggestedRange { from, to });
    }
    if has(&["results", "logs matched", "too many logs", "returned more than", "number of logs"])
        && has(&["more than", "exceed", "too many", "max", "limit"])
    {
        let logs = number_after(&text, &["more than", "max results", "limit of", "max", "limit"]);
        return Some(Limit::Results(logs));
    }
    if has(&[
        "response size",
        "response is too",
        "response too",
        "result is too",
        "length limit exceeded",
        "too large response",
        "oversized",
        "content length",
    ]) {
        return Some(Limit::ResponseBytes);
    }
    // Two words are needed, one for blocks and one for a limit: errors with a different cause
    // mention a range, too.
    if has(&["range", "blocks", "block distance"])
        && has(&[
            "exceed",
            "too large",
            "too wide",
            "too big",
            "too many",
            "too high",
            "limit",
            "max",
            "over ",
            "bigger",
            "larger",
            "greater",
            "more than",
            "less than",
            "up to",
            "at most",
        ])
    {
        let words = [
            "limited to",
            "maximum",
            "max",
            "limit",
            "up to",
            "at most",
            "over",
            "less than",
            "than",
            "exceeds",
            "exceed",
        ];
        return Some(Limit::Blocks(number_after(&text, &words)));
    }
    if has(&["timeout", "timed out", "deadline exceeded", "too long"]) {
        return Some(Limit::Time);
    }
    // EIP-1474 defines -32005 as "Limit exceeded: request exceeds defined limit".
    (code == -32005).then_some(Limit::Unspecified)
}

fn cut(text: &str) -> &str {
    text.char_indices().nth(MOST_WORDS).map_or(text, |(end, _)| &text[..end])
}

/// Returns the first non-zero number that follows one of these words, trying the words in order.
fn number_after(text: &str, words: &[&str]) -> Option<u64> {
    let after = |word: &&str| text.find(*word).and_then(|at| number(&text[at + word.len()..]));
    words.iter().find_map(after)
}

/// Returns the first non-zero decimal number, such as `10000`, `10,000` or `10k`. Hexadecimal
/// numbers are skipped.
fn number(text: &str) -> Option<u64> {
    let mut rest = text;
    loop {
        let start = rest.find(|c: char| c.is_ascii_digit())?;
        let in_word = rest[..start].ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_');
        let length = rest[start..].find(|c: char| !(c.is_ascii_digit() || c == ',' || c == '_'));
        let end = length.map_or(rest.len(), |length| start + length);
        let behind = &rest[end..];
        let digits: String = rest[start..end].chars().filter(char::is_ascii_digit).collect();
        let scale = if behind.starts_with('k') { 1000 } else { 1 };
        let is_hex = behind.starts_with('x');
        if !in_word
            && !is_hex
            && let Some(number) = digits.parse::<u64>().ok().and_then(|n| n.checked_mul(scale))
            && number > 0
        {
            return Some(number);
        }
        // Skip the rest of a hexadecimal number or of a word: its digits are not a separate number.
        let skip = behind.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(behind.len());
        rest = if is_hex || in_word { &behind[skip..] } else { behind };
    }
}

/// Returns the range that a message suggests, as in `[0x10dde5f, 0x10dde60]` or `retry with the
/// range 17686111-17686112`.
fn suggested(text: &str) -> Option<(u64, u64)> {
    let in_order = |from: u64, to: u64| (from <= to).then_some((from, to));
    if let Some(at) = text.find("[0x") {
        let inner = text[at + 1..].split(']').next()?;
        let (from, to) = inner.split_once(',')?;
        let hex = |text: &str| u64::from_str_radix(text.trim().strip_prefix("0x")?, 16).ok();
        return in_order(hex(from)?, hex(to)?);
    }
    let behind = &text[text.find("retry with the range ")? + "retry with the range ".len()..];
    let end = behind.find(|c: char| !c.is_ascii_digit() && c != '-').unwrap_or(behind.len());
    let (from, to) = behind[..end].split_once('-')?;
    in_order(from.parse().ok()?, to.parse().ok()?)
}

/// Returns the wait that a message asks for, as in `"backoff_seconds": 30`, `retry after 10s` or
/// `try again in 10 seconds`.
fn seconds(text: &str) -> Option<Duration> {
    let words = ["backoff_seconds", "retry after", "retry in", "again in"];
    let seconds = number_after(text, &words)?;
    // A number followed by "ms" is in milliseconds.
    let milliseconds =
        text.contains(&format!("{seconds}ms")) || text.contains(&format!("{seconds} ms"));
    Some(if milliseconds { Duration::from_millis(seconds) } else { Duration::from_secs(seconds) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(seconds: u64) -> Limit {
        Limit::RateLimited { retry_after: Some(Duration::from_secs(seconds)) }
    }

    const RATE: Limit = Limit::RateLimited { retry_after: None };

    /// Real messages, each with its source: an issue, a pull request, or the source code of a node.
    #[test]
    #[expect(clippy::too_many_lines, reason = "a table")]
    fn what_providers_say() {
        let cases: &[(i64, &str, &str, Option<Limit>)] = &[
            // INFURA/infura#237: the message of the API, which differs from its documentation
            (-32602, "range 1000000 exceeds limit of 10000", "", Some(Limit::Blocks(Some(10_000)))),
            // bobanetwork/boba_legacy#827: Tenderly
            (
                -32602,
                "invalid params",
                r#"{"error_id":"4ed94073-0317-4648-a167-107fba5f44b3","payload":"range 9009594 is bigger than range limit 2000"}"#,
                Some(Limit::Blocks(Some(2_000))),
            ),
            // ponder-sh/ponder#724: zkSync Era
            (
                -32602,
                "Query returned more than 10000 results. Try with this block range [0x118dc91, 0x1198cc3].",
                "",
                Some(Limit::SuggestedRange { from: 0x0118_dc91, to: 0x0119_8cc3 }),
            ),
            // foundry-rs/foundry#12687: reth, merkle.io, dRPC, BlockPI, reth
            (
                -32602,
                "query exceeds max block range 100000",
                "",
                Some(Limit::Blocks(Some(100_000))),
            ),
            (
                -32603,
                "eth_getLogs range is too large, max is 1k blocks",
                "",
                Some(Limit::Blocks(Some(1_000))),
            ),
            (
                35,
                "ranges over 10000 blocks are not supported on freetier",
                "",
                Some(Limit::Blocks(Some(10_000))),
            ),
            (
                -32602,
                "eth_getLogs is limited to 1024 block range. Please check the parameter requirements at  https://docs.blockpi.io/documentations/api-reference",
                "",
                Some(Limit::Blocks(Some(1_024))),
            ),
            (
                -32602,
                "query exceeds max results 20000, retry with the range 23879634-23879696",
                "",
                Some(Limit::SuggestedRange { from: 23_879_634, to: 23_879_696 }),
            ),
            // bancorprotocol/webapp#523: Alchemy
            (
                -32602,
                "Log response size exceeded. Please reduce query block range.",
                "",
                Some(Limit::ResponseBytes),
            ),
            // ponder-sh/ponder, historical sync: Alchemy
            (
                -32602,
                "Log response size exceeded. You can make eth_getLogs requests with up to a 2K block range and no limit on the response size, or you can request any block range with a cap of 10K logs in the response. Based on your parameters and the response size limit, this block range should work: [0xab7149, 0xab7671]",
                "",
                Some(Limit::SuggestedRange { from: 0x00ab_7149, to: 0x00ab_7671 }),
            ),
            // OffchainLabs/arbitrum-sdk#609: QuickNode, with HTTP status 413
            (
                -32614,
                "eth_getLogs is limited to a 10,000 range",
                "",
                Some(Limit::Blocks(Some(10_000))),
            ),
            // AlphaWallet/alpha-wallet-android#2736: BNB Smart Chain
            (-32000, "exceed maximum block range: 5000", "", Some(Limit::Blocks(Some(5_000)))),
            // AlphaWallet/alpha-wallet-ios#5277
            (-32600, "block range too high", "", Some(Limit::Blocks(None))),
            // moonbeam-foundation/moonbeam: Frontier
            (
                -32603,
                "block range is too wide (maximum 1024)",
                "",
                Some(Limit::Blocks(Some(1_024))),
            ),
            // 1RPC, as quoted in tests of its users
            (
                -32602,
                "eth_getLogs is limited to 0 - 50 blocks range",
                "",
                Some(Limit::Blocks(Some(50))),
            ),
            // Polygon Amoy's own endpoint, as quoted by its users
            (-32000, "block range exceeds configured limit", "", Some(Limit::Blocks(None))),
            // zeta-chain/node#3265: Ethermint
            (
                -32000,
                "query returned more than 10000 results",
                "",
                Some(Limit::Results(Some(10_000))),
            ),
            // aurora-is-near/aurora-relayer#327
            (
                -32005,
                "query returned more than 10000 results",
                r#"{"host":"localhost:8545","request_body":{"jsonrpc":"2.0"}}"#,
                Some(Limit::Results(Some(10_000))),
            ),
            // reth, crates/rpc/rpc/src/eth/filter.rs
            (-32602, "query exceeds max results 20000", "", Some(Limit::Results(Some(20_000)))),
            (-32602, "invalid block range params", "", None),
            (-32602, "block range extends beyond current head block", "", None),
            // AlphaWallet/alpha-wallet-ios#5021: Gnosis
            (
                -32600,
                r#"Too many ["eth_getLogs"] methods in the batch"#,
                "",
                Some(Limit::Batch(None)),
            ),
            // paritytech/jsonrpsee#1107: reth and all nodes that are built on it
            (
                -32010,
                "The batch request was too large",
                r#""Exceeded max limit of 50""#,
                Some(Limit::Batch(Some(50))),
            ),
            // go-ethereum, rpc/errors.go
            (-32600, "batch too large", "", Some(Limit::Batch(None))),
            (-32003, "response too large", "", Some(Limit::ResponseBytes)),
            (-32002, "request timed out", "", Some(Limit::Time)),
            // fluencelabs/dev-rewards#20: Tenderly, Infura
            (-32005, "rate limit exceeded", "", Some(RATE)),
            (-32005, "daily request count exceeded, request rate limited", "", Some(RATE)),
            // MetaMask/eth-json-rpc-infura#33, on the fields of Infura's error
            (
                -32005,
                "project ID request rate exceeded",
                r#"{"rate":{"allowed_rps":1,"backoff_seconds":30,"current_rps":1.5}}"#,
                Some(seconds(30)),
            ),
            // namehash/ensnode#1022: Alchemy
            (429, "Your app has exceeded its compute units per second capacity.", "", Some(RATE)),
            // base/node#368
            (-32016, "over rate limit", "", Some(RATE)),
            // EIP-1474
            (-32005, "Limit exceeded", "", Some(Limit::Unspecified)),
            // geth: no limits
            (-32601, "the method debug_getRawHeader does not exist/is not available", "", None),
            (-32000, "unknown block", "", None),
            (-32000, "execution reverted", "", None),
            (-39001, "unknown block", "", None),
        ];
        for (code, message, data, expected) in cases {
            assert_eq!(&learn(*code, message, data), expected, "{message}");
        }
    }

    #[test]
    fn numbers_are_told_from_what_looks_like_them() {
        assert_eq!(number(" 0 - 50 blocks"), Some(50));
        assert_eq!(number(" [0x10, 0x20] 30"), Some(30));
        assert_eq!(number(" utf8 and v2 2,048."), Some(2_048));
        assert_eq!(number(" 99999999999999999999 7"), Some(7));
        assert_eq!(number(" none, 0, 0x9"), None);
        assert_eq!(number(" 18446744073709551615k"), None);
        for text in [
            "[0x",
            "[0x1",
            "[0x1,0x",
            "[0x2, 0x1]",
            "retry with the range ",
            "[0x1,0x1ffffffffffffffffffff]",
        ] {
            assert_eq!(suggested(text), None, "{text}");
        }
    }

    #[test]
    fn no_text_is_too_strange() {
        const WORDS: [&str; 8] =
            ["[0x", "0x", "retry with the range ", "retry after ", "max ", "12,0_3k", "-", "ms"];
        let mut rng = testkit::Rng::new(32_005);
        for _ in 0..2_000 {
            let mut text = || {
                let parts = (0..rng.below(30)).map(|_| match rng.below(3) {
                    0 => (*rng.pick(&WORDS)).to_owned(),
                    1 => rng.u32().to_string(),
                    _ => char::from_u32(rng.u32() % 0x11_0000).into_iter().collect(),
                });
                parts.collect::<String>()
            };
            let (text, data) = (text(), text());
            let _ = learn(i64::from(rng.u32()) - 40_000, &text, &data);
            // Whatever follows, such a message names a limit.
            let code = *rng.pick(&[0, 3, -32_000, -32_005, -32_602]);
            let range = learn(code, &format!("block range limit {text}"), "");
            assert!(range.is_some(), "{text:?}");
        }
    }
}
