//! The light client of the beacon chain through its public API: the official step vectors, the
//! updates of mainnet, damaged objects, and a made-up chain with keys of its own.

mod branches;
mod chain;
mod corpus;
mod damage;
mod fixture;
mod mainnet;
mod networks;
mod refusals;
mod servers;
mod stored;
mod supermajority;
mod vectors;
