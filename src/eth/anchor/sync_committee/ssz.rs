//! SSZ: reading of containers, and roots of vectors and lists.
//!
//! A container is its fixed part, followed by the fields of variable size. In place of each field
//! of variable size, the fixed part holds a 4-byte little-endian offset. Source:
//! `ssz/simple-serialize.md` of consensus-specs.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use alloy_primitives::{B256, FixedBytes};
use thiserror::Error;

use crate::eth::anchor::merkle_branch::parent;
use crate::eth::anchor::network::Fork;

/// Version of the format of a stored light client.
pub(super) const STORED_VERSION: u32 = 1;

/// Reason why bytes or JSON are not a light-client object, or a text is not a stored light client.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The fork has no light-client objects.
    #[error("{0} has no light-client objects")]
    NoLightClient(Fork),
    /// The bytes end within a field, or have a length that the container does not have.
    #[error("{what}: {found} bytes, expected {expected}")]
    Size {
        /// The container.
        what: &'static str,
        /// Number of bytes found.
        found: usize,
        /// Number of bytes of the container, or of its fixed part.
        expected: usize,
    },
    /// An offset does not point to the end of the preceding field.
    #[error("{what}: offset {found}, expected {expected}")]
    Offset {
        /// The container.
        what: &'static str,
        /// The offset.
        found: usize,
        /// The only valid offset, or the smallest valid offset.
        expected: usize,
    },
    /// A list is longer than its limit.
    #[error("{what}: {found} bytes, but at most {limit} are allowed")]
    TooLong {
        /// The list.
        what: &'static str,
        /// Number of bytes found.
        found: usize,
        /// Maximum number of bytes.
        limit: usize,
    },
    /// The object has a next sync committee without its branch.
    #[error("a next sync committee without a branch")]
    CommitteeWithoutBranch,
    /// The object has a finalised header without its branch.
    #[error("a finalised header without a branch")]
    FinalizedWithoutBranch,
    /// The finalised header is in slot 0 but not empty. A state commits to the genesis block as a
    /// root of zero.
    #[error("a finalised header of slot 0 that is not empty")]
    FinalizedGenesis,
    /// The text is not JSON, or a member is missing or malformed. The message tells the place.
    #[error("{0}")]
    Json(String),
    /// A list or byte string has a length that the fork or preset does not have.
    #[error("{member}: {found} values, expected {expected}")]
    Length {
        /// Name of the member.
        member: &'static str,
        /// Number of values found.
        found: usize,
        /// Number of values of the fork's container.
        expected: usize,
    },
    /// A member is missing that the fork has.
    #[error("{member} is missing in an object of {fork}")]
    Missing {
        /// Name of the member.
        member: &'static str,
        /// Fork that the object claims.
        fork: Fork,
    },
    /// The answer ends within the chunk.
    #[error("{found} bytes, expected {expected}")]
    Truncated {
        /// Number of bytes that are left.
        found: usize,
        /// Number of bytes that the chunk states.
        expected: u64,
    },
    /// The chunk is too short for a fork digest.
    #[error("a chunk of {0} bytes has no fork digest")]
    NoDigest(u64),
    /// The digest is that of no fork of the network.
    #[error("fork digest {0} is unknown on this network")]
    UnknownDigest(FixedBytes<4>),
    /// One of several updates in an answer is malformed.
    #[error("update {index} of the answer: {problem}")]
    InList {
        /// Index of the update.
        index: usize,
        /// Reason why it is malformed.
        problem: Box<Self>,
    },
    /// The text of a stored light client is not JSON, or a member is missing or malformed.
    #[error("not a stored light client: {0}")]
    Stored(String),
    /// The stored light client has a format version that this library cannot read.
    #[error("the light client has format version {0}; this library reads version {STORED_VERSION}")]
    Version(u32),
    /// The text of a stored light client was changed after it was written.
    #[error("the light client has the SHA-256 {computed}, but states {stated}")]
    Checksum {
        /// SHA-256 of the member `client`.
        computed: B256,
        /// The value that the text states.
        stated: B256,
    },
    /// The stored light client belongs to another network.
    #[error("the light client is of the network with validators root {stored}, not {expected}")]
    OtherNetwork {
        /// Genesis validators root in the text.
        stored: B256,
        /// Genesis validators root of the network that was given.
        expected: B256,
    },
    /// A stored committee has another size than the network's.
    #[error("a committee of {found} bytes of keys, expected {expected}")]
    CommitteeSize {
        /// Number of bytes.
        found: usize,
        /// Number of bytes of the network's committees.
        expected: usize,
    },
    /// A key of a stored committee is invalid.
    #[error("key {index} of the sync committee is not a point of the curve, or is infinity")]
    Key {
        /// Index of the key in the committee.
        index: usize,
    },
    /// Two members of a stored light client contradict each other.
    #[error("{0}")]
    Contradiction(&'static str),
}

/// Reads the fixed part of a container from left to right.
#[derive(Debug)]
pub(super) struct Container<'a> {
    what: &'static str,
    bytes: &'a [u8],
    rest: &'a [u8],
    /// Offsets read so far.
    offsets: Vec<usize>,
}

impl<'a> Container<'a> {
    pub(super) const fn new(what: &'static str, bytes: &'a [u8]) -> Self {
        Self { what, bytes, rest: bytes, offsets: Vec::new() }
    }

    pub(super) fn take(&mut self, length: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(DecodeError::Size {
            what: self.what,
            found: self.bytes.len(),
            expected: self.position() + length,
        })?;
        self.rest = rest;
        Ok(taken)
    }

    const fn position(&self) -> usize {
        self.bytes.len() - self.rest.len()
    }

    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    pub(super) fn root(&mut self) -> Result<B256, DecodeError> {
        self.array().map(B256::new)
    }

    pub(super) fn u64(&mut self) -> Result<u64, DecodeError> {
        self.array().map(u64::from_le_bytes)
    }

    pub(super) fn branch(&mut self, depth: usize) -> Result<Vec<B256>, DecodeError> {
        // The bytes are taken first, so that memory is proportional to the input.
        let bytes = self.take(32 * depth)?;
        Ok(bytes.as_chunks().0.iter().map(|node| B256::new(*node)).collect())
    }

    /// Reads the offset of a field of variable size.
    pub(super) fn offset(&mut self) -> Result<(), DecodeError> {
        let offset = u32::from_le_bytes(self.array()?);
        self.offsets.push(usize::try_from(offset).unwrap_or(usize::MAX));
        Ok(())
    }

    /// Ends the fixed part, and returns the bytes of each field of variable size.
    ///
    /// The first of these fields starts at the end of the fixed part, each field ends where the
    /// next field starts, and the last field ends with the container.
    pub(super) fn end(self) -> Result<Vec<&'a [u8]>, DecodeError> {
        let (what, found) = (self.what, self.bytes.len());
        let mut start = self.position();
        match self.offsets.first() {
            None if !self.rest.is_empty() => {
                return Err(DecodeError::Size { what, found, expected: start });
            }
            Some(&first) if first != start => {
                return Err(DecodeError::Offset { what, found: first, expected: start });
            }
            _ => {}
        }
        let ends = self.offsets.iter().skip(1).copied().chain([found]);
        let mut fields = Vec::with_capacity(self.offsets.len());
        for end in ends.take(self.offsets.len()) {
            let field = self.bytes.get(start..end);
            fields.push(field.ok_or(DecodeError::Offset { what, found: end, expected: start })?);
            start = end;
        }
        Ok(fields)
    }
}

/// Returns the leaf of a `uint64`.
pub(super) fn uint64_leaf(value: u64) -> [u8; 32] {
    let mut leaf = [0; 32];
    leaf[..8].copy_from_slice(&value.to_le_bytes());
    leaf
}

/// Returns the leaves of a byte vector: chunks of 32 bytes, the last chunk padded with zeros.
pub(super) fn byte_leaves(bytes: &[u8]) -> Vec<[u8; 32]> {
    let leaf = |chunk: &[u8]| {
        let mut leaf = [0; 32];
        leaf[..chunk.len()].copy_from_slice(chunk);
        leaf
    };
    bytes.chunks(32).map(leaf).collect()
}

/// Returns the root of a tree whose leaves are padded with zeros to a power of two.
///
/// # Cost
/// At most two SHA-256 of 64 bytes for each leaf.
pub(super) fn merkle_root(leaves: &[[u8; 32]]) -> [u8; 32] {
    let mut level = leaves.to_vec();
    level.resize(leaves.len().max(1).next_power_of_two(), [0; 32]);
    while level.len() > 1 {
        level = level.as_chunks().0.iter().map(|[left, right]| parent(left, right)).collect();
    }
    level.first().copied().unwrap_or_default()
}
