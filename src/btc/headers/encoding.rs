//! Serialised form of a chain of headers: a preamble, and 80 bytes per header.
//!
//! ```text
//! "CSHC" | version 1 | one record:
//!     hash of the network's genesis block, as in messages 32 | height of the start u32
//!     | work up to the start 32, little-endian | first header of the start's period 80
//!     | the min(11, height + 1) headers that end with the start, 80 each
//! the headers after the start, 80 each
//! ```
//! The encoding of the preamble is that of [`records`]. The headers after it have no frames: their
//! proof of work reveals damage, and the offset of each follows from its height. The block time of a
//! custom signet is not stored: the caller passes it to [`HeaderChain::decode_with`].

use alloc::vec::Vec;
use core::time::Duration;

use bitcoin::block::Header;
use bitcoin::constants::ChainHash;
use bitcoin::{Network, Work, consensus};

use super::chain::MAX_HEADERS;
use super::rules::MEDIAN_SPAN;
use super::{HeaderChain, HeaderChainError, HeaderRules, TrustedStart};
use crate::btc::records::{self, FRAME_LEN, START_LEN, push, push_record, take};

const NAME: [u8; 4] = *b"CSHC";
pub(super) const VERSION: u8 = 1;
const HEADER_LEN: usize = Header::SIZE;

impl HeaderChain {
    /// Encodes the active chain as bytes for [`decode`](Self::decode). Side branches are left out.
    ///
    /// The bytes are a preamble of at most a kilobyte, which never changes, and 80 bytes for each
    /// header after the start. A caller that keeps the bytes in a file need not rewrite the file
    /// for each block. Let `h` be the lowest height of the
    /// [`ChainEvent::Connected`](super::ChainEvent::Connected) events that one call returned.
    /// Truncate the file to [`record_offset(h)`](Self::record_offset), then append
    /// [`encode_from(h)`](Self::encode_from).
    ///
    /// # Examples
    /// ```
    /// use core::time::Duration;
    /// use chainsieve::bitcoin::block::Header;
    /// use chainsieve::bitcoin::consensus::encode::deserialize_hex;
    /// use chainsieve::bitcoin::Network;
    /// use chainsieve::btc::headers::{ChainEvent, HeaderChain};
    ///
    /// let mut chain = HeaderChain::new(Network::Bitcoin);
    /// let mut file = chain.encode();
    /// let block_1: Header = deserialize_hex("010000006fe28c0ab6f1b372c1a6a246ae63f74f931e8365e15a089c68d6190000000000982051fd1e4ba744bbbe680e1fee14677ba1a3c3540bf7b1cdb606e857233e0e61bc6649ffff001d01e36299")?;
    /// let events = chain.accept(&[block_1], Duration::from_secs(1_231_470_000))?;
    /// let connected = events.iter().filter_map(|event| match event {
    ///     ChainEvent::Connected { at, .. } => Some(at.height),
    ///     _ => None,
    /// });
    /// if let Some(lowest) = connected.min() {
    ///     file.truncate(chain.record_offset(lowest) as usize);
    ///     file.extend(chain.encode_from(lowest));
    /// }
    /// assert_eq!(HeaderChain::decode(&file)?.tip(), chain.tip());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn encode(&self) -> Vec<u8> {
        let trusted_start = self.trusted_start();
        let genesis = ChainHash::using_genesis_block_const(self.network()).to_bytes();
        let mut body = Vec::new();
        push(&(genesis, trusted_start.height, trusted_start.work.to_le_bytes()), &mut body);
        push(&trusted_start.period_first, &mut body);
        append(&mut body, &trusted_start.headers);
        let mut bytes = records::start(NAME, VERSION).to_vec();
        push_record(body, &mut bytes);
        append(&mut bytes, self.headers_from(trusted_start.height + 1));
        bytes
    }

    /// Encodes the headers from `height` on, as [`encode`](Self::encode) does. The headers up to
    /// the start are left out, because they are in the preamble.
    pub fn encode_from(&self, height: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        append(&mut bytes, self.headers_from(height.max(self.trusted_start().height + 1)));
        bytes
    }

    /// Returns the offset of the header at `height` in the bytes of [`encode`](Self::encode). The
    /// header need not exist yet. For heights up to the start, returns the length of the preamble.
    pub fn record_offset(&self, height: u32) -> u64 {
        let above = height.saturating_sub(self.trusted_start().height + 1);
        preamble_len(self.trusted_start().height) as u64 + HEADER_LEN as u64 * u64::from(above)
    }

    /// Decodes the bytes of [`encode`](Self::encode). Only the trusted start is trusted.
    ///
    /// Each header is checked as in [`accept`](Self::accept), except against the clock. Side
    /// headers are kept up to the default limit.
    ///
    /// The preamble has a checksum. The headers need no checksum: damage changes a header's hash,
    /// and the changed hash has no valid proof of work. On regtest, half of the changed hashes are
    /// still valid; then the next header, if there is one, reveals the damage.
    ///
    /// # Cost
    /// One hash is computed for each header.
    ///
    /// # Errors
    /// Returns the first fault. If a header is at fault, the bytes before that header are intact,
    /// and [`HeaderChainError::intact_len`] returns their length.
    pub fn decode(bytes: &[u8]) -> Result<Self, HeaderChainError> {
        Self::decode_by(bytes, None)
    }

    /// Decodes the bytes of [`encode`](Self::encode) as [`decode`](Self::decode) does, but only if
    /// they belong to the network of `rules`. The bytes do not contain the block time of a custom
    /// signet, so `rules` must contain it.
    ///
    /// # Errors
    /// Those of [`decode`](Self::decode), and [`HeaderChainError::OtherNetwork`].
    pub fn decode_with(
        bytes: &[u8],
        rules: impl Into<HeaderRules>,
    ) -> Result<Self, HeaderChainError> {
        Self::decode_by(bytes, Some(rules.into()))
    }

    fn decode_by(bytes: &[u8], rules: Option<HeaderRules>) -> Result<Self, HeaderChainError> {
        let (mut chain, records) = decode_preamble(bytes, rules)?;
        let (records, cut) = records.as_chunks::<HEADER_LEN>();
        let mut height = chain.trusted_start().height;
        for records in records.chunks(MAX_HEADERS) {
            let headers: Vec<Header> = records.iter().map(header).collect();
            let refused = chain.accept(&headers, Duration::MAX).err();
            // `accept` also accepts headers of side branches and known headers. The file must
            // contain only the active chain.
            let taken = headers.iter().zip(chain.headers_from(height + 1));
            let taken = taken.take_while(|(record, header)| record == header).count();
            if taken < headers.len() {
                let height = height + 1 + u32::try_from(taken).expect("at most 2000");
                let offset = chain.record_offset(height);
                return Err(match refused {
                    Some(error) if error.index == taken => {
                        HeaderChainError::Header { height, offset, cause: error.cause }
                    }
                    _ => HeaderChainError::RecordNotLinked { height, offset },
                });
            }
            height = chain.tip().height;
        }
        if !cut.is_empty() {
            let offset = chain.record_offset(height + 1);
            return Err(HeaderChainError::Cut { offset, left: cut.len() });
        }
        Ok(chain)
    }
}

/// Returns the length in bytes of the preamble of a chain that starts at `height`.
fn preamble_len(height: u32) -> usize {
    let headers = height.saturating_add(1).min(MEDIAN_SPAN) as usize + 1;
    START_LEN + FRAME_LEN + 32 + 4 + 32 + HEADER_LEN * headers
}

fn append(bytes: &mut Vec<u8>, headers: &[Header]) {
    bytes.reserve(HEADER_LEN * headers.len());
    for header in headers {
        push(header, bytes);
    }
}

fn header(bytes: &[u8; HEADER_LEN]) -> Header {
    consensus::deserialize(bytes).expect("any 80 bytes are a header")
}

/// Decodes the preamble. Returns the chain up to its start, and the bytes after the preamble.
/// `None` stands for the rules of the network that the preamble names.
fn decode_preamble(
    bytes: &[u8],
    rules: Option<HeaderRules>,
) -> Result<(HeaderChain, &[u8]), HeaderChainError> {
    let cut = |needed| HeaderChainError::PreambleCut { length: bytes.len(), needed };
    let start = bytes.first_chunk::<START_LEN>().ok_or(cut(START_LEN))?;
    let [name @ .., version] = *start;
    if name != NAME {
        return Err(HeaderChainError::Name);
    }
    if version != VERSION {
        return Err(HeaderChainError::Version { version });
    }
    let (_, mut records) = bytes.split_at(START_LEN);
    let length = records.first_chunk().ok_or(cut(START_LEN + FRAME_LEN))?;
    let needed = (START_LEN + FRAME_LEN).saturating_add(u32::from_le_bytes(*length) as usize);
    if bytes.len() < needed {
        return Err(cut(needed));
    }
    let body = records::record(&mut records).ok_or(HeaderChainError::Damaged)?;
    let start = read_start(body).ok_or(HeaderChainError::Damaged)?;
    let ((genesis, height, work), headers) = start;
    let genesis = ChainHash::from(genesis);
    let network = Network::from_chain_hash(genesis);
    let network = network.ok_or(HeaderChainError::UnknownChain { genesis })?;
    let rules = rules.unwrap_or(network.into());
    if rules.network() != network {
        return Err(HeaderChainError::OtherNetwork { kept: network, wanted: rules.network() });
    }
    let [period_first, headers @ ..] = headers else { return Err(HeaderChainError::Damaged) };
    let trusted_start = TrustedStart {
        height,
        headers: headers.iter().map(header).collect(),
        period_first: header(period_first),
        work: Work::from_le_bytes(work),
    };
    Ok((HeaderChain::from_trusted_start(rules, trusted_start)?, records))
}

/// Hash of the genesis block, height and work.
type Start = ([u8; 32], u32, [u8; 32]);

/// Returns the fields of the preamble, and its headers. The first of them is the first header of
/// the period. `None` if there are no whole headers.
fn read_start(mut body: &[u8]) -> Option<(Start, &[[u8; HEADER_LEN]])> {
    let start = take(&mut body)?;
    let (headers, cut) = body.as_chunks();
    cut.is_empty().then_some((start, headers))
}

impl HeaderChainError {
    /// Returns the length of the intact bytes of an encoded chain, which can be decoded after the rest
    /// is cut off. `None` if the preamble is damaged.
    pub fn intact_len(&self) -> Option<u64> {
        match self {
            Self::Header { offset, .. }
            | Self::RecordNotLinked { offset, .. }
            | Self::Cut { offset, .. } => Some(*offset),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::btc::records::tests::laid_out;
    use bitcoin::hex::FromHex as _;

    #[test]
    fn the_format_is_the_documented_one() {
        // Headers 0 and 1 of mainnet, and the `chainwork` of its genesis block in Bitcoin Core:
        // 100010001.
        let [genesis, first] = [
            "0100000000000000000000000000000000000000000000000000000000000000000000003ba3edfd7a7b12b27ac72c3e67768f617fc81bc3888a51323a9fb8aa4b1e5e4a29ab5f49ffff001d1dac2b7c",
            "010000006fe28c0ab6f1b372c1a6a246ae63f74f931e8365e15a089c68d6190000000000982051fd1e4ba744bbbe680e1fee14677ba1a3c3540bf7b1cdb606e857233e0e61bc6649ffff001d01e36299",
        ]
        .map(|hex| Vec::from_hex(hex).expect("hex"));
        let hash = &first[4..36];
        let mut work = [0; 32];
        work[..5].copy_from_slice(&[1, 0, 1, 0, 1]);
        let body = [hash, &[0; 4], &work, &genesis, &genesis].concat();
        let file = [laid_out(*b"CSHC\x01", &[body]), first.clone()].concat();
        let mut chain = HeaderChain::new(Network::Bitcoin);
        let next = consensus::deserialize(&first).expect("a header");
        chain.accept(&[next], Duration::from_secs(1_231_470_000)).expect("valid");
        assert_eq!(chain.encode(), file);
        assert_eq!(HeaderChain::decode(&file).expect("valid").tip(), chain.tip());
    }
}
