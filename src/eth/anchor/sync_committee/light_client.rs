//! The light client: the known headers and committees, their change by updates, and the text by
//! which a light client is stored.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::time::Duration;

use alloy_primitives::{B256, Bytes, FixedBytes};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use super::committee::{Committee, SyncCommittee};
use super::refusal::LightClientError;
use super::ssz::{DecodeError, STORED_VERSION};
use super::update::Bootstrap;
use super::verify::{self, Known, VerifiedHeader, VerifiedUpdate};
use super::{Action, Anchor, Checkpoint, Event, Evidence, Participation, Request, Trust};
use crate::eth::anchor::network::Network;
use crate::eth::json::message;

/// Largest number of updates that a server returns at once: `MAX_REQUEST_LIGHT_CLIENT_UPDATES`.
const MAX_UPDATES: u64 = 128;

/// Light client of one beacon chain: `LightClientStore` with its network and its checkpoint.
///
/// See the [module](super) for how to drive it.
#[derive(Debug, Clone)]
pub struct LightClient {
    network: Network,
    trust: Trust,
    finalized: Anchor,
    optimistic: Anchor,
    /// Newest header that two thirds of the committee signed, which may be older than the finalised
    /// header; `None` if there was none since the start.
    supermajority: Option<Anchor>,
    /// Committee of the finalised header's period.
    current: Committee,
    /// Committee of the period after that of the finalised header; `None` if it is unknown.
    next: Option<Committee>,
    /// Best update since the last progress, for [`Event::Force`].
    best: Option<Box<VerifiedUpdate>>,
    /// Largest number of participants in the period before that of the finalised header.
    previous_max: usize,
    /// Largest number of participants since the committees changed.
    current_max: usize,
}

impl LightClient {
    /// Starts from a block whose root the caller trusts.
    ///
    /// The root must be that of a *finalised* block. [`Checkpoint::is_stale`] of
    /// [`trust`](Self::trust) is `true` if the block is older than the weak-subjectivity period:
    /// all results then rely on the honesty of the validators of that time, although most of them
    /// may have left. `now` is the [current time](crate#time).
    ///
    /// # Errors
    /// Returns a [`LightClientError`] if the bootstrap is not proven by the root.
    ///
    /// # Cost
    /// About 1,000 SHA-256 and one square root for each key: about 20 ms for 512 keys.
    pub fn new(
        network: Network,
        trusted_root: B256,
        bootstrap: &Bootstrap,
        now: Duration,
    ) -> Result<Self, LightClientError> {
        let current_slot = network.slot_at(now).unwrap_or(0);
        let (header, current) = verify::bootstrap(bootstrap, trusted_root, current_slot, &network)?;
        let trust = Trust {
            checkpoint: Checkpoint {
                root: trusted_root,
                slot: header.beacon.slot,
                age: now.saturating_sub(network.time_of_slot(header.beacon.slot)),
                limit: network.weak_subjectivity_period(),
            },
            forced: None,
        };
        let finalized = anchor(header, Evidence::Checkpoint, trust);
        Ok(Self {
            network,
            trust,
            optimistic: finalized.clone(),
            supermajority: None,
            finalized,
            current,
            next: None,
            best: None,
            previous_max: 0,
            current_max: 0,
        })
    }

    /// Processes an event. `now` is the [current time](crate#time).
    ///
    /// # Errors
    /// Returns a [`LightClientError`] if an update is refused. The light client is then unchanged, except
    /// that a best update that cannot be forced is dropped.
    ///
    /// # Cost
    /// For an update about 3 ms: one hash to the curve and two pairings. An update with a sync
    /// committee costs 1,000 SHA-256 more, and about 20 ms when its committee is taken over.
    #[expect(clippy::needless_pass_by_value, reason = "the shape of every machine's `handle`")]
    pub fn handle(
        &mut self,
        event: Event<'_>,
        now: Duration,
    ) -> Result<Vec<Action>, LightClientError> {
        let current_slot = self.network.slot_at(now).unwrap_or(0);
        match event {
            Event::Update(update) => {
                let update = self.known().verify(update, current_slot)?;
                self.process(update, now)
            }
            Event::Force => self.force(current_slot, now),
        }
    }

    /// Returns the network.
    pub const fn network(&self) -> &Network {
        &self.network
    }

    /// Returns the basis of all results: the checkpoint, and forced updates since then.
    pub const fn trust(&self) -> Trust {
        self.trust
    }

    /// Returns the newest finalised header. Its evidence is that of the first update that finalised it.
    pub const fn finalized(&self) -> &Anchor {
        &self.finalized
    }

    /// Returns the newest header that enough members of the sync committee signed, see
    /// [`safety_threshold`](Self::safety_threshold). It is at least as new as the finalised header.
    ///
    /// A newer header replaces it even if fewer members signed the newer header. This does not hold
    /// for [`supermajority`](Self::supermajority).
    pub const fn optimistic(&self) -> &Anchor {
        &self.optimistic
    }

    /// Returns the newest header that at least two thirds of the sync committee signed, or the finalised
    /// header if that is newer.
    ///
    /// Its slot never decreases while the client runs: headers that fewer members signed have no effect
    /// on it. If two thirds signed two headers of which neither descends from the other, the header of
    /// the later slot is returned. In this case, either the chain was reorganised, or members signed both
    /// branches. For the same slot, the header with more signatures is returned.
    ///
    /// No [`Action`] announces this header. It is often the [`optimistic`](Self::optimistic) header,
    /// and it is never newer than that header.
    pub fn supermajority(&self) -> &Anchor {
        let is_newer = |signed: &&Anchor| signed.beacon.slot > self.finalized.beacon.slot;
        self.supermajority.as_ref().filter(is_newer).unwrap_or(&self.finalized)
    }

    /// Returns `true` if the sync committee of the period after that of the finalised header is
    /// known.
    pub const fn is_next_committee_known(&self) -> bool {
        self.next.is_some()
    }

    /// Returns the number of participants above which a signature moves the optimistic header: half
    /// of the largest number of participants in this period or the previous period
    /// (`get_safety_threshold`).
    pub fn safety_threshold(&self) -> usize {
        self.previous_max.max(self.current_max) / 2
    }

    /// Returns the next object to request. `now` is the [current time](crate#time).
    ///
    /// A server's update for a period may bring no progress if it was made early in that period.
    /// Later, or at another server, the same request has another answer. So the caller waits before
    /// it repeats a request.
    pub fn request(&self, now: Duration) -> Request {
        let current = self.network.period_of_slot(self.network.slot_at(now).unwrap_or(0));
        let finalized = self.network.period_of_slot(self.finalized.beacon.slot);
        if self.next.is_some() && finalized + 1 >= current {
            return Request::Finality;
        }
        let start_period = finalized + u64::from(self.next.is_some());
        let count = current.saturating_sub(start_period).clamp(1, MAX_UPDATES);
        Request::Updates { start_period, count }
    }

    /// Returns the first slot in which [`Event::Force`] has an effect; `None` if there is no update
    /// to force.
    pub fn force_from(&self) -> Option<u64> {
        let timeout = self.network.preset().update_timeout();
        self.best.as_ref().map(|_| self.finalized.beacon.slot.saturating_add(timeout + 1))
    }

    const fn known(&self) -> Known<'_> {
        Known {
            network: &self.network,
            finalized_slot: self.finalized.beacon.slot,
            current: &self.current,
            next: self.next.as_ref(),
        }
    }

    fn period(&self, slot: u64) -> u64 {
        self.network.period_of_slot(slot)
    }

    /// `process_light_client_update`, after the verification.
    fn process(
        &mut self,
        update: VerifiedUpdate,
        now: Duration,
    ) -> Result<Vec<Action>, LightClientError> {
        let (attested_slot, finalized_slot) =
            (update.attested.beacon.slot, update.finalized_slot());
        let teaches = self.next.is_none()
            && update.next_committee.is_some()
            && update.has_finality
            && self.period(finalized_slot) == self.period(attested_slot);
        let is_final = update.participation.is_supermajority()
            && (finalized_slot > self.finalized.beacon.slot || teaches);
        // The keys are decompressed before anything changes, because this can fail.
        let step = is_final.then(|| self.step(&update, finalized_slot)).transpose()?;

        if step.is_some() {
            self.note_age(now);
        }
        let by = update.participation;
        self.current_max = self.current_max.max(by.signed);
        let mut actions = Vec::new();
        let signed = || anchor(update.attested.clone(), Evidence::Optimistic(by), self.trust);
        if by.is_supermajority() && replaces(attested_slot, by, self.supermajority()) {
            self.supermajority = Some(signed());
        }
        if by.signed > self.safety_threshold() && replaces(attested_slot, by, &self.optimistic) {
            self.optimistic = signed();
            actions.push(Action::Optimistic(Box::new(self.optimistic.clone())));
        }
        if let Some(step) = step {
            let evidence = Evidence::Finalized(update.participation);
            self.best = None;
            self.apply(step, update.finalized, evidence, &mut actions);
        } else if self.best.as_ref().is_none_or(|best| update.rank > best.rank) {
            self.best = Some(Box::new(update));
        }
        Ok(actions)
    }

    /// `process_light_client_store_force_update`.
    fn force(&mut self, current_slot: u64, now: Duration) -> Result<Vec<Action>, LightClientError> {
        if self.force_from().is_none_or(|from| current_slot < from) {
            return Ok(Vec::new());
        }
        // If its committee has an invalid key, the update is of no use, and is dropped.
        let Some(mut best) = self.best.take() else { return Ok(Vec::new()) };
        // Without progress for a whole period, the attested header stands in for a finalised one,
        // so that the client can reach later sync committees at all.
        if best.finalized_slot() <= self.finalized.beacon.slot {
            best.finalized = Some(best.attested.clone());
        }
        let step = self.step(&best, best.finalized_slot())?;
        self.note_age(now);
        let weaker = |forced: Participation| forced.signed <= best.participation.signed;
        if !self.trust.forced.is_some_and(weaker) {
            self.trust.forced = Some(best.participation);
        }
        let mut actions = Vec::new();
        self.apply(step, best.finalized, Evidence::Forced(best.participation), &mut actions);
        Ok(actions)
    }

    /// Records the age of the state from which the client continues, if it is too old. The members of
    /// its committees may have withdrawn their stake by now, like those of an old checkpoint.
    fn note_age(&mut self, now: Duration) {
        let age = now.saturating_sub(self.network.time_of_slot(self.finalized.beacon.slot));
        let checkpoint = &mut self.trust.checkpoint;
        if age > checkpoint.limit {
            checkpoint.age = checkpoint.age.max(age);
        }
    }

    /// Returns how an update moves the sync committees when `finalized_slot` is finalised.
    fn step(&self, update: &VerifiedUpdate, finalized_slot: u64) -> Result<Step, LightClientError> {
        let next = || {
            let next = update.next_committee.as_ref().map(Arc::clone).map(Committee::new);
            next.transpose().map_err(|index| LightClientError::Key { index })
        };
        let period = self.period(self.finalized.beacon.slot);
        Ok(match self.next {
            None => Step::Learn(next()?),
            Some(_) if self.period(finalized_slot) == period + 1 => Step::Advance(next()?),
            Some(_) => Step::Stay,
        })
    }

    /// `apply_light_client_update`.
    fn apply(
        &mut self,
        step: Step,
        finalized: Option<VerifiedHeader>,
        evidence: Evidence,
        actions: &mut Vec<Action>,
    ) {
        let learns = match step {
            Step::Stay => false,
            Step::Learn(next) => {
                self.next = next;
                self.next.is_some()
            }
            Step::Advance(next) => {
                if let Some(current) = core::mem::replace(&mut self.next, next) {
                    self.current = current;
                }
                self.previous_max = core::mem::take(&mut self.current_max);
                self.next.is_some()
            }
        };
        if let Some(header) = finalized
            && header.beacon.slot > self.finalized.beacon.slot
        {
            self.finalized = anchor(header, evidence, self.trust);
            actions.push(Action::Finalized(Box::new(self.finalized.clone())));
            if self.finalized.beacon.slot > self.optimistic.beacon.slot {
                self.optimistic = self.finalized.clone();
                actions.push(Action::Optimistic(Box::new(self.optimistic.clone())));
            }
        }
        if learns {
            let period = self.period(self.finalized.beacon.slot) + 1;
            actions.push(Action::NextCommittee { period });
        }
    }
}

/// Change of the sync committees by an update.
enum Step {
    /// The committees stay.
    Stay,
    /// The next committee was unknown, and is taken from the update if the update contains it.
    Learn(Option<Committee>),
    /// The next committee becomes the current committee, and the committee of the update becomes
    /// the next committee.
    Advance(Option<Committee>),
}

/// Returns `true` if a header of this slot with these signatures replaces a known header: it is newer,
/// or it is of the same slot and has more signatures.
///
/// The specification compares the slots alone. By that rule, a server that leaves signatures out of an
/// update would hide the same header with all signatures. An update with more signatures has passed the
/// same checks, so that it is at least as good. A checkpoint and a finalised header are more than signed:
/// no header of their slot replaces them.
fn replaces(slot: u64, by: Participation, known: &Anchor) -> bool {
    let has_more = match known.evidence {
        Evidence::Optimistic(known) => by.signed > known.signed,
        Evidence::Checkpoint | Evidence::Finalized(_) | Evidence::Forced(_) => false,
    };
    slot > known.beacon.slot || slot == known.beacon.slot && has_more
}

fn anchor(header: VerifiedHeader, evidence: Evidence, trust: Trust) -> Anchor {
    let VerifiedHeader { beacon, root, execution } = header;
    Anchor { beacon, root, execution, evidence, trust }
}

/// The stored text: the client's members, and their checksum.
#[derive(Serialize, Deserialize)]
struct Wire<T> {
    version: u32,
    sha256: B256,
    client: T,
}

#[derive(Serialize, Deserialize)]
struct Client {
    network: String,
    genesis_validators_root: B256,
    trust: Trust,
    finalized: Anchor,
    optimistic: Anchor,
    current_committee: Keys,
    // A missing member is an error, so that a cut text is never read as an older state.
    #[serde(deserialize_with = "Option::deserialize")]
    next_committee: Option<Keys>,
    previous_max_participants: usize,
    current_max_participants: usize,
}

/// A sync committee: the members' keys, one after the other.
#[derive(Serialize, Deserialize)]
struct Keys {
    keys: Bytes,
    aggregate: FixedBytes<48>,
}

impl From<&Committee> for Keys {
    fn from(committee: &Committee) -> Self {
        let listed = &committee.listed;
        let keys = listed.keys.iter().flat_map(|key| key.0).collect();
        Self { keys, aggregate: listed.aggregate }
    }
}

impl Keys {
    fn read(self, network: &Network) -> Result<Committee, DecodeError> {
        let (keys, rest) = self.keys.as_chunks::<48>();
        let expected = network.preset().sync_committee_size();
        if keys.len() != expected || !rest.is_empty() {
            let found = self.keys.len();
            return Err(DecodeError::CommitteeSize { found, expected: expected * 48 });
        }
        let keys = keys.iter().copied().map(FixedBytes::new).collect();
        let listed = SyncCommittee { keys, aggregate: self.aggregate };
        Committee::new(Arc::new(listed)).map_err(|index| DecodeError::Key { index })
    }
}

impl LightClient {
    /// Returns the light client as JSON of about 200 kB, from which [`from_json`](Self::from_json)
    /// continues.
    ///
    /// The text contains no proof: it is as reliable as the place where it is stored. Its checksum
    /// detects damage, but does not protect against someone who may write to that place. The best
    /// update that could be [forced](super::Event::Force) is left out, and so is a
    /// [`supermajority`](Self::supermajority) header that is older than the optimistic header.
    pub fn to_json(&self) -> String {
        let client = Client {
            network: self.network.name().into(),
            genesis_validators_root: self.network.genesis_validators_root(),
            trust: self.trust,
            finalized: self.finalized.clone(),
            optimistic: self.optimistic.clone(),
            current_committee: (&self.current).into(),
            next_committee: self.next.as_ref().map(Keys::from),
            previous_max_participants: self.previous_max,
            current_max_participants: self.current_max,
        };
        let text = serde_json::to_string(&client).expect("numbers and hex");
        let sha256 = checksum(&text);
        let client = RawValue::from_string(text).expect("JSON");
        serde_json::to_string(&Wire { version: STORED_VERSION, sha256, client }).expect("JSON")
    }

    /// Reads the text that [`to_json`](Self::to_json) wrote. `network` may have a newer fork
    /// schedule. `now` is the [current time](crate#time).
    ///
    /// Continuing after a long pause is like a start from an old checkpoint: if the newest
    /// finalised header is older than the weak-subjectivity period,
    /// [`Checkpoint::age`](super::Checkpoint::age) becomes at least the age of that header.
    ///
    /// # Errors
    /// Returns a [`DecodeError`] if the text is damaged, or of another network.
    ///
    /// # Cost
    /// One square root for each key: about 20 ms for each of the two committees.
    pub fn from_json(text: &str, network: Network, now: Duration) -> Result<Self, DecodeError> {
        let json = |error: serde_json::Error| DecodeError::Stored(message(&error));
        let wire: Wire<&RawValue> = serde_json::from_str(text).map_err(json)?;
        if wire.version != STORED_VERSION {
            return Err(DecodeError::Version(wire.version));
        }
        let computed = checksum(wire.client.get());
        if computed != wire.sha256 {
            return Err(DecodeError::Checksum { computed, stated: wire.sha256 });
        }
        let client: Client = serde_json::from_str(wire.client.get()).map_err(json)?;
        let expected = network.genesis_validators_root();
        if client.genesis_validators_root != expected {
            let stored = client.genesis_validators_root;
            return Err(DecodeError::OtherNetwork { stored, expected });
        }
        for anchor in [&client.finalized, &client.optimistic] {
            if anchor.root != anchor.beacon.root() {
                return Err(DecodeError::Contradiction("a beacon header has another root"));
            }
        }
        if client.optimistic.beacon.slot < client.finalized.beacon.slot {
            let words = "the optimistic header is older than the finalised header";
            return Err(DecodeError::Contradiction(words));
        }
        let current = client.current_committee.read(&network)?;
        let next = client.next_committee.map(|keys| keys.read(&network)).transpose()?;
        // The format has no member for this header. If fewer than two thirds signed the optimistic one,
        // the client goes on from the finalised header, until a server sends a newer one by two thirds.
        let supermajority = match client.optimistic.evidence {
            Evidence::Optimistic(by) if by.is_supermajority() => Some(client.optimistic.clone()),
            _ => None,
        };
        let mut read = Self {
            network,
            trust: client.trust,
            finalized: client.finalized,
            optimistic: client.optimistic,
            supermajority,
            current,
            next,
            best: None,
            previous_max: client.previous_max_participants,
            current_max: client.current_max_participants,
        };
        read.note_age(now);
        Ok(read)
    }
}

fn checksum(text: &str) -> B256 {
    B256::new(Sha256::digest(text).into())
}
