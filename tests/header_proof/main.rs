//! Proofs of block hashes: official and mainnet header proofs, the history contract, chains of
//! links, archives. Every byte of each is changed once, and nothing is accepted then.
//!
//! Needs the folder `anchors` of the corpus, except for the tests of the embedded lists and of the
//! planner.

mod accounts;
mod archives;
mod branches;
mod contract;
mod corpus;
mod cut;
mod embedded;
mod headers;
mod links;
mod mutations;
mod slow_ssz;
mod summaries;
