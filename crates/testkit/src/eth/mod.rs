//! Ethereum test support: headers, receipts, logs, and simulated nodes.

pub mod audit_runs;
pub mod beacon_chain;
pub mod beacon_objects;
pub mod beacon_server;
pub mod beacon_world;
pub mod corpus;
pub mod final_blocks;
pub mod fixtures;
pub mod header_checks;
pub mod header_files;
pub mod history_state;
pub mod http_rpc;
pub mod index_sessions;
pub mod json_rpc;
pub mod linked_headers;
pub mod log_chains;
pub mod log_lies;
pub mod made_up_headers;
pub mod naive_logs;
pub mod query_draws;
pub mod random_blooms;
pub mod raw_client;
pub mod recording_storage;
pub mod rpc_methods;
pub mod state_chain;
pub mod world;
