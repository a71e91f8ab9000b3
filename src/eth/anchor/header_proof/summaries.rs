//! The list of historical summaries in a beacon state, and its proof.

use alloc::string::String;
use alloc::vec::Vec;

use alloy_primitives::B256;

use crate::eth::anchor::grade::Grade;
use crate::eth::anchor::list_root::ListRoot;
use crate::eth::anchor::merkle_branch::{self, parent};
use crate::eth::json;

/// Length of a summary in SSZ.
const SUMMARY: usize = 64;

/// Length of the fixed part of the SSZ container before its branch: epoch (8) and offset (4).
const FIXED: usize = 12;

/// The roots of the blocks and states of one period of 8,192 slots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct HistoricalSummary {
    /// Root of the vector of 8,192 block roots, one for each slot.
    pub block_summary_root: B256,
    /// Root of the vector of 8,192 state roots, one for each slot.
    pub state_summary_root: B256,
}

/// Historical summaries with their Merkle branch in a beacon state. Not verified.
///
/// The list has one summary for each period since Capella. It grows by one every 8,192 slots, and
/// never changes otherwise.
///
/// # JSON
/// `serde` reads and writes `{"historical_summaries": […], "proof": […]}`. Unknown members are
/// ignored.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct SummariesProof {
    /// The summaries of all complete periods since Capella.
    #[serde(rename = "historical_summaries")]
    pub summaries: Vec<HistoricalSummary>,
    /// The branch of the list in the beacon state, the lowest sibling first.
    #[serde(rename = "proof")]
    pub branch: Vec<B256>,
}

/// Reason why historical summaries are rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SummariesError {
    /// The text is not the JSON of a node's answer. The message names the member.
    #[error("{0}")]
    Json(String),
    /// The length of the SSZ is impossible.
    #[error("{found} bytes are not whole summaries of {SUMMARY} bytes after a branch")]
    Length {
        /// Number of bytes.
        found: usize,
    },
    /// The offset of the list in the SSZ does not follow a branch of a known length.
    #[error("the list starts at byte {found}, not after a branch of 5, 6 or 11 nodes")]
    Offset {
        /// The offset found.
        found: u32,
    },
    /// The branch fits no fork's beacon state.
    #[error("a branch of {found} nodes, known are 5 (Capella), 6 (Electra) and 11 (Gloas)")]
    BranchLength {
        /// Number of nodes in the branch.
        found: usize,
    },
    /// There are more summaries than the state's list can have.
    #[error("{found} summaries, the list has at most {limit}")]
    TooMany {
        /// Number of summaries.
        found: usize,
        /// Maximum number of summaries.
        limit: u64,
    },
    /// The branch leads from the list to another root.
    #[error("the branch leads to the state root {computed}, expected {expected}")]
    OtherState {
        /// The root to which the branch leads.
        computed: B256,
        /// The believed state root.
        expected: B256,
    },
}

/// Historical summaries that a believed beacon state has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownSummaries {
    summaries: Vec<HistoricalSummary>,
    grade: Grade,
}

impl SummariesProof {
    /// Decodes the SSZ container `HistoricalSummariesWithProof`: epoch (u64), offset of the list
    /// (u32), branch, list. Integers are little-endian. The epoch is not kept, because no root
    /// covers it.
    ///
    /// # Errors
    /// Returns an error if the offset or the length is impossible.
    pub fn from_ssz(bytes: &[u8]) -> Result<Self, SummariesError> {
        let length = SummariesError::Length { found: bytes.len() };
        let (fixed, rest) = bytes.split_first_chunk::<FIXED>().ok_or(length.clone())?;
        let [.., a, b, c, d] = *fixed;
        let found = u32::from_le_bytes([a, b, c, d]);
        let nodes = match found {
            172 => 5,
            204 => 6,
            364 => 11,
            _ => return Err(SummariesError::Offset { found }),
        };
        let (branch, list) = rest.split_at_checked(nodes * 32).ok_or(length)?;
        let (branch, _) = branch.as_chunks::<32>();
        Ok(Self {
            summaries: summaries_from_ssz(list)?,
            branch: branch.iter().copied().map(B256::new).collect(),
        })
    }

    /// Parses the answer of a beacon node, with its envelope `data` or without it.
    ///
    /// There is no standard endpoint. Lodestar has
    /// `/eth/v1/lodestar/states/{root}/historical_summaries`, Nimbus has
    /// `/nimbus/v1/debug/beacon/states/{root}/historical_summaries`.
    ///
    /// # Errors
    /// Returns [`SummariesError::Json`].
    pub fn from_json(text: &str) -> Result<Self, SummariesError> {
        #[derive(serde::Deserialize)]
        struct Answer {
            data: Option<SummariesProof>,
            historical_summaries: Option<Vec<HistoricalSummary>>,
            proof: Option<Vec<B256>>,
        }
        let answer: Answer = serde_json::from_str(text)
            .map_err(|error| SummariesError::Json(json::message(&error)))?;
        if let Some(data) = answer.data {
            return Ok(data);
        }
        let missing = |name| SummariesError::Json(alloc::format!("missing field `{name}`"));
        Ok(Self {
            summaries: answer
                .historical_summaries
                .ok_or_else(|| missing("historical_summaries"))?,
            branch: answer.proof.ok_or_else(|| missing("proof"))?,
        })
    }

    /// Verifies that the state with this root has the summaries.
    ///
    /// `grade` says why the state root is believed. The length of the branch tells the fork of the
    /// state: 5 nodes are generalised index 59 (Capella, Deneb), 6 are 91 (Electra, Fulu), 11 are
    /// 2950 (Gloas). A wrong fork cannot be made to fit, because the list's root is the hash of its
    /// elements and its length.
    ///
    /// # Errors
    /// Returns an error if the branch has another length, or leads to another root.
    ///
    /// # Cost
    /// Two SHA-256 hashes of 64 bytes for each summary.
    pub fn verify(self, state_root: B256, grade: Grade) -> Result<KnownSummaries, SummariesError> {
        let gindex = match self.branch.len() {
            5 => 59,
            6 => 91,
            11 => 2950,
            found => return Err(SummariesError::BranchLength { found }),
        };
        let branch: Vec<_> = self.branch.iter().map(|node| node.0).collect();
        let leaf = list_root(&self.summaries)?;
        let computed = merkle_branch::root(leaf, &branch, gindex).map_or(B256::ZERO, B256::new);
        if computed != state_root {
            return Err(SummariesError::OtherState { computed, expected: state_root });
        }
        Ok(KnownSummaries { summaries: self.summaries, grade: grade.of_ancestor() })
    }
}

impl KnownSummaries {
    /// Takes a list that the caller believes for a reason of its own, with the grade of that
    /// reason. `ssz` is the bare list: 64 bytes for each summary.
    ///
    /// # Errors
    /// Returns [`SummariesError::Length`] if the length is not a multiple of 64.
    pub fn trusted(ssz: &[u8], grade: Grade) -> Result<Self, SummariesError> {
        Ok(Self { summaries: summaries_from_ssz(ssz)?, grade })
    }

    /// Returns the summaries, the first period since Capella first.
    pub fn summaries(&self) -> &[HistoricalSummary] {
        &self.summaries
    }

    /// Returns the grade of a block that is proven under these summaries.
    pub fn grade(&self) -> Grade {
        self.grade
    }
}

fn summaries_from_ssz(list: &[u8]) -> Result<Vec<HistoricalSummary>, SummariesError> {
    let (roots, rest) = list.as_chunks::<32>();
    let (pairs, odd) = roots.as_chunks::<2>();
    if !rest.is_empty() || !odd.is_empty() {
        return Err(SummariesError::Length { found: list.len() });
    }
    let summary = |&[block, state]: &[[u8; 32]; 2]| HistoricalSummary {
        block_summary_root: block.into(),
        state_summary_root: state.into(),
    };
    Ok(pairs.iter().map(summary).collect())
}

/// Returns the root of the list: `hash_tree_root(List[HistoricalSummary, 2**24])`.
fn list_root(summaries: &[HistoricalSummary]) -> Result<[u8; 32], SummariesError> {
    let mut list = ListRoot::<24>::new();
    for summary in summaries {
        if !list.push(parent(&summary.block_summary_root, &summary.state_summary_root)) {
            let (found, limit) = (summaries.len(), ListRoot::<24>::LIMIT);
            return Err(SummariesError::TooMany { found, limit });
        }
    }
    Ok(list.list_root())
}
