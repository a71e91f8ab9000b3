//! The follower of logs on made-up chains: random branches, lies and kills against a naive answer.

#![expect(clippy::unwrap_used, reason = "what a test cannot do without")]

mod ends;
mod laws;
mod run;
