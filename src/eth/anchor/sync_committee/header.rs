//! Headers of the beacon chain and of the execution chain, and the proof that binds an execution
//! header to a beacon header.

use alloc::boxed::Box;
use alloc::vec::Vec;

use alloy_primitives::{Address, B256, Bloom, Bytes, U256};

use super::refusal::LightClientError;
use super::ssz::{Container, DecodeError, byte_leaves, merkle_root, uint64_leaf};
use crate::eth::anchor::merkle_branch;
use crate::eth::anchor::network::{Fork, Network};

/// Generalized index of the execution payload in the body of a beacon block, from Capella to Fulu.
const EXECUTION_PAYLOAD: u64 = 25;
/// Generalized index of the payload's block hash in the body, in Capella.
const BLOCK_HASH_CAPELLA: u64 = 412;
/// Generalized index of the payload's block hash in the body, from Deneb to Fulu.
const BLOCK_HASH_DENEB: u64 = 812;
/// Generalized index of `signed_execution_payload_bid.message.parent_block_hash` in the body, from
/// Gloas on.
const PARENT_BLOCK_HASH_GLOAS: u64 = 2856;
/// Depth of [`EXECUTION_PAYLOAD`].
const EXECUTION_DEPTH: usize = 4;
/// Depth of [`PARENT_BLOCK_HASH_GLOAS`].
const EXECUTION_DEPTH_GLOAS: usize = 11;
/// Maximum length of [`ExecutionHeader::extra_data`]: `MAX_EXTRA_DATA_BYTES`.
pub(super) const EXTRA_DATA_LIMIT: usize = 32;

/// Header of a beacon block. SSZ: 112 bytes.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize,
)]
pub struct BeaconHeader {
    /// Slot of the block.
    pub slot: u64,
    /// Index of the validator that proposed the block.
    pub proposer_index: u64,
    /// Root of the parent's header.
    pub parent_root: B256,
    /// Root of the state after the block.
    pub state_root: B256,
    /// Root of the block's body.
    pub body_root: B256,
}

impl BeaconHeader {
    fn decode(fields: &mut Container<'_>) -> Result<Self, DecodeError> {
        Ok(Self {
            slot: fields.u64()?,
            proposer_index: fields.u64()?,
            parent_root: fields.root()?,
            state_root: fields.root()?,
            body_root: fields.root()?,
        })
    }

    /// Returns the root of the header, by which a beacon block is named: `hash_tree_root`.
    pub fn root(&self) -> B256 {
        B256::new(merkle_root(&[
            uint64_leaf(self.slot),
            uint64_leaf(self.proposer_index),
            self.parent_root.0,
            self.state_root.0,
            self.body_root.0,
        ]))
    }
}

/// Gas of a block's blobs, from Deneb on.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize,
)]
pub struct BlobGas {
    /// `blob_gas_used` of the header.
    pub used: u64,
    /// `excess_blob_gas` of the header.
    pub excess: u64,
}

/// `ExecutionPayloadHeader` of the beacon chain: an execution header as the beacon chain stores it.
///
/// All fields except two are those of the block's RLP header, and can be used at once. The fields
/// `transactions_root` and `withdrawals_root` are SSZ roots and differ from the roots in the RLP
/// header.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ExecutionHeader {
    /// Hash of the parent block.
    pub parent_hash: B256,
    /// Address that received the fees.
    pub fee_recipient: Address,
    /// Root of the state after the block.
    pub state_root: B256,
    /// Root of the block's receipts.
    pub receipts_root: B256,
    /// Filter of the block's logs.
    pub logs_bloom: Bloom,
    /// Randomness of the beacon chain; `mixHash` of the RLP header.
    pub prev_randao: B256,
    /// Number of the block.
    pub block_number: u64,
    /// Gas limit.
    pub gas_limit: u64,
    /// Gas used.
    pub gas_used: u64,
    /// Seconds since the Unix epoch.
    pub timestamp: u64,
    /// Extra data, at most 32 bytes.
    pub extra_data: Bytes,
    /// Base fee per gas in wei.
    pub base_fee_per_gas: U256,
    /// Hash of the block.
    pub block_hash: B256,
    /// SSZ root of the transactions.
    pub transactions_root: B256,
    /// SSZ root of the withdrawals.
    pub withdrawals_root: B256,
    /// Gas of the blobs; `None` in Capella's container.
    pub blob_gas: Option<BlobGas>,
}

impl ExecutionHeader {
    fn decode(bytes: &[u8], has_blobs: bool) -> Result<Self, DecodeError> {
        let mut fields = Container::new("execution header", bytes);
        let mut header = Self {
            parent_hash: fields.root()?,
            fee_recipient: Address::new(fields.array()?),
            state_root: fields.root()?,
            receipts_root: fields.root()?,
            logs_bloom: Bloom::new(fields.array()?),
            prev_randao: fields.root()?,
            block_number: fields.u64()?,
            gas_limit: fields.u64()?,
            gas_used: fields.u64()?,
            timestamp: fields.u64()?,
            ..Self::default()
        };
        fields.offset()?;
        header.base_fee_per_gas = U256::from_le_bytes(fields.array::<32>()?);
        header.block_hash = fields.root()?;
        header.transactions_root = fields.root()?;
        header.withdrawals_root = fields.root()?;
        if has_blobs {
            header.blob_gas = Some(BlobGas { used: fields.u64()?, excess: fields.u64()? });
        }
        for extra_data in fields.end()? {
            header.set_extra_data(extra_data)?;
        }
        Ok(header)
    }

    /// Sets the extra data after a check of its length.
    pub(super) fn set_extra_data(&mut self, bytes: &[u8]) -> Result<(), DecodeError> {
        if bytes.len() > EXTRA_DATA_LIMIT {
            let (found, limit) = (bytes.len(), EXTRA_DATA_LIMIT);
            return Err(DecodeError::TooLong { what: "extra data", found, limit });
        }
        self.extra_data = Bytes::copy_from_slice(bytes);
        Ok(())
    }

    /// Returns the SSZ root, with or without the fields of [`BlobGas`]: `hash_tree_root`.
    ///
    /// Deneb's container has these fields also for an older block, whose root does not cover them.
    fn root_of(&self, blob_gas: Option<BlobGas>) -> B256 {
        let mut address = [0; 32];
        address[..20].copy_from_slice(self.fee_recipient.as_slice());
        // The list's root covers its length, so that padding cannot be taken for data.
        let extra_data = merkle_branch::parent(
            &merkle_root(&byte_leaves(&self.extra_data)),
            &uint64_leaf(self.extra_data.len() as u64),
        );
        let mut leaves = Vec::from([
            self.parent_hash.0,
            address,
            self.state_root.0,
            self.receipts_root.0,
            merkle_root(&byte_leaves(self.logs_bloom.as_slice())),
            self.prev_randao.0,
            uint64_leaf(self.block_number),
            uint64_leaf(self.gas_limit),
            uint64_leaf(self.gas_used),
            uint64_leaf(self.timestamp),
            extra_data,
            self.base_fee_per_gas.to_le_bytes(),
            self.block_hash.0,
            self.transactions_root.0,
            self.withdrawals_root.0,
        ]);
        leaves.extend(blob_gas.iter().flat_map(|gas| [gas.used, gas.excess]).map(uint64_leaf));
        B256::new(merkle_root(&leaves))
    }

    /// Returns the SSZ root of the header: `hash_tree_root`.
    pub fn root(&self) -> B256 {
        self.root_of(self.blob_gas)
    }
}

/// The part of a light-client header about the execution chain, with its proof.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum ExecutionProof {
    /// Nothing: the containers of Altair and Bellatrix.
    #[default]
    Absent,
    /// The execution header, and the branch from its root to the body's root: the containers of
    /// Capella to Fulu.
    Header(Box<ExecutionHeader>, [B256; EXECUTION_DEPTH]),
    /// The hash of an execution block, and the branch to the body's root, padded with zeros in
    /// front: the container of Gloas.
    Hash(B256, Box<[B256; EXECUTION_DEPTH_GLOAS]>),
}

impl ExecutionProof {
    /// Returns `true` if all fields are zero, which means that the header is absent.
    fn is_empty(&self) -> bool {
        match self {
            Self::Absent => true,
            Self::Header(header, branch) => {
                let without = ExecutionHeader { blob_gas: None, ..(**header).clone() };
                without == ExecutionHeader::default()
                    && header.blob_gas.unwrap_or_default() == BlobGas::default()
                    && branch.iter().all(B256::is_zero)
            }
            Self::Hash(hash, branch) => hash.is_zero() && branch.iter().all(B256::is_zero),
        }
    }
}

/// `LightClientHeader`: a beacon header, and the part of it about the execution chain.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LightClientHeader {
    /// Header of the beacon block.
    pub beacon: BeaconHeader,
    /// Execution header or hash, not checked yet.
    pub execution: ExecutionProof,
}

/// The execution block that a beacon header commits to.
///
/// # The lag of Gloas
/// From Gloas on, a beacon block only promises its own execution block. It commits to the last
/// execution block that the chain has accepted before it: the execution block of its parent or of
/// an earlier ancestor. So several beacon headers can bind the same hash, and the newest execution
/// block is not bound yet. The type keeps these cases apart.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum BoundExecution {
    /// No execution block: the header is older than Capella.
    #[default]
    Nothing,
    /// The execution header of the beacon block itself: Capella to Fulu.
    Header(Box<ExecutionHeader>),
    /// The hash of the beacon block's own execution block. The header is not included: a block of
    /// Capella to Fulu in the container of Gloas.
    Hash(B256),
    /// The hash of the last execution block before this beacon block: from Gloas on.
    ParentHash(B256),
}

impl BoundExecution {
    /// Returns the hash of the bound execution block: the beacon block's own execution block or,
    /// from Gloas on, an earlier execution block. Returns `None` before Capella.
    pub fn bound_hash(&self) -> Option<B256> {
        match self {
            Self::Nothing => None,
            Self::Header(header) => Some(header.block_hash),
            Self::Hash(hash) | Self::ParentHash(hash) => Some(*hash),
        }
    }

    /// Returns the execution header, if it is included.
    pub fn header(&self) -> Option<&ExecutionHeader> {
        match self {
            Self::Header(header) => Some(header),
            _ => None,
        }
    }

    /// Returns `true` if the bound block is older than the beacon block: from Gloas on.
    pub const fn lags(&self) -> bool {
        matches!(self, Self::ParentHash(_))
    }
}

/// The form of a light-client header, and the number of levels of the state's tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Layout {
    Altair,
    Capella,
    Deneb,
    Electra,
    Gloas,
}

impl Layout {
    /// Returns the layout of a fork's containers; `None` before Altair.
    pub(super) fn of(fork: Fork) -> Option<Self> {
        Some(match fork {
            Fork::Phase0 => return None,
            Fork::Altair | Fork::Bellatrix => Self::Altair,
            Fork::Capella => Self::Capella,
            Fork::Deneb => Self::Deneb,
            Fork::Electra | Fork::Fulu => Self::Electra,
            Fork::Gloas => Self::Gloas,
        })
    }

    /// Returns the length of a header of fixed size; `None` if the header has an offset.
    pub(super) const fn header_size(self) -> Option<usize> {
        match self {
            Self::Altair => Some(112),
            Self::Capella | Self::Deneb | Self::Electra => None,
            Self::Gloas => Some(112 + 32 + 32 * EXECUTION_DEPTH_GLOAS),
        }
    }

    /// Returns `true` if an execution header has [`BlobGas`].
    pub(super) const fn has_blobs(self) -> bool {
        !matches!(self, Self::Altair | Self::Capella)
    }

    /// Returns the length of the branch to a sync committee.
    pub(super) const fn committee_depth(self) -> usize {
        match self {
            Self::Altair | Self::Capella | Self::Deneb => 5,
            Self::Electra => 6,
            Self::Gloas => 11,
        }
    }

    /// Returns the length of the branch to the finalised root.
    pub(super) const fn finality_depth(self) -> usize {
        match self {
            Self::Altair | Self::Capella | Self::Deneb => 6,
            Self::Electra => 7,
            Self::Gloas => 9,
        }
    }
}

impl LightClientHeader {
    /// Decodes a header in the container of `layout`.
    pub(super) fn decode(bytes: &[u8], layout: Layout) -> Result<Self, DecodeError> {
        let mut fields = Container::new("light-client header", bytes);
        let beacon = BeaconHeader::decode(&mut fields)?;
        let execution = match layout {
            Layout::Altair => ExecutionProof::Absent,
            Layout::Capella | Layout::Deneb | Layout::Electra => {
                fields.offset()?;
                let branch = nodes(&mut fields)?;
                let mut header = ExecutionHeader::default();
                for bytes in fields.end()? {
                    header = ExecutionHeader::decode(bytes, layout.has_blobs())?;
                }
                return Ok(Self {
                    beacon,
                    execution: ExecutionProof::Header(Box::new(header), branch),
                });
            }
            Layout::Gloas => {
                let hash = fields.root()?;
                ExecutionProof::Hash(hash, Box::new(nodes(&mut fields)?))
            }
        };
        fields.end()?;
        Ok(Self { beacon, execution })
    }

    /// Returns `true` if all fields are zero, which means that the header is absent.
    pub(super) fn is_empty(&self) -> bool {
        self.beacon == BeaconHeader::default() && self.execution.is_empty()
    }

    /// Returns the execution block that the header binds, after checking the proof:
    /// `is_valid_light_client_header`.
    ///
    /// A container of a later fork may hold a header of an earlier fork. The fields and branches
    /// are then those of the fork of the header's own slot.
    ///
    /// # Errors
    /// Returns a [`LightClientError`] if the container lacks a field of the header's fork, has a field
    /// of a later fork, or if the branch is wrong.
    pub fn bound_execution(&self, network: &Network) -> Result<BoundExecution, LightClientError> {
        let slot = self.beacon.slot;
        let fork = network.fork_at_slot(slot);
        let body = self.beacon.body_root;
        let old = LightClientError::OldContainer { slot, fork };
        let later = LightClientError::FieldOfLaterFork { slot, fork };
        let wrong = LightClientError::ExecutionBranch { slot };
        if fork < Fork::Capella {
            return if self.execution.is_empty() {
                Ok(BoundExecution::Nothing)
            } else {
                Err(later)
            };
        }
        match &self.execution {
            ExecutionProof::Header(header, branch) if fork < Fork::Gloas => {
                let blob_gas = match header.blob_gas {
                    Some(_) if fork >= Fork::Deneb => header.blob_gas,
                    None if fork >= Fork::Deneb => return Err(old),
                    Some(gas) if gas != BlobGas::default() => return Err(later),
                    _ => None,
                };
                let root = header.root_of(blob_gas);
                if !proves(root, branch, EXECUTION_PAYLOAD, body) {
                    return Err(wrong);
                }
                let header = ExecutionHeader { blob_gas, ..(**header).clone() };
                Ok(BoundExecution::Header(Box::new(header)))
            }
            ExecutionProof::Hash(hash, branch) => {
                let (gindex, bound) = match fork {
                    Fork::Capella => (BLOCK_HASH_CAPELLA, BoundExecution::Hash(*hash)),
                    fork if fork < Fork::Gloas => (BLOCK_HASH_DENEB, BoundExecution::Hash(*hash)),
                    _ => (PARENT_BLOCK_HASH_GLOAS, BoundExecution::ParentHash(*hash)),
                };
                if proves(*hash, &**branch, gindex, body) { Ok(bound) } else { Err(wrong) }
            }
            ExecutionProof::Absent | ExecutionProof::Header(..) => Err(old),
        }
    }
}

/// Reads a branch of fixed length.
fn nodes<const N: usize>(fields: &mut Container<'_>) -> Result<[B256; N], DecodeError> {
    let mut branch = [B256::ZERO; N];
    for node in &mut branch {
        *node = fields.root()?;
    }
    Ok(branch)
}

/// Returns `true` if a branch proves a leaf: `is_valid_normalized_merkle_branch`.
///
/// A container of a later fork may be deeper than the tree of the header's fork. The branch is then
/// padded in front, and the padding must be zero.
pub(super) fn proves(leaf: B256, branch: &[B256], gindex: u64, root: B256) -> bool {
    let depth = gindex.checked_ilog2().map_or(0, |depth| depth as usize);
    let Some(padding) = branch.len().checked_sub(depth) else { return false };
    let (padding, branch) = branch.split_at(padding);
    let branch: Vec<[u8; 32]> = branch.iter().map(|node| node.0).collect();
    padding.iter().all(B256::is_zero) && merkle_branch::is_valid(leaf.0, &branch, gindex, root.0)
}
