//! Nodes that lie, against this library's own clients and audits.

#![allow(missing_docs, reason = "tests")]

mod bitcoin_audit;
mod bitcoin_client;
mod ethereum_audit;
mod ethereum_chains;
mod ethereum_places;
mod hostile;
mod hostile_nodes;
mod servers;
mod table;
