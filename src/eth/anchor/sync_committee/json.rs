//! Light-client objects as JSON of the Beacon API.
//!
//! Numbers are decimal strings, bits and bytes are hex with `0x`. An object is wrapped in
//! `{"version": "fulu", "data": …}`; the answer of `updates` is a bare list of these. Unknown
//! members are ignored, because servers add their own.

use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use alloy_primitives::{Address, B256, Bloom, Bytes, FixedBytes, U256};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use super::committee::{SyncAggregate, SyncCommittee};
use super::header::{
    BeaconHeader, BlobGas, ExecutionHeader, ExecutionProof, Layout, LightClientHeader,
};
use super::ssz::DecodeError;
use super::update::{Bootstrap, Update, UpdateKind};
use crate::eth::anchor::network::{Fork, Preset};
use crate::eth::json::{self, Prefix, message};

/// An object with the fork of its container.
#[derive(Deserialize)]
struct Versioned<T> {
    version: Fork,
    data: T,
}

/// A number as a decimal string.
struct Decimal<T>(T);

impl<'de, T: core::str::FromStr> Deserialize<'de> for Decimal<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        // `from_str` would accept a sign, and for large numbers other bases.
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let number = digits.then(|| text.parse().ok()).flatten();
        number.map(Self).ok_or_else(|| {
            D::Error::custom(format_args!("{:?} is not a decimal number", json::excerpt(&text)))
        })
    }
}

/// Bytes of fixed length in hex.
struct Hex<const N: usize>([u8; N]);

impl<'de, const N: usize> Deserialize<'de> for Hex<N> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        let bytes = json::fixed_bytes(&text, Prefix::Required, "the field");
        bytes.map(Self).map_err(D::Error::custom)
    }
}

/// Bytes of any length in hex.
struct HexBytes(Vec<u8>);

impl<'de> Deserialize<'de> for HexBytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        json::bytes(&text).map(Self).map_err(D::Error::custom)
    }
}

type Root = Hex<32>;
type Number = Decimal<u64>;

#[derive(Deserialize)]
struct BeaconFields {
    slot: Number,
    proposer_index: Number,
    parent_root: Root,
    state_root: Root,
    body_root: Root,
}

#[derive(Deserialize)]
struct ExecutionFields {
    parent_hash: Root,
    fee_recipient: Hex<20>,
    state_root: Root,
    receipts_root: Root,
    logs_bloom: Hex<256>,
    prev_randao: Root,
    block_number: Number,
    gas_limit: Number,
    gas_used: Number,
    timestamp: Number,
    extra_data: HexBytes,
    base_fee_per_gas: Decimal<U256>,
    block_hash: Root,
    transactions_root: Root,
    withdrawals_root: Root,
    blob_gas_used: Option<Number>,
    excess_blob_gas: Option<Number>,
}

#[derive(Deserialize)]
struct HeaderFields {
    beacon: BeaconFields,
    execution: Option<Box<ExecutionFields>>,
    execution_block_hash: Option<Root>,
    execution_branch: Option<Vec<Root>>,
}

#[derive(Deserialize)]
struct CommitteeFields {
    pubkeys: Vec<Hex<48>>,
    aggregate_pubkey: Hex<48>,
}

#[derive(Deserialize)]
struct AggregateFields {
    sync_committee_bits: HexBytes,
    sync_committee_signature: Hex<96>,
}

#[derive(Deserialize)]
struct BootstrapFields {
    header: HeaderFields,
    current_sync_committee: CommitteeFields,
    current_sync_committee_branch: Vec<Root>,
}

#[derive(Deserialize)]
struct UpdateFields {
    attested_header: HeaderFields,
    next_sync_committee: Option<CommitteeFields>,
    next_sync_committee_branch: Option<Vec<Root>>,
    finalized_header: Option<HeaderFields>,
    finality_branch: Option<Vec<Root>>,
    sync_aggregate: AggregateFields,
    signature_slot: Number,
}

/// Converts the members of an object whose container is known.
#[derive(Clone, Copy)]
struct Reader {
    fork: Fork,
    layout: Layout,
    preset: Preset,
}

impl Reader {
    fn new(fork: Fork, preset: Preset) -> Result<Self, DecodeError> {
        let layout = Layout::of(fork).ok_or(DecodeError::NoLightClient(fork))?;
        Ok(Self { fork, layout, preset })
    }

    fn require<T>(self, member: &'static str, value: Option<T>) -> Result<T, DecodeError> {
        value.ok_or(DecodeError::Missing { member, fork: self.fork })
    }

    fn branch(
        self,
        member: &'static str,
        nodes: Option<Vec<Root>>,
        expected: usize,
    ) -> Result<Vec<B256>, DecodeError> {
        let nodes = self.require(member, nodes)?;
        exactly(member, nodes.len(), expected)?;
        Ok(nodes.into_iter().map(|node| B256::new(node.0)).collect())
    }

    fn header(self, fields: HeaderFields) -> Result<LightClientHeader, DecodeError> {
        const BRANCH: &str = "execution_branch";
        let BeaconFields { slot, proposer_index, parent_root, state_root, body_root } =
            fields.beacon;
        let beacon = BeaconHeader {
            slot: slot.0,
            proposer_index: proposer_index.0,
            parent_root: B256::new(parent_root.0),
            state_root: B256::new(state_root.0),
            body_root: B256::new(body_root.0),
        };
        let execution = match self.layout {
            Layout::Altair => ExecutionProof::Absent,
            Layout::Capella | Layout::Deneb | Layout::Electra => {
                let header = self.execution(*self.require("execution", fields.execution)?)?;
                let mut branch = [B256::ZERO; 4];
                let nodes = self.branch(BRANCH, fields.execution_branch, branch.len())?;
                branch.copy_from_slice(&nodes);
                ExecutionProof::Header(Box::new(header), branch)
            }
            Layout::Gloas => {
                let hash = self.require("execution_block_hash", fields.execution_block_hash)?;
                let mut branch = [B256::ZERO; 11];
                let nodes = self.branch(BRANCH, fields.execution_branch, branch.len())?;
                branch.copy_from_slice(&nodes);
                ExecutionProof::Hash(B256::new(hash.0), Box::new(branch))
            }
        };
        Ok(LightClientHeader { beacon, execution })
    }

    fn execution(self, fields: ExecutionFields) -> Result<ExecutionHeader, DecodeError> {
        let blob_gas = if self.layout.has_blobs() {
            let used = self.require("blob_gas_used", fields.blob_gas_used)?.0;
            let excess = self.require("excess_blob_gas", fields.excess_blob_gas)?.0;
            Some(BlobGas { used, excess })
        } else {
            None
        };
        let mut header = ExecutionHeader {
            parent_hash: B256::new(fields.parent_hash.0),
            fee_recipient: Address::new(fields.fee_recipient.0),
            state_root: B256::new(fields.state_root.0),
            receipts_root: B256::new(fields.receipts_root.0),
            logs_bloom: Bloom::new(fields.logs_bloom.0),
            prev_randao: B256::new(fields.prev_randao.0),
            block_number: fields.block_number.0,
            gas_limit: fields.gas_limit.0,
            gas_used: fields.gas_used.0,
            timestamp: fields.timestamp.0,
            extra_data: Bytes::new(),
            base_fee_per_gas: fields.base_fee_per_gas.0,
            block_hash: B256::new(fields.block_hash.0),
            transactions_root: B256::new(fields.transactions_root.0),
            withdrawals_root: B256::new(fields.withdrawals_root.0),
            blob_gas,
        };
        header.set_extra_data(&fields.extra_data.0)?;
        Ok(header)
    }

    fn committee(self, fields: CommitteeFields) -> Result<SyncCommittee, DecodeError> {
        exactly("pubkeys", fields.pubkeys.len(), self.preset.sync_committee_size())?;
        let keys = fields.pubkeys.into_iter().map(|key| FixedBytes::new(key.0)).collect();
        Ok(SyncCommittee { keys, aggregate: FixedBytes::new(fields.aggregate_pubkey.0) })
    }

    fn aggregate(self, fields: AggregateFields) -> Result<SyncAggregate, DecodeError> {
        let bits = fields.sync_committee_bits.0;
        exactly("sync_committee_bits", bits.len(), self.preset.sync_committee_size() / 8)?;
        let signature = FixedBytes::new(fields.sync_committee_signature.0);
        Ok(SyncAggregate { bits: bits.into(), signature })
    }

    fn bootstrap(self, fields: BootstrapFields) -> Result<Bootstrap, DecodeError> {
        let depth = self.layout.committee_depth();
        let branch = Some(fields.current_sync_committee_branch);
        Ok(Bootstrap {
            header: self.header(fields.header)?,
            committee: Arc::new(self.committee(fields.current_sync_committee)?),
            committee_branch: self.branch("current_sync_committee_branch", branch, depth)?,
        })
    }

    fn update(self, fields: UpdateFields, kind: UpdateKind) -> Result<Update, DecodeError> {
        let next = if kind == UpdateKind::Full {
            let committee = self.require("next_sync_committee", fields.next_sync_committee)?;
            let (nodes, depth) = (fields.next_sync_committee_branch, self.layout.committee_depth());
            let branch = self.branch("next_sync_committee_branch", nodes, depth)?;
            Some((self.committee(committee)?, branch))
        } else {
            None
        };
        let finalized = if kind == UpdateKind::Optimistic {
            None
        } else {
            let header = self.require("finalized_header", fields.finalized_header)?;
            let (nodes, depth) = (fields.finality_branch, self.layout.finality_depth());
            let branch = self.branch("finality_branch", nodes, depth)?;
            Some((self.header(header)?, branch))
        };
        let attested = self.header(fields.attested_header)?;
        let aggregate = self.aggregate(fields.sync_aggregate)?;
        let update =
            Update::assemble(attested, next, finalized, aggregate, fields.signature_slot.0)?;
        Ok(update)
    }
}

fn exactly(member: &'static str, found: usize, expected: usize) -> Result<(), DecodeError> {
    if found == expected { Ok(()) } else { Err(DecodeError::Length { member, found, expected }) }
}

fn parse<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, DecodeError> {
    serde_json::from_str(text).map_err(|error| DecodeError::Json(message(&error)))
}

impl Bootstrap {
    /// Parses the JSON answer of `/eth/v1/beacon/light_client/bootstrap/{root}`.
    ///
    /// # Errors
    /// Returns a [`DecodeError`] that tells what is malformed, and where.
    ///
    /// # Cost
    /// Allocates at most a small multiple of the text's length.
    pub fn from_json(text: &str, preset: Preset) -> Result<Self, DecodeError> {
        let object: Versioned<BootstrapFields> = parse(text)?;
        Reader::new(object.version, preset)?.bootstrap(object.data)
    }
}

impl Update {
    /// Parses the JSON answer of `/eth/v1/beacon/light_client/finality_update` or
    /// `optimistic_update`, or one element of the list that `updates` returns.
    ///
    /// # Errors
    /// Returns a [`DecodeError`] that tells what is malformed, and where.
    ///
    /// # Cost
    /// Allocates at most a small multiple of the text's length.
    pub fn from_json(text: &str, kind: UpdateKind, preset: Preset) -> Result<Self, DecodeError> {
        let object: Versioned<UpdateFields> = parse(text)?;
        Reader::new(object.version, preset)?.update(object.data, kind)
    }

    /// Parses the JSON answer of `/eth/v1/beacon/light_client/updates`: a list of updates.
    ///
    /// # Errors
    /// Returns a [`DecodeError`] if any update is malformed.
    ///
    /// # Cost
    /// Allocates at most a small multiple of the text's length.
    pub fn list_from_json(text: &str, preset: Preset) -> Result<Vec<Self>, DecodeError> {
        let objects: Vec<Versioned<UpdateFields>> = parse(text)?;
        let read = |object: Versioned<UpdateFields>| {
            Reader::new(object.version, preset)?.update(object.data, UpdateKind::Full)
        };
        objects.into_iter().map(read).collect()
    }
}
