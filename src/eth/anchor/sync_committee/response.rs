//! The answer of `/eth/v1/beacon/light_client/updates` as SSZ: updates one after the other.
//!
//! | bytes | field |
//! |---|---|
//! | 8 | length of the rest of the chunk, little-endian |
//! | 4 | fork digest of the attested slot |
//! | length − 4 | the update |

use thiserror::Error;

use super::update::{DecodeError, Update, UpdateKind};
use crate::eth::anchor::network::{Fork, ForkDigest, Network};

/// Reason why an answer of several updates is malformed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("update {index} of the answer: {problem}")]
#[non_exhaustive]
pub struct ResponseError {
    /// Index of the chunk.
    pub index: usize,
    /// Reason why it is malformed.
    pub problem: ChunkProblem,
}

/// Reason why one chunk of an answer is malformed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ChunkProblem {
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
    UnknownDigest(ForkDigest),
    /// The object is malformed.
    #[error(transparent)]
    Object(#[from] DecodeError),
}

/// Iterator over the updates of an answer. It ends after the first error.
#[derive(Debug, Clone)]
pub struct UpdateChunks<'a> {
    network: &'a Network,
    rest: &'a [u8],
    index: usize,
}

impl<'a> UpdateChunks<'a> {
    /// Reads the body of an answer. The digests are those of `network`.
    pub const fn new(body: &'a [u8], network: &'a Network) -> Self {
        Self { network, rest: body, index: 0 }
    }

    fn read(&mut self) -> Result<Update, ChunkProblem> {
        let truncated = |expected| ChunkProblem::Truncated { found: self.rest.len(), expected };
        let (length, rest) = self.rest.split_first_chunk().ok_or(truncated(12))?;
        let length = u64::from_le_bytes(*length);
        let chunk = usize::try_from(length).ok().and_then(|length| rest.split_at_checked(length));
        let (chunk, rest) = chunk.ok_or(truncated(length.saturating_add(8)))?;
        let (digest, ssz) = chunk.split_first_chunk().ok_or(ChunkProblem::NoDigest(length))?;
        let fork = fork_of(self.network, ForkDigest::new(*digest))?;
        self.rest = rest;
        Ok(Update::from_ssz(ssz, UpdateKind::Full, fork, self.network.preset())?)
    }
}

fn fork_of(network: &Network, digest: ForkDigest) -> Result<Fork, ChunkProblem> {
    network.fork_of_digest(digest).ok_or(ChunkProblem::UnknownDigest(digest))
}

impl Iterator for UpdateChunks<'_> {
    type Item = Result<Update, ResponseError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let index = self.index;
        self.index += 1;
        let update = self.read();
        if update.is_err() {
            self.rest = &[];
        }
        Some(update.map_err(|problem| ResponseError { index, problem }))
    }
}
