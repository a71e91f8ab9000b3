//! Trust in a block hash: a verifier starts from a statement that it believes, and follows links
//! that anyone can check again from their bytes.
//!
//! # What you call
//! | module or type | contents |
//! |---|---|
//! | [`network`] | genesis, fork schedules and presets of beacon chains |
//! | [`account_proof`] | accounts, slots and trie nodes of `eth_getProof`, verified against a state root |
//! | [`history_contract`] | hashes of the last 8,191 blocks under a state root (EIP-2935) |
//! | [`header_proof`] | proofs that a header of any age is part of the chain |
//! | [`links`] | chains of links from a believed statement to a block |
//! | [`Grade`] | how far a hash can be believed |
//! | [`merkle_branch`] | Merkle branches of SSZ objects |
//!
//! # What you drive
//! | module | contents |
//! |---|---|
//! | [`sync_committee`] | light client of the beacon chain: finalised and optimistic headers, from one trusted block root |
//! | [`sync`] | keeps a light client up to date by several servers that are not trusted |
//!
//! # What is proven
//! A [finalised header](sync_committee) carries the signatures of at least two thirds of a sync
//! committee of 512 validators, under the root of the caller's checkpoint. This is less than full
//! consensus: no attestations are counted, and members of a sync committee are not slashed for a
//! false signature. Two thirds of one committee can therefore forge a header at no cost but their
//! reputation. Every result names its [evidence](sync_committee::Evidence) and its
//! [checkpoint](sync_committee::Checkpoint).

pub mod account_proof;
pub mod header_proof;
pub mod history_contract;
pub mod links;
pub mod merkle_branch;
pub mod network;
pub mod sync;
pub mod sync_committee;

use chainsieve_lanes::names;

/// The reason to believe a hash, from the weakest to the strongest.
///
/// A grade is not a proof: it names the statement from which a proof starts. The [links] then lead
/// from that statement to a block, and each link can be checked again from its bytes.
///
/// | grade | shown | not shown |
/// |---|---|---|
/// | `OwnWord` | nothing: the verifier gave the hash itself | where the verifier has it from |
/// | `OneProvider` | one provider claims the hash | that others claim it too |
/// | `Forced` | at least one member of a sync committee signed the block, or one that calls it finalised | that a majority signed, or that the block is final |
/// | `ReleaseCheckpoint` | a release, or a list that this library embeds, publishes the hash | how its publisher checked it |
/// | `Optimistic` | more than half of the sync committee signed the block | that the block stays in the chain |
/// | `Finalized` | at least 342 of 512 signed a header whose state calls the block finalised | full consensus: the signers are not slashed for lies |
/// | `HistoryOfFinalized` | the block is an ancestor of a finalised block | anything newer |
///
/// `Ord` follows this order. `serde`, `Display` and `FromStr` use the [name](Self::name), for
/// example `release_checkpoint`.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Grade {
    /// The verifier gave the hash without a source.
    OwnWord,
    /// One provider claims the hash.
    OneProvider,
    /// A light client accepted few signatures, or, for lack of progress, an update that is not
    /// final.
    Forced,
    /// The hash is published in a release, or follows from a list that this library embeds.
    ReleaseCheckpoint,
    /// The sync committee signed the block. The block may still be reorganised away.
    Optimistic,
    /// The block is finalised.
    Finalized,
    /// The block is an ancestor of a finalised block.
    HistoryOfFinalized,
}

names! {
    Grade, "a grade":
    OwnWord = "own_word", OneProvider = "one_provider", Forced = "forced",
    ReleaseCheckpoint = "release_checkpoint", Optimistic = "optimistic", Finalized = "finalized",
    HistoryOfFinalized = "history_of_finalized",
}

impl Grade {
    /// Returns the grade of a proven ancestor of a block with this grade.
    ///
    /// An ancestor is as reliable as its descendant. Only the name changes for an ancestor of a
    /// finalised block, because the block itself was not called finalised.
    #[must_use]
    pub const fn of_ancestor(self) -> Self {
        match self {
            Self::Finalized => Self::HistoryOfFinalized,
            same => same,
        }
    }

    /// Returns `true` if the block cannot be reorganised away while finality holds.
    ///
    /// `true` for a finalised block and its ancestors. For any other hash, this is undecided, and
    /// the result is `false`.
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Finalized | Self::HistoryOfFinalized)
    }
}
