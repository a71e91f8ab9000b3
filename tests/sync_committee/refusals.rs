//! Updates of the made-up chain with one thing wrong: each is refused for that reason, and changes
//! nothing.

use std::time::Duration;

use alloy_primitives::B256;
use chainsieve::eth::anchor::network::Fork;
use chainsieve::eth::anchor::sync_committee::{
    Event, Evidence, ExecutionHeader, ExecutionProof, Finality, LightClient, LightClientError,
    Update,
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

    /// Checks the reason why the changed update is refused.
    #[track_caller]
    fn refuse(&mut self, reason: LightClientError, change: impl FnOnce(&World, &mut Update)) {
        let mut update = self.world.update(self.draft);
        change(&self.world, &mut update);
        let refused = self.client.handle(Event::Update(&update), self.now).map(drop);
        assert_eq!(refused, Err(reason));
        assert_eq!(self.client.finalized().evidence, Evidence::Checkpoint, "{refused:?}");
        assert_eq!(self.client.optimistic().evidence, Evidence::Checkpoint, "{refused:?}");
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
    refusals.refuse(order(FINALIZED, ATTESTED, ATTESTED), |_, update| {
        update.signature_slot = ATTESTED;
    });
    refusals.refuse(order(ATTESTED + 1, ATTESTED, ATTESTED + 1), |world, update| {
        *update = world.update(Draft::full(ATTESTED, ATTESTED + 1));
    });
    let future = LightClientError::Future { signature_slot: at(3, 41), current_slot: at(3, 40) };
    refusals.refuse(future, |_, update| update.signature_slot = at(3, 41));
    // A server may be ahead of the caller's clock, but it makes no wrong branch.
    assert!(LightClientError::Future { signature_slot: 1, current_slot: 0 }.is_about_progress());
    assert!(!LightClientError::FinalityBranch.is_about_progress());
    refusals.end();
}

/// Returns the execution header and its branch.
fn execution(proof: &mut ExecutionProof) -> (&mut ExecutionHeader, &mut [B256; 4]) {
    let ExecutionProof::Header(header, branch) = proof else { panic!("{proof:?}") };
    (header, branch)
}

#[test]
fn headers() {
    let mut refusals = Refusals::new();
    let attested = |error: LightClientError| LightClientError::Attested(error.into());
    let branch = |slot| LightClientError::ExecutionBranch { slot };
    refusals.refuse(attested(branch(ATTESTED)), |_, update| {
        execution(&mut update.attested.execution).0.gas_used += 1;
    });
    let old = LightClientError::OldContainer { slot: ATTESTED, fork: Fork::Deneb };
    let old = attested(old);
    refusals.refuse(old.clone(), |_, update| update.attested.execution = ExecutionProof::Absent);
    refusals.refuse(old, |_, update| execution(&mut update.attested.execution).0.blob_gas = None);
    let finalized = LightClientError::Finalized(branch(FINALIZED).into());
    refusals.refuse(finalized, |_, update| {
        let header = finality(update).header.as_mut().expect("a header");
        execution(&mut header.execution).1[0] = B256::repeat_byte(9);
    });
    refusals.end();
}

#[test]
fn branches() {
    let mut refusals = Refusals::new();
    let wrong = LightClientError::FinalityBranch;
    refusals.refuse(wrong.clone(), |_, update| finality(update).branch[2].0[0] ^= 1);
    // A branch may be padded in front, with zeros only, and not cut.
    let pad = |update: &mut Update, node| finality(update).branch.insert(0, node);
    refusals.refuse(wrong.clone(), |_, update| pad(update, B256::repeat_byte(1)));
    refusals.refuse(wrong.clone(), |_, update| drop(finality(update).branch.drain(..1)));
    let mut padded = refusals.world.update(refusals.draft);
    pad(&mut padded, B256::ZERO);
    let mut client = refusals.client.clone();
    assert!(client.handle(Event::Update(&padded), refusals.now).is_ok());
    // A finalised genesis block, with the branch of another block.
    refusals.refuse(wrong, |_, update| finality(update).header = None);
    refusals.refuse(LightClientError::CommitteeBranch, |world, update| {
        let (committee, _) = update.next_committee.as_mut().expect("a committee");
        *committee = world.members(5).committee.clone();
    });
    refusals.end();
}

#[test]
fn signatures() {
    let mut refusals = Refusals::new();
    let by = |participants| LightClientError::Signature { participants };
    refusals.refuse(LightClientError::NoParticipants, |_, update| update.aggregate.bits.fill(0));
    refusals.refuse(by(MEMBERS), |_, update| update.aggregate.signature = infinity());
    refusals.refuse(by(MEMBERS), |_, update| update.aggregate.signature.0.fill(0));
    refusals.refuse(by(MEMBERS), |_, update| update.aggregate.signature.0[0] &= 0x7f);
    refusals.refuse(by(MEMBERS - 1), |_, update| update.aggregate.bits[3] &= 0x7f);
    // Signed by fewer than the bits say.
    refusals.refuse(by(MEMBERS), |world, update| {
        let fewer = world.update(Draft::full(ATTESTED, FINALIZED).by(MEMBERS - 1));
        update.aggregate.signature = fewer.aggregate.signature;
    });
    refusals.refuse(by(512), |_, update| update.aggregate.bits = [0xff; 64].into());
    // Signed by the committee of another period, or for another chain.
    let right = refusals.world.network.genesis_validators_root();
    for (period, validators) in [(4, right), (3, B256::repeat_byte(0xac))] {
        refusals.refuse(by(MEMBERS), |world, update| {
            let version = world.version_at(ATTESTED);
            let root = update.attested.beacon.root();
            update.aggregate = world.members(period).sign(root, MEMBERS, version, validators);
        });
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
