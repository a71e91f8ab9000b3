//! Bytes that a chain is kept as: a preamble, and 80 bytes per header.
//!
//! | bytes | what |
//! |---|---|
//! | 8 | `csheader` |
//! | 1 | version: 1 |
//! | 32 | hash of the network's genesis block, as in messages |
//! | 4 | height of the start, little-endian |
//! | 32 | work up to the start, little-endian |
//! | 80 | the first header of the start's period |
//! | 80 × min(11, height + 1) | the headers that end with the start |
//! | 4 | first bytes of the double SHA-256 of all the bytes so far |
//! | 80 × n | the headers behind the start |

use alloc::vec::Vec;

use bitcoin::block::Header;
use bitcoin::constants::ChainHash;
use bitcoin::hashes::{Hash as _, sha256d};
use bitcoin::{Network, Work, consensus};

use super::chain::MAX_HEADERS;
use super::rules::MEDIAN_SPAN;
use super::{Anchor, AnchorError, HeaderChain, HeaderError};

const MAGIC: [u8; 8] = *b"csheader";
const VERSION: u8 = 1;
const HEADER_LEN: usize = Header::SIZE;
const CHECKSUM_LEN: usize = 4;

impl HeaderChain {
    /// The active chain as bytes, which [`decode`](Self::decode) reads. Side branches are left out.
    ///
    /// The bytes are a preamble of up to a kilobyte, which never changes, and then the headers
    /// behind the start, 80 bytes each. So who keeps them in a file need not write it anew with
    /// each block: after a [`ChainEvent::Connected`](super::ChainEvent::Connected) at height `h`,
    /// and after a whole reorganization whose lowest one that is, cut the file to
    /// [`record_offset(h)`](Self::record_offset) and append
    /// [`encode_from(h)`](Self::encode_from).
    ///
    /// # Examples
    /// ```
    /// use chainsieve::bitcoin::block::Header;
    /// use chainsieve::bitcoin::consensus::encode::deserialize_hex;
    /// use chainsieve::bitcoin::Network;
    /// use chainsieve::btc::headers::{ChainEvent, HeaderChain};
    ///
    /// let mut chain = HeaderChain::new(Network::Bitcoin);
    /// let mut file = chain.encode();
    /// let block_1: Header = deserialize_hex("010000006fe28c0ab6f1b372c1a6a246ae63f74f931e8365e15a089c68d6190000000000982051fd1e4ba744bbbe680e1fee14677ba1a3c3540bf7b1cdb606e857233e0e61bc6649ffff001d01e36299")?;
    /// let events = chain.accept(&[block_1], 1_231_470_000)?;
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
        let anchor = self.anchor();
        let mut bytes = Vec::new();
        bytes.extend(MAGIC);
        bytes.push(VERSION);
        bytes.extend(ChainHash::using_genesis_block_const(self.network()).as_bytes());
        bytes.extend(anchor.height.to_le_bytes());
        bytes.extend(anchor.work.to_le_bytes());
        bytes.extend(consensus::serialize(&anchor.period_first));
        append(&mut bytes, &anchor.headers);
        let sum = checksum(&bytes);
        bytes.extend(sum);
        append(&mut bytes, self.headers_from(anchor.height + 1));
        bytes
    }

    /// The headers from `height` on as [`encode`](Self::encode) has them. None from the start or
    /// below, whose headers are in the preamble.
    pub fn encode_from(&self, height: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        append(&mut bytes, self.headers_from(height.max(self.anchor().height + 1)));
        bytes
    }

    /// Where in the bytes of [`encode`](Self::encode) the header at `height` is, or would be. For
    /// heights up to the start, where the preamble ends.
    pub fn record_offset(&self, height: u32) -> u64 {
        let above = height.saturating_sub(self.anchor().height + 1);
        preamble_len(self.anchor().height) as u64 + HEADER_LEN as u64 * u64::from(above)
    }

    /// Reads what [`encode`](Self::encode) wrote, whole: nothing of it is taken on trust but the
    /// anchor. Each header is checked as [`accept`](Self::accept) checks it, except against the
    /// clock; that takes one hash a header. Side headers are kept up to the usual limit.
    ///
    /// The preamble has a checksum. The headers need none: damage to one changes its hash, which
    /// then has no proof of work. On regtest it has in half of the cases, and the next header
    /// shows the damage, if there is one.
    ///
    /// # Errors
    /// The first thing that is wrong. If it is in a header, those before it are intact, and
    /// [`HeaderFileError::intact_len`] says where to cut.
    pub fn decode(bytes: &[u8]) -> Result<Self, HeaderFileError> {
        let (mut chain, records) = decode_preamble(bytes)?;
        let (records, cut) = records.as_chunks::<HEADER_LEN>();
        let mut height = chain.anchor().height;
        for records in records.chunks(MAX_HEADERS) {
            let headers: Vec<Header> = records.iter().map(header).collect();
            let refused = chain.accept(&headers, u32::MAX).err();
            let taken = headers.iter().zip(chain.headers_from(height + 1));
            let taken = taken.take_while(|(record, header)| record == header).count();
            if taken < headers.len() {
                let height = height + 1 + u32::try_from(taken).expect("at most 2000");
                let offset = chain.record_offset(height);
                return Err(match refused {
                    Some(error) if error.index == taken => {
                        HeaderFileError::Header { height, offset, cause: error.cause }
                    }
                    _ => HeaderFileError::NotLinked { height, offset },
                });
            }
            height = chain.tip().height;
        }
        if !cut.is_empty() {
            let offset = chain.record_offset(height + 1);
            return Err(HeaderFileError::Cut { offset, left: cut.len() });
        }
        Ok(chain)
    }
}

/// The length of the preamble of a chain that starts at `height`.
fn preamble_len(height: u32) -> usize {
    let headers = height.saturating_add(1).min(MEDIAN_SPAN) as usize + 1;
    MAGIC.len() + 1 + 32 + 4 + 32 + HEADER_LEN * headers + CHECKSUM_LEN
}

fn append(bytes: &mut Vec<u8>, headers: &[Header]) {
    bytes.reserve(HEADER_LEN * headers.len());
    for header in headers {
        consensus::Encodable::consensus_encode(header, bytes).expect("a Vec takes all");
    }
}

fn header(bytes: &[u8; HEADER_LEN]) -> Header {
    consensus::deserialize(bytes).expect("any 80 bytes are a header")
}

fn checksum(bytes: &[u8]) -> [u8; CHECKSUM_LEN] {
    let [a, b, c, d, ..] = sha256d::Hash::hash(bytes).to_byte_array();
    [a, b, c, d]
}

/// The chain up to its start, and the bytes behind the preamble.
fn decode_preamble(bytes: &[u8]) -> Result<(HeaderChain, &[u8]), HeaderFileError> {
    let mut rest = bytes;
    if take(&mut rest, bytes)? != MAGIC {
        return Err(HeaderFileError::Magic);
    }
    let [version] = take(&mut rest, bytes)?;
    if version != VERSION {
        return Err(HeaderFileError::Version { version, newest: VERSION });
    }
    let genesis = ChainHash::from(take::<32>(&mut rest, bytes)?);
    let height = u32::from_le_bytes(take(&mut rest, bytes)?);
    let work = Work::from_le_bytes(take(&mut rest, bytes)?);
    let length = preamble_len(height);
    let Some((preamble, records)) = bytes.split_at_checked(length) else {
        return Err(HeaderFileError::PreambleCut { length: bytes.len(), needed: length });
    };
    let (preamble, sum) = preamble.split_at(length - CHECKSUM_LEN);
    if checksum(preamble) != sum {
        return Err(HeaderFileError::Checksum);
    }
    let network = Network::from_chain_hash(genesis);
    let network = network.ok_or(HeaderFileError::UnknownChain { genesis })?;
    let period_first = header(&take(&mut rest, bytes)?);
    let (headers, _) = rest[..rest.len() - records.len() - CHECKSUM_LEN].as_chunks();
    let headers = headers.iter().map(header).collect();
    let anchor = Anchor { height, headers, period_first, work };
    Ok((HeaderChain::from_anchor(network, anchor)?, records))
}

/// Takes the next bytes off `rest`, which is the end of `bytes`.
fn take<const N: usize>(rest: &mut &[u8], bytes: &[u8]) -> Result<[u8; N], HeaderFileError> {
    let Some((taken, behind)) = rest.split_first_chunk() else {
        let needed = bytes.len() - rest.len() + N;
        return Err(HeaderFileError::PreambleCut { length: bytes.len(), needed });
    };
    *rest = behind;
    Ok(*taken)
}

/// Why bytes are not a chain of headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderFileError {
    /// Does not begin with `csheader`.
    #[error("not a file of headers")]
    Magic,
    /// A version from later than this code.
    #[error("version {version}, the newest known is {newest}")]
    Version {
        /// The version.
        version: u8,
        /// The newest version that is read.
        newest: u8,
    },
    /// Ends in the preamble.
    #[error("{length} bytes, at least {needed} are needed")]
    PreambleCut {
        /// The bytes there are.
        length: usize,
        /// The bytes needed.
        needed: usize,
    },
    /// The preamble is damaged.
    #[error("the checksum of the preamble is wrong")]
    Checksum,
    /// Of another network than `bitcoin` knows.
    #[error("no network has genesis {genesis}")]
    UnknownChain {
        /// The hash of the genesis block.
        genesis: ChainHash,
    },
    /// No start of a chain.
    #[error(transparent)]
    Anchor(#[from] AnchorError),
    /// A header that is refused.
    #[error("header at offset {offset}: {cause}")]
    Header {
        /// The height where it is.
        height: u32,
        /// Where it is in the bytes.
        offset: u64,
        /// Why it is refused.
        #[source]
        cause: HeaderError,
    },
    /// A header that is good elsewhere: it does not build on the one before.
    #[error("the header at offset {offset} does not build on height {}", height - 1)]
    NotLinked {
        /// The height where it is.
        height: u32,
        /// Where it is in the bytes.
        offset: u64,
    },
    /// Ends inside a header.
    #[error("{left} of the 80 bytes of the header at offset {offset}")]
    Cut {
        /// Where the header begins.
        offset: u64,
        /// The bytes that are there.
        left: usize,
    },
}

impl HeaderFileError {
    /// The length to which the bytes are intact: cut there, they decode. `None` if the preamble
    /// is not intact.
    pub fn intact_len(&self) -> Option<u64> {
        match self {
            Self::Header { offset, .. }
            | Self::NotLinked { offset, .. }
            | Self::Cut { offset, .. } => Some(*offset),
            _ => None,
        }
    }
}
