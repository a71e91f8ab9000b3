//! A light client as text, to go on later.

use alloc::string::String;
use alloc::sync::Arc;
use core::time::Duration;

use alloy_primitives::{B256, Bytes};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};
use thiserror::Error;

use super::LightClient;
use crate::eth::anchor::network::Network;
use crate::eth::anchor::sync_committee::committee::{
    Committee, KeyError, PublicKey, SyncCommittee,
};
use crate::eth::anchor::sync_committee::{Anchor, Evidence, Trust};
use crate::eth::json::message;

/// Version of the stored format.
const VERSION: u32 = 1;

/// Reason why a text is not a stored light client of a network.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum StoredError {
    /// The text is not JSON, or a member is missing or malformed.
    #[error("not a stored light client: {0}")]
    Json(String),
    /// A format version that this library cannot read.
    #[error("the light client has format version {0}; this library reads version {VERSION}")]
    Version(u32),
    /// The text was changed after it was written.
    #[error("the light client has the SHA-256 {computed}, but states {stated}")]
    Checksum {
        /// SHA-256 of the member `client`.
        computed: B256,
        /// The value that the text states.
        stated: B256,
    },
    /// The light client is of another network.
    #[error("the light client is of the network with validators root {stored}, not {expected}")]
    OtherNetwork {
        /// Genesis validators root in the text.
        stored: B256,
        /// Genesis validators root of the network that was given.
        expected: B256,
    },
    /// A committee has another size than the network's.
    #[error("a committee of {found} bytes of keys, expected {expected}")]
    CommitteeSize {
        /// Number of bytes.
        found: usize,
        /// Number of bytes of the network's committees.
        expected: usize,
    },
    /// A key of a committee is invalid.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// Two members contradict each other.
    #[error("{0}")]
    Contradiction(&'static str),
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
    // A missing member is an error, so that a cut text is never read as an older one.
    #[serde(deserialize_with = "Option::deserialize")]
    next_committee: Option<Keys>,
    previous_max_participants: usize,
    current_max_participants: usize,
}

/// A sync committee: the members' keys, one after the other.
#[derive(Serialize, Deserialize)]
struct Keys {
    keys: Bytes,
    aggregate: PublicKey,
}

impl From<&Committee> for Keys {
    fn from(committee: &Committee) -> Self {
        let listed = committee.committee();
        let keys = listed.keys.iter().flat_map(|key| key.0).collect();
        Self { keys, aggregate: listed.aggregate }
    }
}

impl Keys {
    fn read(self, network: &Network) -> Result<Committee, StoredError> {
        let (keys, rest) = self.keys.as_chunks::<48>();
        let expected = network.preset().sync_committee_size();
        if keys.len() != expected || !rest.is_empty() {
            let found = self.keys.len();
            return Err(StoredError::CommitteeSize { found, expected: expected * 48 });
        }
        let keys = keys.iter().copied().map(PublicKey::new).collect();
        let listed = SyncCommittee { keys, aggregate: self.aggregate };
        Ok(Committee::new(Arc::new(listed))?)
    }
}

impl LightClient {
    /// Returns the light client as JSON, to go on later with [`from_json`](Self::from_json): about
    /// 200 kB.
    ///
    /// The text holds no proof: it is as good as the place where it is kept. Its checksum shows
    /// damage, and does not protect it from someone who may write to that place. The best update
    /// that could be [forced](super::Event::Force) is left out, and so is a
    /// [`supermajority`](Self::supermajority) header that is older than the optimistic one.
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
        serde_json::to_string(&Wire { version: VERSION, sha256, client }).expect("JSON")
    }

    /// Reads what [`to_json`](Self::to_json) wrote. `network` may have a newer fork schedule. `now`
    /// is the [current time](crate#time).
    ///
    /// To go on after a long pause is like a start from an old checkpoint: if the newest finalised
    /// header is older than the weak-subjectivity period,
    /// [`Checkpoint::age`](super::super::Checkpoint::age) becomes at least the age of that header.
    ///
    /// # Errors
    /// Returns a [`StoredError`] if the text is damaged, or of another network.
    ///
    /// # Cost
    /// One square root for each key: about 20 ms for each of the two committees.
    pub fn from_json(text: &str, network: Network, now: Duration) -> Result<Self, StoredError> {
        let json = |error: serde_json::Error| StoredError::Json(message(&error));
        let wire: Wire<&RawValue> = serde_json::from_str(text).map_err(json)?;
        if wire.version != VERSION {
            return Err(StoredError::Version(wire.version));
        }
        let computed = checksum(wire.client.get());
        if computed != wire.sha256 {
            return Err(StoredError::Checksum { computed, stated: wire.sha256 });
        }
        let client: Client = serde_json::from_str(wire.client.get()).map_err(json)?;
        let expected = network.genesis_validators_root();
        if client.genesis_validators_root != expected {
            let stored = client.genesis_validators_root;
            return Err(StoredError::OtherNetwork { stored, expected });
        }
        for anchor in [&client.finalized, &client.optimistic] {
            if anchor.root != anchor.beacon.root() {
                return Err(StoredError::Contradiction("a beacon header has another root"));
            }
        }
        if client.optimistic.beacon.slot < client.finalized.beacon.slot {
            let words = "the optimistic header is older than the finalised one";
            return Err(StoredError::Contradiction(words));
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
