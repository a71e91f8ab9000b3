//! Why a block hash is believed: from a statement that a verifier starts from, by links that
//! anyone can check again from their bytes.
//!
//! | module | contents |
//! |---|---|
//! | [`grade`] | how far a hash can be believed |
//! | [`links`] | chains of links from a believed statement to a block |
//! | [`history_contract`] | hashes of the last 8,191 blocks under a state root (EIP-2935) |
//! | [`header_proof`] | proofs that a header of any age is part of the chain |
//! | [`plan`](mod@plan) | the cheapest way to earlier blocks that the sources can serve |
//! | [`account_proof`] | answers to `eth_getProof`, verified against a state root |
//! | [`proof_nodes`] | nodes of the state trie and of storage tries, looked up by their hash |
//! | [`merkle_branch`] | Merkle branches of SSZ objects |

pub mod account_proof;
pub mod grade;
pub mod header_proof;
pub mod history_contract;
pub mod links;
mod list_root;
pub mod merkle_branch;
pub mod plan;
pub mod proof_nodes;
