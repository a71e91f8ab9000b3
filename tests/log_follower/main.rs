//! The log follower on made-up chains, with random branches, lies and kills, compared with a naive
//! answer.

#![expect(clippy::unwrap_used, reason = "what a test cannot do without")]

mod ends;
mod hashes;
mod laws;
mod newer_anchors;
mod run;
