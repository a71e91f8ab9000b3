//! Updates of the made-up chain with one thing wrong: each is refused for that reason, and changes
//! nothing.

use std::time::Duration;

use alloy_primitives::B256;
use chainsieve::eth::anchor::network::Fork;
use chainsieve::eth::anchor::sync_committee::{
    Event, Evidence, ExecutionProof, Finality, LightClient, LightClientError, Update,
};

use testkit::eth::beacon_world::{Draft, MEMBERS, World, at, infinity};

const FINALIZED: u64 = at(3, 8);
const ATTESTED: u64 = at(3, 30);

/// A client at its checkpoint, and a valid update.
struct Refusals {
    world: World,
    client: LightClient,
    draft: Draft,
    now: Duration,
}

impl Refusals {
    fn new() -> Self {
        let world = World::new();
        let client = world.start(at(3, 0));
        let now = world.network.time_of_slot(at(3, 40));
        Self { world, client, draft: Draft::full(ATTESTED, FINALIZED), now }
    }

    /// Returns the reason why the changed update is refused.
    fn refuse(&mut self, change: impl FnOnce(&World, &mut Update)) -> LightClientError {
        let mut update = self.world.update(self.draft);
        change(&self.world, &mut update);
        let error = self.client.handle(Event::Update(&update), self.now).expect_err("refused");
        assert_eq!(self.client.finalized().evidence, Evidence::Checkpoint, "{error}");
        assert_eq!(self.client.optimistic().evidence, Evidence::Checkpoint, "{error}");
        error
    }

    /// Checks that the update without a change is accepted.
    fn end(mut self) {
        self.world.apply(&mut self.client, self.draft).expect("the unchanged update");
        assert_eq!(self.client.finalized().beacon.slot, FINALIZED);
    }
}

fn finality(update: &mut Update) -> &mut Finality {
    update.finality.as_mut().expect("finality")
}

#[test]
fn slots() {
    let mut refusals = Refusals::new();
    let order = |finalized, attested, signature| LightClientError::SlotOrder {
        finalized,
        attested,
        signature,
    };
    assert_eq!(
        refusals.refuse(|_, update| update.signature_slot = ATTESTED),
        order(FINALIZED, ATTESTED, ATTESTED)
    );
    let later = |world: &World, update: &mut Update| {
        *update = world.update(Draft::full(ATTESTED, ATTESTED + 1));
    };
    assert_eq!(refusals.refuse(later), order(ATTESTED + 1, ATTESTED, ATTESTED + 1));
    assert_eq!(
        refusals.refuse(|_, update| update.signature_slot = at(3, 41)),
        LightClientError::Future { signature_slot: at(3, 41), current_slot: at(3, 40) }
    );
    // A server may be ahead of the caller's clock, but it makes no wrong branch.
    assert!(LightClientError::Future { signature_slot: 1, current_slot: 0 }.is_about_progress());
    assert!(!LightClientError::FinalityBranch.is_about_progress());
    refusals.end();
}

#[test]
fn headers() {
    let mut refusals = Refusals::new();
    let execution = |update: &mut Update, change: fn(&mut ExecutionProof)| {
        change(&mut update.attested.execution);
    };
    let gas = |proof: &mut ExecutionProof| {
        let ExecutionProof::Header(header, _) = proof else { panic!("{proof:?}") };
        header.gas_used += 1;
    };
    assert_eq!(
        refusals.refuse(|_, update| execution(update, gas)),
        LightClientError::Attested(LightClientError::ExecutionBranch { slot: ATTESTED }.into())
    );
    let old = LightClientError::OldContainer { slot: ATTESTED, fork: Fork::Deneb };
    let old = LightClientError::Attested(old.into());
    assert_eq!(
        refusals.refuse(|_, update| update.attested.execution = ExecutionProof::Absent),
        old
    );
    let no_blobs = |proof: &mut ExecutionProof| {
        let ExecutionProof::Header(header, _) = proof else { panic!("{proof:?}") };
        header.blob_gas = None;
    };
    assert_eq!(refusals.refuse(|_, update| execution(update, no_blobs)), old);
    let branch = |_: &World, update: &mut Update| {
        let header = finality(update).header.as_mut().expect("a header");
        let ExecutionProof::Header(_, branch) = &mut header.execution else {
            panic!("{:?}", header.execution)
        };
        branch[0] = B256::repeat_byte(9);
    };
    assert_eq!(
        refusals.refuse(branch),
        LightClientError::Finalized(LightClientError::ExecutionBranch { slot: FINALIZED }.into())
    );
    refusals.end();
}

#[test]
fn branches() {
    let mut refusals = Refusals::new();
    let wrong = LightClientError::FinalityBranch;
    let change = |_: &World, update: &mut Update| finality(update).branch[2].0[0] ^= 1;
    assert_eq!(refusals.refuse(change), wrong);
    // A branch may be padded in front, with zeros only, and not cut.
    let pad = |update: &mut Update, node| finality(update).branch.insert(0, node);
    assert_eq!(refusals.refuse(|_, update| pad(update, B256::repeat_byte(1))), wrong);
    let cut = |_: &World, update: &mut Update| drop(finality(update).branch.drain(..1));
    assert_eq!(refusals.refuse(cut), wrong);
    let mut padded = refusals.world.update(refusals.draft);
    pad(&mut padded, B256::ZERO);
    let mut client = refusals.client.clone();
    assert!(client.handle(Event::Update(&padded), refusals.now).is_ok());
    // A finalised genesis block, with the branch of another block.
    assert_eq!(refusals.refuse(|_, update| finality(update).header = None), wrong);
    let committee = |world: &World, update: &mut Update| {
        let (committee, _) = update.next_committee.as_mut().expect("a committee");
        *committee = world.members(5).committee.clone();
    };
    assert_eq!(refusals.refuse(committee), LightClientError::CommitteeBranch);
    refusals.end();
}

#[test]
fn signatures() {
    let mut refusals = Refusals::new();
    let by = |participants| LightClientError::Signature { participants };
    assert_eq!(
        refusals.refuse(|_, update| update.aggregate.bits.fill(0)),
        LightClientError::NoParticipants
    );
    let signature = |update: &mut Update, change: fn(&mut [u8; 96])| {
        change(&mut update.aggregate.signature.0);
    };
    assert_eq!(refusals.refuse(|_, update| update.aggregate.signature = infinity()), by(MEMBERS));
    assert_eq!(refusals.refuse(|_, update| signature(update, |bytes| bytes.fill(0))), by(MEMBERS));
    assert_eq!(
        refusals.refuse(|_, update| signature(update, |bytes| bytes[0] &= 0x7f)),
        by(MEMBERS)
    );
    assert_eq!(refusals.refuse(|_, update| update.aggregate.bits[3] &= 0x7f), by(MEMBERS - 1));
    // Signed by fewer than the bits say.
    let fewer = |world: &World, update: &mut Update| {
        let fewer = world.update(Draft::full(ATTESTED, FINALIZED).by(MEMBERS - 1));
        update.aggregate.signature = fewer.aggregate.signature;
    };
    assert_eq!(refusals.refuse(fewer), by(MEMBERS));
    assert_eq!(refusals.refuse(|_, update| update.aggregate.bits = [0xff; 64].into()), by(512));
    // Signed by the committee of another period, or for another chain.
    let right = refusals.world.network.genesis_validators_root();
    for (period, validators) in [(4, right), (3, B256::repeat_byte(0xac))] {
        let sign = |world: &World, update: &mut Update| {
            let version = world.version_at(ATTESTED);
            let root = update.attested.beacon.root();
            update.aggregate = world.members(period).sign(root, MEMBERS, version, validators);
        };
        assert_eq!(refusals.refuse(sign), by(MEMBERS), "{period}");
    }
    refusals.end();
}

#[test]
fn known_blocks() {
    let mut refusals = Refusals::new();
    refusals.world.apply(&mut refusals.client, refusals.draft).expect("valid");
    let older = Draft::full(FINALIZED, at(3, 4));
    assert_eq!(
        refusals.world.apply(&mut refusals.client, older),
        Err(LightClientError::NotNewer { attested: FINALIZED, finalized: FINALIZED })
    );
}
