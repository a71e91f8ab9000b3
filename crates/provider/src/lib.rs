#![doc = include_str!("../README.md")]

mod anchor;
mod answers;
#[cfg(feature = "beacon")]
mod beacon;
mod builder;
mod durable_file;
mod endpoints;
mod error;
#[cfg(feature = "abi")]
mod events;
mod fetched_answers;
mod fetched_chain;
mod follow;
mod held;
mod in_order;
mod logs;
mod node;
mod nodes;
mod note;
mod pending;
#[cfg(feature = "server")]
mod proven;
mod provider;
mod receipts;
mod resolve;
mod scan;
#[cfg(feature = "server")]
mod server;
mod source;
mod stop;
mod tagged;
mod tip;
mod transactions;
mod warning;

pub use chainsieve;
pub use chainsieve::eth::follow::{Cursor, Update};
pub use chainsieve::eth::log_query::LogQuery;

pub use anchor::AnchorSource;
#[cfg(feature = "beacon")]
pub use beacon::{
    BeaconBuilder, BeaconClient, BeaconError, BeaconFileCause, BeaconRound, BeaconServer,
    FindProof, LinkFetchError, LinkOptions, LinkedBlock, ServerFailure,
};
pub use builder::Builder;
pub use error::{BuildError, FetchError};
#[cfg(feature = "abi")]
pub use events::{Argument, DecodeError, DecodedEvent, EventDecoder, EventDecoderError};
pub use fetched_answers::FetchedAnswers;
pub use fetched_chain::FetchedChain;
#[cfg(feature = "tokio")]
pub use follow::LogUpdateStream;
pub use follow::{
    CandidateIndex, CursorFileCause, CursorFileError, FollowBuilder, FollowError, FollowStatus,
    Following, LogUpdate, LogUpdates,
};
pub use logs::{Incomplete, LogsError, ProvenLogs};
pub use node::{Endpoint, EndpointError, Node, RpcError};
pub use note::{Note, Stage};
pub use pending::Pending;
pub use provider::{AuditResult, Provider};
pub use receipts::FetchedReceipts;
pub use resolve::ResolvedQuery;
pub use scan::{ScanResult, ScannedPart};
#[cfg(feature = "server")]
pub use server::{
    LogDifferences, RpcServer, RpcServerBuilder, RpcServerError, RpcServerEvent, RpcServerLimits,
};
#[cfg(feature = "alloy-layer")]
pub use server::{ProvenLayer, ProvenProvider};
pub use stop::Stop;
pub use tip::{Beside, OtherNode, Tip};
pub use warning::Warning;
