//! Why a block hash is believed: from a statement that a verifier starts from, by links that
//! anyone can check again from their bytes.
//!
//! | module | contents |
//! |---|---|
//! | [`sync_committee`] | light client of the beacon chain: finalised and optimistic headers, from one trusted block root |
//! | [`sync`] | keeps a light client up to date by several servers that nobody trusts |
//! | [`network`] | genesis, fork schedules and presets of beacon chains |
//! | [`history_contract`] | hashes of the last 8,191 blocks under a state root (EIP-2935) |
//! | [`header_proof`] | proofs that a header of any age is part of the chain |
//! | [`links`] | chains of links from a believed statement to a block |
//! | [`grade`] | how far a hash can be believed |
//! | [`plan`](mod@plan) | the cheapest way to earlier blocks that the sources can serve |
//! | [`account_proof`] | answers to `eth_getProof`, verified against a state root |
//! | [`proof_nodes`] | nodes of the state trie and of storage tries, looked up by their hash |
//! | [`merkle_branch`] | Merkle branches of SSZ objects |
//!
//! # What is proven
//! A [finalised header](sync_committee) carries the signatures of at least two thirds of a sync
//! committee of 512 validators, under the root of the caller's checkpoint. This is less than full
//! consensus: no attestations are counted, and members of a sync committee are not slashed for a
//! false signature. Two thirds of one committee can therefore forge a header at no cost but their
//! reputation. Every result names its [evidence](sync_committee::Evidence) and its
//! [checkpoint](sync_committee::Checkpoint).

pub mod account_proof;
#[cfg(feature = "alloy-rpc")]
mod alloy_account_proof;
pub mod grade;
pub mod header_proof;
pub mod history_contract;
pub mod links;
mod list_root;
pub mod merkle_branch;
pub mod network;
pub mod plan;
pub mod proof_nodes;
pub mod sync;
pub mod sync_committee;
