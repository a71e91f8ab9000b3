//! The light client of the beacon chain over HTTP: real objects of mainnet, a made-up chain with
//! servers that misbehave in each way that is known, the folder, and kills at random moments.

mod folder;
mod kill;
mod links;
mod mainnet;
mod objects;
mod servers;
mod setup;
mod signatures;

use testkit::allocation::Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;
