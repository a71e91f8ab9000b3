//! A light client of the beacon chain, over servers of the Beacon API that nobody trusts.

mod builder;
mod client;
mod error;
mod link;
mod server;

pub use builder::BeaconBuilder;
pub use client::{BeaconClient, BeaconRound, ServerFailure};
pub use error::{BeaconError, BeaconFileCause};
pub use link::{FindProof, LinkFetchError, LinkOptions, LinkedBlock};
pub use server::BeaconServer;
