//! A made-up chain: Merkle trees with few leaves, committees with known keys, and signatures by
//! another BLS library.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use alloy_consensus::Header;
use alloy_primitives::{Address, B256, Bytes, FixedBytes, U256, keccak256, uint};
use alloy_rlp::Decodable as _;
use bitcoin::hashes::{Hash as _, sha256};
use blst::min_pk::{AggregatePublicKey, SecretKey};
use chainsieve::eth::anchor::network::{Fork, Network, Preset};
use chainsieve::eth::anchor::sync_committee::{
    Action, BeaconHeader, BlobGas, Bootstrap, Event, ExecutionHeader, ExecutionProof, Finality,
    LightClient, LightClientError, LightClientHeader, SyncAggregate, SyncCommittee, Update,
};
use serde_json::{Value, json};

use super::beacon_objects::{converted, parent as hash};

/// Number of members of a committee of the minimal preset.
pub const MEMBERS: usize = 32;
/// Number of slots in a period of the minimal preset.
pub const PERIOD: u64 = 64;
/// Number of slots in an epoch of the minimal preset.
pub const EPOCH: u64 = 8;

/// All forks, in ascending order.
pub const FORKS: [Fork; 8] = [
    Fork::Phase0,
    Fork::Altair,
    Fork::Bellatrix,
    Fork::Capella,
    Fork::Deneb,
    Fork::Electra,
    Fork::Fulu,
    Fork::Gloas,
];

/// Slot `slot` of period `period`.
pub const fn at(period: u64, slot: u64) -> u64 {
    period * PERIOD + slot
}

/// Length of a slot of [`started`] in seconds, so long that a test ends in the slot in which it began.
const LONG_SLOT: u64 = 3_600;

/// Returns members of a network's JSON by which slot `now` has started, and lasts longer than a test.
pub fn started(now: u64) -> Value {
    let since = Duration::from_secs(now * LONG_SLOT + LONG_SLOT / 8);
    let unix = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    let genesis = unix.saturating_sub(since).as_secs();
    json!({ "genesis_time": genesis, "seconds_per_slot": LONG_SLOT })
}

/// Order of the groups of BLS12-381.
const ORDER: U256 = uint!(0x73eda753299d7d483339d80809a1d80553bda402fffe5bfeffffffff00000001_U256);

/// A Merkle tree in which all subtrees without a given leaf are zero.
pub struct Tree(BTreeMap<u64, B256>);

impl Tree {
    pub fn new(leaves: impl IntoIterator<Item = (u64, B256)>) -> Self {
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

    pub fn root(&self) -> B256 {
        self.node(1).into()
    }

    pub fn branch(&self, gindex: u64) -> Vec<B256> {
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
fn body(execution: ExecutionHeader, fork: Fork) -> (B256, ExecutionProof) {
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

fn header(
    slot: u64,
    fork: Fork,
    state_root: B256,
    execution: ExecutionHeader,
) -> LightClientHeader {
    let (body_root, execution) = body(execution, fork);
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
pub fn checkpoint(
    network: &Network,
    slot: u64,
    committee: &SyncCommittee,
) -> (LightClientHeader, Vec<B256>) {
    let fork = network.fork_at_slot(slot);
    let (_, current) = state_indices(fork);
    let state = Tree::new([(current, committee.root())]);
    let header = header(slot, fork, state.root(), execution_header(slot, fork));
    (header, state.branch(current))
}

/// Secret keys and committee of a period.
pub struct Members {
    keys: Vec<SecretKey>,
    pub committee: Arc<SyncCommittee>,
}

impl Members {
    pub fn of_keys(keys: Vec<SecretKey>) -> Self {
        let public: Vec<_> = keys.iter().map(SecretKey::sk_to_pk).collect();
        let all: Vec<_> = public.iter().collect();
        let sum = AggregatePublicKey::aggregate(&all, false).expect("keys").to_public_key();
        let keys_of = public.iter().map(|key| FixedBytes::new(key.compress())).collect();
        let aggregate = FixedBytes::new(sum.compress());
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
    pub fn sign(
        &self,
        root: B256,
        participants: usize,
        version: FixedBytes<4>,
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
        // The sum of the signatures of one message is the signature by the sum of the keys.
        let number = |key: &SecretKey| U256::from_be_bytes(key.serialize());
        let keys = self.keys[..participants].iter().map(number);
        let sum = keys.fold(U256::ZERO, |sum, key| sum.add_mod(key, ORDER));
        let signature = if sum.is_zero() {
            infinity()
        } else {
            let key = SecretKey::deserialize(&sum.to_be_bytes::<32>()).expect("below the order");
            FixedBytes::new(key.sign(&message, suite, &[]).compress())
        };
        let mut bits = [0; MEMBERS / 8];
        (0..participants).for_each(|member| bits[member / 8] |= 1 << (member % 8));
        SyncAggregate { bits: bits.into(), signature }
    }
}

/// Returns the signature at infinity.
pub fn infinity() -> FixedBytes<96> {
    let mut bytes = [0; 96];
    bytes[0] = 0xc0;
    FixedBytes::new(bytes)
}

/// Blocks and committees with known keys, of the minimal preset.
pub struct World {
    pub network: Network,
    /// First epochs of the forks from Altair on.
    epochs: [u64; 7],
    members: Vec<OnceLock<Members>>,
    /// The execution blocks that the blocks of some slots bind, in place of made-up ones.
    bound: BTreeMap<u64, ExecutionHeader>,
}

/// What an update of the made-up chain contains.
#[derive(Clone, Copy)]
pub struct Draft {
    pub attested: u64,
    /// Slot of the finalised header, if the update has one; 0 is the genesis block.
    pub finalized: Option<u64>,
    /// `true` if the update contains the next committee.
    pub committee: bool,
    pub participants: usize,
    pub signature_slot: u64,
    /// Version to sign with; `None` for the right one.
    pub version: Option<FixedBytes<4>>,
}

impl Draft {
    /// An update by the whole committee with everything in it, signed in the next slot.
    pub fn full(attested: u64, finalized: u64) -> Self {
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
    pub fn finality(attested: u64, finalized: u64) -> Self {
        Self { committee: false, ..Self::full(attested, finalized) }
    }

    /// The same without next committee and finalised header.
    pub fn optimistic(attested: u64) -> Self {
        Self { committee: false, finalized: None, ..Self::full(attested, 0) }
    }

    #[must_use]
    pub const fn by(self, participants: usize) -> Self {
        Self { participants, ..self }
    }
}

impl World {
    /// Returns a chain of nine periods, in which each period from the second one on has a new fork.
    pub fn new() -> Self {
        Self::with([0, 8, 16, 24, 32, 40, 48], 9, &json!({}))
    }

    /// Returns a chain with these first epochs of the forks from Altair on, and this number of
    /// periods. `members` are further members of the network's JSON, or other values.
    pub fn with(epochs: [u64; 7], periods: u64, members: &Value) -> Self {
        let schedule: Vec<_> = FORKS
            .iter()
            .zip([0].into_iter().chain(epochs))
            .zip(0..)
            .map(|((fork, epoch), index)| {
                json!({"name": fork.name(), "version": version_of(index), "epoch": epoch})
            })
            .collect();
        let mut network = json!({
            "name": "made-up",
            "preset": Preset::Minimal,
            "genesis_time": 1_000_000,
            "genesis_validators_root": B256::repeat_byte(0xab),
            "forks": schedule,
        });
        for (name, value) in members.as_object().expect("members") {
            network[name] = value.clone();
        }
        let network = serde_json::from_value(network).expect("a network");
        // The last period has a next committee too.
        let members = (0..=periods).map(|_| OnceLock::new()).collect();
        Self { network, epochs, members, bound: BTreeMap::new() }
    }

    /// Lets the block of a slot bind the execution block with this header.
    pub fn bind(&mut self, slot: u64, header_rlp: &[u8]) {
        let header = Header::decode(&mut &header_rlp[..]).expect("a header");
        let fork = self.network.fork_at_slot(slot);
        let execution = ExecutionHeader {
            parent_hash: header.parent_hash,
            fee_recipient: header.beneficiary,
            state_root: header.state_root,
            receipts_root: header.receipts_root,
            logs_bloom: header.logs_bloom,
            prev_randao: header.mix_hash,
            block_number: header.number,
            gas_limit: header.gas_limit,
            gas_used: header.gas_used,
            timestamp: header.timestamp,
            extra_data: header.extra_data,
            base_fee_per_gas: U256::from(header.base_fee_per_gas.unwrap_or_default()),
            block_hash: keccak256(header_rlp),
            transactions_root: header.transactions_root,
            withdrawals_root: header.withdrawals_root.unwrap_or_default(),
            blob_gas: (fork >= Fork::Deneb).then(BlobGas::default),
        };
        self.bound.insert(slot, execution);
    }

    /// Returns the execution header of a slot.
    fn execution(&self, slot: u64) -> ExecutionHeader {
        let made_up = || execution_header(slot, self.network.fork_at_slot(slot));
        self.bound.get(&slot).cloned().unwrap_or_else(made_up)
    }

    /// Returns the version with which the block of a slot is signed.
    pub fn version_at(&self, slot: u64) -> FixedBytes<4> {
        let index = self.epochs.iter().filter(|first| **first <= slot / EPOCH).count();
        version_of(u8::try_from(index).expect("few"))
    }

    /// Starts a light client from the bootstrap of a slot, at the time of the slot.
    pub fn start(&self, slot: u64) -> LightClient {
        let bootstrap = self.bootstrap(slot);
        let trusted = bootstrap.header.beacon.root();
        let now = self.network.time_of_slot(slot);
        LightClient::new(self.network.clone(), trusted, &bootstrap, now).expect("valid")
    }

    /// Applies an update in the slot of its signature.
    pub fn apply(
        &self,
        client: &mut LightClient,
        draft: Draft,
    ) -> Result<Vec<Action>, LightClientError> {
        let now = self.network.time_of_slot(draft.signature_slot);
        client.handle(Event::Update(&self.update(draft)), now)
    }

    pub fn members(&self, period: u64) -> &Members {
        let members = &self.members[usize::try_from(period).expect("small")];
        members.get_or_init(|| Members::of_period(period))
    }

    /// Returns the header of a block whose state finalises a root.
    pub fn block(&self, slot: u64, finalized: B256) -> (LightClientHeader, Tree) {
        let fork = self.network.fork_at_slot(slot);
        let (finality, current) = state_indices(fork);
        let period = self.network.period_of_slot(slot);
        let state = Tree::new([
            (finality, finalized),
            (current, self.members(period).committee.root()),
            (current + 1, self.members(period + 1).committee.root()),
        ]);
        (header(slot, fork, state.root(), self.execution(slot)), state)
    }

    /// Returns the header of the finalised block of a slot.
    pub fn finalized(&self, slot: u64) -> LightClientHeader {
        self.block(slot, B256::ZERO).0
    }

    pub fn bootstrap(&self, slot: u64) -> Bootstrap {
        self.bootstrap_with(slot, B256::ZERO)
    }

    /// Returns the bootstrap of a block whose state finalises a root.
    pub fn bootstrap_with(&self, slot: u64, finalized: B256) -> Bootstrap {
        let (header, state) = self.block(slot, finalized);
        let (_, current) = state_indices(self.network.fork_at_slot(slot));
        let committee = &self.members(self.network.period_of_slot(slot)).committee;
        let committee_branch = state.branch(current);
        Bootstrap { header, committee: Arc::clone(committee), committee_branch }
    }

    pub fn update(&self, draft: Draft) -> Update {
        let finalized = draft.finalized.filter(|slot| *slot > 0).map(|slot| self.finalized(slot));
        self.update_with(draft, finalized)
    }

    /// Returns an update whose finalised header is given, unless it is the genesis block.
    pub fn update_with(&self, draft: Draft, finalized: Option<LightClientHeader>) -> Update {
        let root = finalized.as_ref().map_or(B256::ZERO, |header| header.beacon.root());
        let fork = self.network.fork_at_slot(draft.attested);
        let finalized = finalized.map(|header| converted(&header, fork));
        let (attested, state) = self.block(draft.attested, root);
        let (finality, current) = state_indices(fork);
        let next = self.network.period_of_slot(draft.attested) + 1;
        let next_committee = draft.committee.then(|| {
            let committee = Arc::clone(&self.members(next).committee);
            (committee, state.branch(current + 1))
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
    pub fn sign(&self, update: &mut Update, draft: Draft) {
        let period = self.network.period_of_slot(draft.signature_slot);
        // The committee signs the block of the slot before.
        let version = draft.version.unwrap_or_else(|| self.version_at(draft.signature_slot - 1));
        update.aggregate = self.members(period).sign(
            update.attested.beacon.root(),
            draft.participants,
            version,
            self.network.genesis_validators_root(),
        );
    }
}

fn version_of(index: u8) -> FixedBytes<4> {
    FixedBytes::new([index, 0, 0, 0xff])
}

impl Default for World {
    fn default() -> Self {
        Self::new()
    }
}
