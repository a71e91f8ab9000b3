//! Light client of the beacon chain: from one trusted block root to finalised execution blocks, by
//! the signatures of sync committees. No sockets, no clock, no files.
//!
//! A sync committee is drawn for each period of 8,192 slots, about 27 hours. Its 512 members sign
//! the head of every slot. A beacon state commits to the committees of its own period and of the
//! next period, and to the finalised block. So from a trusted block on, each period's signatures
//! vouch for the next committee, and for finalised blocks.
//!
//! # How to drive it
//! 1. Choose a [`Network`](super::network::Network) and the root of a *finalised* block, preferably
//!    the first block of an epoch: servers promise bootstraps only for these.
//! 2. Request the bootstrap of this root, decode it with [`Bootstrap::from_ssz`] or
//!    [`Bootstrap::from_json`], and call [`LightClient::new`].
//! 3. Request what [`LightClient::request`] returns. Pass each decoded update to
//!    [`LightClient::handle`], and carry out the returned [`Action`]s. An optimistic update is
//!    optional at any time.
//! 4. Repeat step 3. Until the next sync committee is known and the last period is reached, repeat
//!    it at once. After that, repeat it as often as a newer block is wanted, at least once a
//!    period.
//!
//! To continue later, store [`LightClient::to_json`]. [`Syncer`](super::sync::Syncer) drives a
//! light client over several servers that may be silent or false.
//!
//! ```
//! use core::time::Duration;
//!
//! use chainsieve::eth::anchor::network::Fork;
//! use chainsieve::eth::anchor::sync_committee::{Action, Event, LightClient, Update, UpdateKind};
//!
//! /// Applies the answer of a server to a request for its finality update.
//! fn apply(
//!     client: &mut LightClient,
//!     ssz: &[u8],
//!     fork: Fork,
//!     now: Duration,
//! ) -> Result<(), Box<dyn std::error::Error>> {
//!     let preset = client.network().preset();
//!     let update = Update::from_ssz(ssz, UpdateKind::Finality, fork, preset)?;
//!     for action in client.handle(Event::Update(&update), now)? {
//!         if let Action::Finalized(anchor) = action {
//!             println!("{:?}: {}", anchor.execution.bound_hash(), anchor.evidence);
//!         }
//!     }
//!     Ok(())
//! }
//! ```
//!
//! # What is bound
//! | fork | execution block of a header |
//! |---|---|
//! | Altair, Bellatrix | none: an update moves the committee only |
//! | Capella to Fulu | [`BoundExecution::Header`]: its own execution header, with bloom and roots |
//! | Gloas | [`BoundExecution::ParentHash`]: the hash of the last execution block before it |
//!
//! # What is proven
//! See [`Evidence`] and [`Trust`]. A finalised header is signed by at least two thirds of one
//! committee. This is less than full consensus: see the module [`anchor`](super).
//!
//! Sources: `specs/{altair,capella,deneb,electra,gloas}/light-client/sync-protocol.md` of
//! consensus-specs, and `apis/beacon/light_client` of beacon-APIs.

mod committee;
mod header;
mod json;
mod light_client;
mod refusal;
mod ssz;
mod update;
mod verify;

use alloc::boxed::Box;
use core::fmt;
use core::time::Duration;

use alloy_primitives::B256;

use super::Grade;

pub use committee::{SyncAggregate, SyncCommittee};
pub use header::{
    BeaconHeader, BlobGas, BoundExecution, ExecutionHeader, ExecutionProof, LightClientHeader,
};
pub use light_client::LightClient;
pub use refusal::LightClientError;
pub use ssz::DecodeError;
pub use update::{Bootstrap, Finality, Update, UpdateKind};

/// Input of a [`LightClient`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Event<'a> {
    /// An update of any [kind](UpdateKind).
    Update(&'a Update),
    /// The caller accepts the best update although it is not final.
    ///
    /// This has an effect only after a period without progress, see [`LightClient::force_from`].
    /// The evidence is then [`Evidence::Forced`], and [`Trust::forced`] is set from then on. If
    /// there is another server or a newer checkpoint, use that instead.
    Force,
}

/// Output of a [`LightClient`]: the newly known facts.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Action {
    /// A newer header is finalised, or forced.
    Finalized(Box<Anchor>),
    /// A newer header is signed, or a header of the same slot has more signatures than before.
    Optimistic(Box<Anchor>),
    /// The sync committee of this period is known.
    NextCommittee {
        /// The number of the period, which follows the period of the finalised header.
        period: u64,
    },
}

/// Object of the Beacon API that a light client needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Request {
    /// The bootstrap of the block with this root, from which a light client starts:
    /// `/eth/v1/beacon/light_client/bootstrap/{root}`.
    Bootstrap(B256),
    /// The best updates of these periods: `/eth/v1/beacon/light_client/updates`.
    Updates {
        /// First period.
        start_period: u64,
        /// Number of periods, from 1 to 128.
        count: u64,
    },
    /// The newest finality update: `/eth/v1/beacon/light_client/finality_update`.
    Finality,
    /// The newest optimistic update: `/eth/v1/beacon/light_client/optimistic_update`. It brings the
    /// newest signed header, which is not final.
    Optimistic,
}

/// A believed beacon header, the execution block that it binds, and the reason to believe it.
///
/// An anchor contains no proof. An anchor that is read from JSON is as reliable as the place where
/// it was stored: never accept it from another party.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Anchor {
    /// The beacon header. Its state root is the start of further proofs.
    pub beacon: BeaconHeader,
    /// Root of the beacon header.
    pub root: B256,
    /// The execution block that the header binds.
    pub execution: BoundExecution,
    /// The signatures for the header.
    pub evidence: Evidence,
    /// The basis of the signatures: the checkpoint and forced updates.
    pub trust: Trust,
}

impl Anchor {
    /// Returns how far the header can be believed.
    ///
    /// The checkpoint is the caller's own word. Headers after a forced update are not more reliable
    /// than that update.
    pub fn grade(&self) -> Grade {
        let grade = match self.evidence {
            Evidence::Checkpoint => Grade::OwnWord,
            Evidence::Finalized(_) => Grade::Finalized,
            // After a start, no signature was seen before, and a single one moves the header.
            Evidence::Optimistic(by) if by.signed > by.of / 2 => Grade::Optimistic,
            Evidence::Optimistic(_) | Evidence::Forced(_) => Grade::Forced,
        };
        if self.trust.forced.is_some() { grade.min(Grade::Forced) } else { grade }
    }
}

/// Evidence for a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Evidence {
    /// The header is the caller's checkpoint.
    Checkpoint,
    /// At least two thirds of the sync committee signed a header whose state calls this block
    /// finalised. No attestations were counted, and members of a sync committee are not slashed for
    /// a false signature.
    Finalized(Participation),
    /// The number of members that signed this header is more than half of the largest number of
    /// recent signers. The header can still be reorganised away. After a start, there are no recent
    /// signers, and one signature is enough. In contrast, [`LightClient::supermajority`] needs two
    /// thirds.
    Optimistic(Participation),
    /// Some members signed, and the caller accepted the header for lack of progress. The header may
    /// not be finalised.
    Forced(Participation),
}

/// Number of members of a sync committee that signed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct Participation {
    /// Number of members that signed.
    pub signed: usize,
    /// Number of members of the committee.
    pub of: usize,
}

impl Participation {
    /// Returns `true` if at least two thirds signed.
    pub const fn is_supermajority(self) -> bool {
        self.signed >= self.of - self.of / 3
    }
}

/// Writes, for example, `509 of 512`.
impl fmt::Display for Participation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.signed, self.of)
    }
}

/// Writes, for example, `finalised, signed by 509 of 512`.
impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Checkpoint => f.write_str("the trusted checkpoint"),
            Self::Finalized(by) => write!(f, "finalised, signed by {by}"),
            Self::Optimistic(by) => write!(f, "not finalised, signed by {by}"),
            Self::Forced(by) => write!(f, "forced, signed by {by}"),
        }
    }
}

/// The basis of all evidence of a light client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct Trust {
    /// The block that the caller trusts.
    pub checkpoint: Checkpoint,
    /// The weakest forced update since the checkpoint; `None` if no update was forced. The sync
    /// committees after a forced update are only as reliable as its signature.
    // A missing member is an error: as `None` it would raise the grade.
    #[serde(deserialize_with = "Option::deserialize")]
    pub forced: Option<Participation>,
}

/// A block whose root the caller trusts, and the age of the oldest state from which the client ever
/// continued.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct Checkpoint {
    /// Root of the beacon block.
    pub root: B256,
    /// Slot of the beacon block.
    pub slot: u64,
    /// Age of the block when the client started. If the client later continued from a finalised
    /// block whose age then exceeded this age and the limit: the age of that block.
    pub age: Duration,
    /// Length of the network's weak-subjectivity period.
    pub limit: Duration,
}

impl Checkpoint {
    /// Returns `true` if the client ever continued from a state that was older than the
    /// weak-subjectivity period.
    ///
    /// Validators of that time may have withdrawn their stake since then, and can then sign another
    /// chain at no cost. This is a risk, not a fault in a proof.
    pub const fn is_stale(&self) -> bool {
        self.age.as_nanos() > self.limit.as_nanos()
    }
}
