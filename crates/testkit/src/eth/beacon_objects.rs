//! Light-client objects of the Beacon API, written as SSZ and as JSON.
//!
//! The layouts are those of `light-client/sync-protocol.md` of consensus-specs, from Altair to
//! Gloas. Nothing here is shared with the decoder of the library.

use alloy_primitives::{B256, FixedBytes, U256, hex};
use bitcoin::hashes::{Hash as _, sha256};
use chainsieve::eth::anchor::network::{Fork, Network, Preset};
use chainsieve::eth::anchor::sync_committee::{
    BeaconHeader, BlobGas, Bootstrap, ExecutionHeader, ExecutionProof, LightClientHeader,
    SyncAggregate, SyncCommittee, Update, UpdateKind,
};
use serde_json::{Value, json};

/// Returns SHA-256 of two nodes of a tree.
pub fn parent(left: [u8; 32], right: [u8; 32]) -> [u8; 32] {
    sha256::Hash::hash(&[left, right].concat()).to_byte_array()
}

/// Lengths of the branches in a fork's containers: to a sync committee, and to the finalised root.
fn depths(fork: Fork) -> (usize, usize) {
    match fork {
        Fork::Electra | Fork::Fulu => (6, 7),
        Fork::Gloas => (11, 9),
        _ => (5, 6),
    }
}

/// A field of a container.
enum Field {
    Fixed(Vec<u8>),
    Variable(Vec<u8>),
}

/// Writes a container: the fixed part with an offset for each field of variable size, then these
/// fields.
fn container(fields: &[Field]) -> Vec<u8> {
    let length = |field: &Field| match field {
        Field::Fixed(bytes) => bytes.len(),
        Field::Variable(_) => 4,
    };
    let mut offset: usize = fields.iter().map(length).sum();
    let mut fixed = Vec::new();
    let mut variable: Vec<u8> = Vec::new();
    for field in fields {
        match field {
            Field::Fixed(bytes) => fixed.extend(bytes),
            Field::Variable(bytes) => {
                fixed.extend(u32::try_from(offset).expect("small").to_le_bytes());
                offset += bytes.len();
                variable.extend(bytes);
            }
        }
    }
    fixed.extend(variable);
    fixed
}

fn nodes(branch: &[B256]) -> Vec<u8> {
    branch.iter().flat_map(|node| node.0).collect()
}

fn beacon(header: &BeaconHeader) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(112);
    bytes.extend(header.slot.to_le_bytes());
    bytes.extend(header.proposer_index.to_le_bytes());
    for root in [header.parent_root, header.state_root, header.body_root] {
        bytes.extend(root.0);
    }
    bytes
}

fn execution(header: &ExecutionHeader, fork: Fork) -> Vec<u8> {
    let mut before = Vec::new();
    before.extend(header.parent_hash.0);
    before.extend(header.fee_recipient.0.0);
    before.extend(header.state_root.0);
    before.extend(header.receipts_root.0);
    before.extend(header.logs_bloom.0.0);
    before.extend(header.prev_randao.0);
    for number in [header.block_number, header.gas_limit, header.gas_used, header.timestamp] {
        before.extend(number.to_le_bytes());
    }
    let mut after = Vec::new();
    after.extend(header.base_fee_per_gas.to_le_bytes::<32>());
    after.extend(header.block_hash.0);
    after.extend(header.transactions_root.0);
    after.extend(header.withdrawals_root.0);
    if fork >= Fork::Deneb {
        let gas = header.blob_gas.unwrap_or_default();
        after.extend(gas.used.to_le_bytes());
        after.extend(gas.excess.to_le_bytes());
    }
    let extra = header.extra_data.to_vec();
    container(&[Field::Fixed(before), Field::Variable(extra), Field::Fixed(after)])
}

/// Returns the header in the container of a later fork, as servers convert it: with empty fields
/// before Capella, and with the hash and a longer branch from Gloas on.
///
/// # Panics
/// Panics if the container is older than the header's own.
pub fn converted(header: &LightClientHeader, to: Fork) -> LightClientHeader {
    let execution = match (&header.execution, to) {
        (ExecutionProof::Absent, Fork::Altair | Fork::Bellatrix) => ExecutionProof::Absent,
        (ExecutionProof::Absent, Fork::Gloas) => {
            ExecutionProof::Hash(B256::ZERO, Box::new([B256::ZERO; 11]))
        }
        (ExecutionProof::Absent, fork) => {
            let blob_gas = (fork >= Fork::Deneb).then(BlobGas::default);
            let empty = ExecutionHeader { blob_gas, ..ExecutionHeader::default() };
            ExecutionProof::Header(Box::new(empty), [B256::ZERO; 4])
        }
        (ExecutionProof::Header(execution, branch), Fork::Gloas) => {
            let mut longer = hash_branch(execution);
            longer.extend(branch);
            let padding = 11 - longer.len();
            let longer = [vec![B256::ZERO; padding], longer].concat();
            let longer: [B256; 11] = longer.try_into().expect("11 nodes");
            ExecutionProof::Hash(execution.block_hash, Box::new(longer))
        }
        (ExecutionProof::Header(execution, branch), fork) => {
            let mut execution = execution.clone();
            if fork >= Fork::Deneb {
                execution.blob_gas.get_or_insert_default();
            }
            assert!(fork >= Fork::Capella, "{fork} is older than Capella");
            ExecutionProof::Header(execution, *branch)
        }
        (ExecutionProof::Hash(..), fork) => {
            assert!(fork >= Fork::Gloas, "{fork} is older than Gloas");
            header.execution.clone()
        }
    };
    LightClientHeader { beacon: header.beacon, execution }
}

/// Returns the branch from the block hash to the root of an execution header of Capella to Fulu.
fn hash_branch(header: &ExecutionHeader) -> Vec<B256> {
    const BLOCK_HASH: usize = 12;
    let number = |number: u64| U256::from(number).to_le_bytes::<32>();
    let padded = |bytes: &[u8]| {
        let mut leaf = [0; 32];
        leaf[..bytes.len()].copy_from_slice(bytes);
        leaf
    };
    let bloom = header.logs_bloom.0.chunks(32).map(padded).collect();
    let extra_data = parent(padded(&header.extra_data), number(header.extra_data.len() as u64));
    let mut leaves = vec![
        header.parent_hash.0,
        padded(header.fee_recipient.as_slice()),
        header.state_root.0,
        header.receipts_root.0,
        levels(bloom).pop().expect("a root")[0],
        header.prev_randao.0,
        number(header.block_number),
        number(header.gas_limit),
        number(header.gas_used),
        number(header.timestamp),
        extra_data,
        header.base_fee_per_gas.to_le_bytes(),
        header.block_hash.0,
        header.transactions_root.0,
        header.withdrawals_root.0,
    ];
    leaves.extend(header.blob_gas.iter().flat_map(|gas| [number(gas.used), number(gas.excess)]));
    leaves.resize(leaves.len().next_power_of_two(), [0; 32]);
    let levels = levels(leaves);
    let below = &levels[..levels.len() - 1];
    below.iter().enumerate().map(|(up, nodes)| nodes[(BLOCK_HASH >> up) ^ 1].into()).collect()
}

/// Returns the levels of a tree, the leaves first.
fn levels(leaves: Vec<[u8; 32]>) -> Vec<Vec<[u8; 32]>> {
    let mut levels = vec![leaves];
    while let Some(last) = levels.last().filter(|last| last.len() > 1) {
        let above = last.chunks(2).map(|pair| parent(pair[0], pair[1])).collect();
        levels.push(above);
    }
    levels
}

/// Writes a header in a fork's container: with an execution header, it is of variable size.
fn header_ssz(header: &LightClientHeader, fork: Fork) -> Field {
    let header = converted(header, fork);
    let mut bytes = beacon(&header.beacon);
    match &header.execution {
        ExecutionProof::Absent => Field::Fixed(bytes),
        ExecutionProof::Header(header, branch) => Field::Variable(container(&[
            Field::Fixed(bytes),
            Field::Variable(execution(header, fork)),
            Field::Fixed(nodes(branch)),
        ])),
        ExecutionProof::Hash(hash, branch) => {
            bytes.extend(hash.0);
            bytes.extend(nodes(&branch[..]));
            Field::Fixed(bytes)
        }
    }
}

fn committee_ssz(committee: &SyncCommittee) -> Vec<u8> {
    committee.keys.iter().chain([&committee.aggregate]).flat_map(|key| key.0).collect()
}

fn aggregate_ssz(aggregate: &SyncAggregate) -> Vec<u8> {
    [&aggregate.bits[..], aggregate.signature.as_slice()].concat()
}

/// The parts of an update as its container has them: a part that is not there is all zeros.
struct Parts {
    committee: SyncCommittee,
    committee_branch: Vec<B256>,
    finalized: LightClientHeader,
    finality_branch: Vec<B256>,
}

impl Parts {
    fn of(update: &Update, fork: Fork, preset: Preset) -> Self {
        let (committee_depth, finality_depth) = depths(fork);
        let padded = |branch: &[B256], depth: usize| {
            [vec![B256::ZERO; depth - branch.len()], branch.to_vec()].concat()
        };
        let (committee, committee_branch) =
            if let Some((committee, branch)) = &update.next_committee {
                ((**committee).clone(), padded(branch, committee_depth))
            } else {
                let keys = vec![FixedBytes::ZERO; preset.sync_committee_size()].into();
                let empty = SyncCommittee { keys, aggregate: FixedBytes::ZERO };
                (empty, vec![B256::ZERO; committee_depth])
            };
        let finality = update.finality.as_ref();
        let finalized = finality.and_then(|finality| finality.header.clone()).unwrap_or_default();
        let branch = finality.map(|finality| &finality.branch[..]).unwrap_or_default();
        let finality_branch = padded(branch, finality_depth);
        Self { committee, committee_branch, finalized, finality_branch }
    }
}

/// Writes a bootstrap as SSZ of a fork.
pub fn bootstrap_ssz(bootstrap: &Bootstrap, fork: Fork) -> Vec<u8> {
    container(&[
        header_ssz(&bootstrap.header, fork),
        Field::Fixed(committee_ssz(&bootstrap.committee)),
        Field::Fixed(nodes(&bootstrap.committee_branch)),
    ])
}

/// Writes an update as SSZ of a fork.
pub fn update_ssz(update: &Update, kind: UpdateKind, fork: Fork, preset: Preset) -> Vec<u8> {
    let parts = Parts::of(update, fork, preset);
    let mut fields = vec![header_ssz(&update.attested, fork)];
    if kind == UpdateKind::Full {
        fields.push(Field::Fixed(committee_ssz(&parts.committee)));
        fields.push(Field::Fixed(nodes(&parts.committee_branch)));
    }
    if kind != UpdateKind::Optimistic {
        fields.push(header_ssz(&parts.finalized, fork));
        fields.push(Field::Fixed(nodes(&parts.finality_branch)));
    }
    fields.push(Field::Fixed(aggregate_ssz(&update.aggregate)));
    fields.push(Field::Fixed(update.signature_slot.to_le_bytes().to_vec()));
    container(&fields)
}

/// Writes updates as the chunks of an answer: length, fork digest, object.
pub fn update_chunks<'a>(
    updates: impl IntoIterator<Item = &'a Update>,
    network: &Network,
) -> Vec<u8> {
    let mut body = Vec::new();
    for update in updates {
        let slot = update.attested.beacon.slot;
        let digest = network.fork_digest(network.epoch_of_slot(slot));
        let fork = network.fork_at_slot(slot);
        let ssz = update_ssz(update, UpdateKind::Full, fork, network.preset());
        body.extend((ssz.len() as u64 + 4).to_le_bytes());
        body.extend(digest.0);
        body.extend(ssz);
    }
    body
}

fn header_json(header: &LightClientHeader, fork: Fork) -> Value {
    let header = converted(header, fork);
    let BeaconHeader { slot, proposer_index, parent_root, state_root, body_root } = header.beacon;
    let mut json = json!({
        "beacon": {
            "slot": slot.to_string(),
            "proposer_index": proposer_index.to_string(),
            "parent_root": parent_root,
            "state_root": state_root,
            "body_root": body_root,
        }
    });
    match &header.execution {
        ExecutionProof::Absent => {}
        ExecutionProof::Header(header, branch) => {
            json["execution"] = execution_json(header);
            json["execution_branch"] = json!(branch);
        }
        ExecutionProof::Hash(hash, branch) => {
            json["execution_block_hash"] = json!(hash);
            json["execution_branch"] = json!(&branch[..]);
        }
    }
    json
}

fn execution_json(header: &ExecutionHeader) -> Value {
    let mut json = json!({
        "parent_hash": header.parent_hash,
        "fee_recipient": header.fee_recipient,
        "state_root": header.state_root,
        "receipts_root": header.receipts_root,
        "logs_bloom": header.logs_bloom,
        "prev_randao": header.prev_randao,
        "block_number": header.block_number.to_string(),
        "gas_limit": header.gas_limit.to_string(),
        "gas_used": header.gas_used.to_string(),
        "timestamp": header.timestamp.to_string(),
        "extra_data": header.extra_data,
        "base_fee_per_gas": header.base_fee_per_gas.to_string(),
        "block_hash": header.block_hash,
        "transactions_root": header.transactions_root,
        "withdrawals_root": header.withdrawals_root,
    });
    if let Some(gas) = header.blob_gas {
        json["blob_gas_used"] = json!(gas.used.to_string());
        json["excess_blob_gas"] = json!(gas.excess.to_string());
    }
    json
}

fn committee_json(committee: &SyncCommittee) -> Value {
    json!({ "pubkeys": committee.keys, "aggregate_pubkey": committee.aggregate })
}

fn versioned(fork: Fork, data: &Value) -> Value {
    json!({ "version": fork.name(), "data": data })
}

/// Writes a bootstrap as JSON of a fork.
pub fn bootstrap_json(bootstrap: &Bootstrap, fork: Fork) -> Value {
    let data = json!({
        "header": header_json(&bootstrap.header, fork),
        "current_sync_committee": committee_json(&bootstrap.committee),
        "current_sync_committee_branch": bootstrap.committee_branch,
    });
    versioned(fork, &data)
}

/// Writes an update as JSON of a fork.
pub fn update_json(update: &Update, kind: UpdateKind, fork: Fork, preset: Preset) -> Value {
    let parts = Parts::of(update, fork, preset);
    let mut data = json!({
        "attested_header": header_json(&update.attested, fork),
        "sync_aggregate": {
            "sync_committee_bits": hex::encode_prefixed(&update.aggregate.bits),
            "sync_committee_signature": update.aggregate.signature,
        },
        "signature_slot": update.signature_slot.to_string(),
    });
    if kind == UpdateKind::Full {
        data["next_sync_committee"] = committee_json(&parts.committee);
        data["next_sync_committee_branch"] = json!(parts.committee_branch);
    }
    if kind != UpdateKind::Optimistic {
        data["finalized_header"] = header_json(&parts.finalized, fork);
        data["finality_branch"] = json!(parts.finality_branch);
    }
    versioned(fork, &data)
}
