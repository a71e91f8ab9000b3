//! A made-up chain: Merkle trees with few leaves, committees with known keys, and signatures by
//! another BLS library.

use std::collections::BTreeMap;
use std::sync::Arc;

use alloy_primitives::{Address, B256, Bytes, U256};
use bitcoin::hashes::{Hash as _, sha256};
use blst::min_pk::{AggregatePublicKey, AggregateSignature, SecretKey};
use chainsieve::eth::anchor::network::{Fork, ForkVersion, Network, Preset};
use chainsieve::eth::anchor::sync_committee::{
    BeaconHeader, BlobGas, Bootstrap, ExecutionHeader, ExecutionProof, Finality, LightClientHeader,
    NextCommittee, PublicKey, Signature, SyncAggregate, SyncCommittee, Update,
};
use serde_json::json;

/// Number of members of a committee of the minimal preset.
pub(crate) const MEMBERS: usize = 32;
/// Number of slots in a period of the minimal preset.
pub(crate) const PERIOD: u64 = 64;

fn hash(left: [u8; 32], right: [u8; 32]) -> [u8; 32] {
    sha256::Hash::hash(&[left, right].concat()).to_byte_array()
}

/// A Merkle tree in which all subtrees without a given leaf are zero.
pub(crate) struct Tree(BTreeMap<u64, B256>);

impl Tree {
    pub(crate) fn new(leaves: impl IntoIterator<Item = (u64, B256)>) -> Self {
        Self(leaves.into_iter().collect())
    }

    fn node(&self, gindex: u64) -> [u8; 32] {
        if let Some(leaf) = self.0.get(&gindex) {
            return leaf.0;
        }
        let is_below = |leaf: &u64| {
            let levels = leaf.ilog2().checked_sub(gindex.ilog2());
            levels.is_some_and(|levels| leaf >> levels == gindex)
        };
        if !self.0.keys().any(is_below) {
            return [0; 32];
        }
        hash(self.node(2 * gindex), self.node(2 * gindex + 1))
    }

    pub(crate) fn root(&self) -> B256 {
        self.node(1).into()
    }

    pub(crate) fn branch(&self, gindex: u64) -> Vec<B256> {
        let path = std::iter::successors(Some(gindex), |node| Some(node / 2));
        path.take_while(|node| *node > 1).map(|node| self.node(node ^ 1).into()).collect()
    }
}

/// Generalized indices of the finalised root and of the current committee, by fork.
fn state_indices(fork: Fork) -> (u64, u64) {
    match fork {
        Fork::Electra | Fork::Fulu => (169, 86),
        Fork::Gloas => (735, 2945),
        _ => (105, 54),
    }
}

/// Returns the execution header of a made-up block.
fn execution_header(slot: u64, fork: Fork) -> ExecutionHeader {
    ExecutionHeader {
        parent_hash: B256::with_last_byte(1),
        fee_recipient: Address::repeat_byte(7),
        block_number: slot + 1000,
        base_fee_per_gas: U256::from(slot),
        extra_data: Bytes::from(vec![3; usize::try_from(slot % 33).expect("small")]),
        block_hash: hash([9; 32], [u8::try_from(slot % 251).expect("small"); 32]).into(),
        blob_gas: (fork >= Fork::Deneb).then_some(BlobGas { used: slot, excess: 2 * slot }),
        ..ExecutionHeader::default()
    }
}

/// Returns a body's root and the proof of what it binds.
fn body(slot: u64, fork: Fork) -> (B256, ExecutionProof) {
    let execution = execution_header(slot, fork);
    if fork < Fork::Capella {
        return (B256::repeat_byte(5), ExecutionProof::Absent);
    }
    if fork == Fork::Gloas {
        let tree = Tree::new([(2856, execution.block_hash)]);
        let branch = tree.branch(2856).try_into().expect("a depth of 11");
        return (tree.root(), ExecutionProof::Hash(execution.block_hash, Box::new(branch)));
    }
    let tree = Tree::new([(25, execution.root())]);
    let branch = tree.branch(25).try_into().expect("a depth of 4");
    (tree.root(), ExecutionProof::Header(Box::new(execution), branch))
}

fn header(network: &Network, slot: u64, state_root: B256) -> LightClientHeader {
    let (body_root, execution) = body(slot, network.fork_at_slot(slot));
    let beacon = BeaconHeader {
        slot,
        proposer_index: slot % 17,
        parent_root: B256::repeat_byte(0x77),
        state_root,
        body_root,
    };
    LightClientHeader { beacon, execution }
}

/// Returns a header whose state has this committee, and the committee's branch.
pub(crate) fn checkpoint(
    network: &Network,
    slot: u64,
    committee: &SyncCommittee,
) -> (LightClientHeader, Vec<B256>) {
    let (_, current) = state_indices(network.fork_at_slot(slot));
    let state = Tree::new([(current, committee.root())]);
    (header(network, slot, state.root()), state.branch(current))
}

/// Secret keys and committee of a period.
pub(crate) struct Members {
    keys: Vec<SecretKey>,
    pub(crate) committee: Arc<SyncCommittee>,
}

impl Members {
    pub(crate) fn of_keys(keys: Vec<SecretKey>) -> Self {
        let public: Vec<_> = keys.iter().map(SecretKey::sk_to_pk).collect();
        let all: Vec<_> = public.iter().collect();
        let sum = AggregatePublicKey::aggregate(&all, false).expect("keys").to_public_key();
        let keys_of = public.iter().map(|key| PublicKey::new(key.compress())).collect();
        let aggregate = PublicKey::new(sum.compress());
        Self { keys, committee: Arc::new(SyncCommittee { keys: keys_of, aggregate }) }
    }

    fn of_period(period: u64) -> Self {
        let key = |member: usize| {
            let seed = sha256::Hash::hash(format!("period {period} member {member}").as_bytes());
            SecretKey::key_gen(&seed.to_byte_array(), &[]).expect("32 bytes")
        };
        Self::of_keys((0..MEMBERS).map(key).collect())
    }

    /// Signs a header's root with the first `participants` keys.
    pub(crate) fn sign(
        &self,
        root: B256,
        participants: usize,
        version: ForkVersion,
        validators: B256,
    ) -> SyncAggregate {
        let mut padded = [0; 32];
        padded[..4].copy_from_slice(version.as_slice());
        let data = hash(padded, validators.0);
        let mut domain = [0; 32];
        domain[0] = 7;
        domain[4..].copy_from_slice(&data[..28]);
        let message = hash(root.0, domain);
        let suite = b"BLS_SIG_BLS12381G2_XMD:SHA-256_SSWU_RO_POP_";
        let signatures: Vec<_> =
            self.keys[..participants].iter().map(|key| key.sign(&message, suite, &[])).collect();
        let all: Vec<_> = signatures.iter().collect();
        let signature = match &all[..] {
            [] => infinity(),
            all => {
                let sum = AggregateSignature::aggregate(all, false).expect("signatures");
                Signature::new(sum.to_signature().compress())
            }
        };
        let mut bits = [0; MEMBERS / 8];
        (0..participants).for_each(|member| bits[member / 8] |= 1 << (member % 8));
        SyncAggregate { bits: bits.into(), signature }
    }
}

/// Returns the signature at infinity.
pub(crate) fn infinity() -> Signature {
    let mut bytes = [0; 96];
    bytes[0] = 0xc0;
    Signature::new(bytes)
}

/// A chain in which each period from the second one on has a new fork.
pub(crate) struct World {
    pub(crate) network: Network,
    members: Vec<Members>,
}

/// What an update of the made-up chain contains.
#[derive(Clone, Copy)]
pub(crate) struct Draft {
    pub(crate) attested: u64,
    /// Slot of the finalised header, if the update has one; 0 is the genesis block.
    pub(crate) finalized: Option<u64>,
    /// `true` if the update contains the next committee.
    pub(crate) committee: bool,
    pub(crate) participants: usize,
    pub(crate) signature_slot: u64,
    /// Version to sign with; `None` for the right one.
    pub(crate) version: Option<ForkVersion>,
}

impl Draft {
    /// An update by the whole committee with everything in it, signed in the next slot.
    pub(crate) fn full(attested: u64, finalized: u64) -> Self {
        Self {
            attested,
            finalized: Some(finalized),
            committee: true,
            participants: MEMBERS,
            signature_slot: attested + 1,
            version: None,
        }
    }

    /// The same without the next committee.
    pub(crate) fn finality(attested: u64, finalized: u64) -> Self {
        Self { committee: false, ..Self::full(attested, finalized) }
    }

    /// The same without next committee and finalised header.
    pub(crate) fn optimistic(attested: u64) -> Self {
        Self { committee: false, finalized: None, ..Self::full(attested, 0) }
    }

    pub(crate) const fn by(self, participants: usize) -> Self {
        Self { participants, ..self }
    }
}

impl World {
    pub(crate) fn new() -> Self {
        let forks = Fork::Phase0.name();
        let epochs = [
            (forks, 0),
            ("altair", 0),
            ("bellatrix", 8),
            ("capella", 16),
            ("deneb", 24),
            ("electra", 32),
            ("fulu", 40),
            ("gloas", 48),
        ];
        let schedule: Vec<_> = epochs
            .iter()
            .enumerate()
            .map(|(index, (name, epoch))| {
                json!({"name": name, "version": format!("0x0{index}0000ff"), "epoch": epoch})
            })
            .collect();
        let network = json!({
            "name": "made-up",
            "preset": Preset::Minimal,
            "genesis_time": 1_000_000,
            "genesis_validators_root": B256::repeat_byte(0xab),
            "forks": schedule,
        });
        let network = serde_json::from_value(network).expect("a network");
        Self { network, members: (0..10).map(Members::of_period).collect() }
    }

    pub(crate) fn members(&self, period: u64) -> &Members {
        &self.members[usize::try_from(period).expect("small")]
    }

    /// Returns the header of a block whose state finalises a root.
    fn block(&self, slot: u64, finalized: B256) -> (LightClientHeader, Tree) {
        let (finality, current) = state_indices(self.network.fork_at_slot(slot));
        let period = self.network.period_of_slot(slot);
        let state = Tree::new([
            (finality, finalized),
            (current, self.members(period).committee.root()),
            (current + 1, self.members(period + 1).committee.root()),
        ]);
        (header(&self.network, slot, state.root()), state)
    }

    /// Returns the header of the finalised block of a slot.
    pub(crate) fn finalized(&self, slot: u64) -> LightClientHeader {
        self.block(slot, B256::ZERO).0
    }

    pub(crate) fn bootstrap(&self, slot: u64) -> Bootstrap {
        let (header, state) = self.block(slot, B256::ZERO);
        let (_, current) = state_indices(self.network.fork_at_slot(slot));
        let committee = &self.members(self.network.period_of_slot(slot)).committee;
        let committee_branch = state.branch(current);
        Bootstrap { header, committee: Arc::clone(committee), committee_branch }
    }

    pub(crate) fn update(&self, draft: Draft) -> Update {
        let finalized = draft.finalized.filter(|slot| *slot > 0).map(|slot| self.finalized(slot));
        let root = finalized.as_ref().map_or(B256::ZERO, |header| header.beacon.root());
        let (attested, state) = self.block(draft.attested, root);
        let (finality, current) = state_indices(self.network.fork_at_slot(draft.attested));
        let next = self.network.period_of_slot(draft.attested) + 1;
        let next_committee = draft.committee.then(|| NextCommittee {
            committee: Arc::clone(&self.members(next).committee),
            branch: state.branch(current + 1),
        });
        let finality =
            draft.finalized.map(|_| Finality { header: finalized, branch: state.branch(finality) });
        let mut update = Update {
            attested,
            next_committee,
            finality,
            aggregate: SyncAggregate { bits: [0; 4].into(), signature: infinity() },
            signature_slot: draft.signature_slot,
        };
        self.sign(&mut update, draft);
        update
    }

    /// Signs the attested header of an update as its draft says.
    pub(crate) fn sign(&self, update: &mut Update, draft: Draft) {
        let period = self.network.period_of_slot(draft.signature_slot);
        // The committee signs the block of the slot before.
        let version = draft.version.unwrap_or_else(|| version_at(draft.signature_slot - 1));
        update.aggregate = self.members(period).sign(
            update.attested.beacon.root(),
            draft.participants,
            version,
            self.network.genesis_validators_root(),
        );
    }
}

/// Returns the version of a slot: one fork a period, from Altair on.
pub(crate) fn version_at(slot: u64) -> ForkVersion {
    let index = u8::try_from((slot / PERIOD + 1).min(7)).expect("small");
    ForkVersion::new([index, 0, 0, 0xff])
}
