//! Why a block hash is believed: proofs from a trusted root to an execution block.
//!
//! | module | contents |
//! |---|---|
//! | [`sync_committee`] | light client of the beacon chain: finalised and optimistic headers, from one trusted block root |
//! | [`network`] | genesis, fork schedules and presets of beacon chains |
//! | [`merkle_branch`] | SSZ Merkle branches: root of a leaf with its siblings |
//!
//! # What is proven
//! A [finalised header](sync_committee) carries the signatures of at least two thirds of a sync
//! committee of 512 validators, under the root of the caller's checkpoint. This is less than full
//! consensus: no attestations are counted, and members of a sync committee are not slashed for a
//! false signature. Two thirds of one committee can therefore forge a header at no cost but their
//! reputation. Every result names its [evidence](sync_committee::Evidence) and its
//! [checkpoint](sync_committee::Checkpoint).

pub mod merkle_branch;
pub mod network;
pub mod sync_committee;
