//! The follower of logs on made-up chains: random branches, lies and kills against a naive answer.

#![expect(clippy::unwrap_used, reason = "what a test cannot do without")]

#[path = "log_follower/ends.rs"]
mod ends;
#[path = "log_follower/laws.rs"]
mod laws;
#[path = "log_follower/run.rs"]
mod run;
#[path = "log_follower/world.rs"]
mod world;
