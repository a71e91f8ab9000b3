//! Addresses, netgroups, messages with addresses, and network parameters.

mod gossip;
mod netgroup;
mod params;
mod target;
