#![doc = include_str!("../README.md")]

/// Defines methods of a builder: each changes the builder, and returns it.
macro_rules! setters {
    ($self:ident: $(
        $(#[$doc:meta])* $name:ident($($argument:ident: $type:ty),*) $change:block
    )+) => {$(
        $(#[$doc])*
        pub fn $name(mut $self, $($argument: $type),*) -> Self {
            $change
            $self
        }
    )+};
}

/// Implements `Debug` by some members of a type, because other members are secret or do not
/// implement `Debug`.
macro_rules! debug_by {
    ($type:ty: $($member:ident),*) => {
        impl std::fmt::Debug for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let mut shown = f.debug_struct(stringify!($type));
                $(shown.field(stringify!($member), &self.$member);)*
                shown.finish_non_exhaustive()
            }
        }
    };
}

mod anchor;
#[cfg(feature = "beacon")]
mod beacon;
mod durable_file;
mod error;
#[cfg(feature = "abi")]
mod events;
mod follow;
mod nodes;
#[cfg(feature = "server")]
mod proven;
mod provider;
mod report;
#[cfg(feature = "server")]
mod server;
mod stop;

pub use chainsieve;
pub use chainsieve::eth::follow::{Cursor, News};
pub use chainsieve::eth::log_query::LogQuery;

pub use anchor::{AnchorSource, Beside, OtherNode, Tip, Trust};
#[cfg(feature = "beacon")]
pub use beacon::{
    BeaconBuilder, BeaconClient, BeaconError, BeaconRound, BeaconServer, FindProof, LinkOptions,
    LinkedBlock, ServerFailure,
};
pub use durable_file::FileError;
pub use error::{BuildError, FetchError};
#[cfg(feature = "abi")]
pub use events::{Argument, DecodedEvent, EventDecoder, EventDecoderError};
#[cfg(feature = "tokio")]
pub use follow::LogUpdateStream;
pub use follow::{
    CandidateIndex, FollowBuilder, FollowError, FollowStatus, Following, LogUpdate, LogUpdates,
};
pub use nodes::{Budget, Endpoint, EndpointError, Limit, Node, RpcError};
pub use provider::audit::{AuditResult, FetchedAnswers, FetchedReceipts};
pub use provider::chain::{FetchedChain, ResolvedQuery};
pub use provider::logs::{Incomplete, LogsError, ProvenLogs};
pub use provider::scan::{ScanResult, ScannedPart};
pub use provider::{Builder, Provider};
pub use report::{Note, Stage, Warning};
#[cfg(feature = "server")]
pub use server::{
    LogDifferences, RpcServer, RpcServerBuilder, RpcServerError, RpcServerEvent, RpcServerLimits,
};
#[cfg(feature = "alloy-layer")]
pub use server::{ProvenLayer, ProvenProvider};
pub use stop::{Pending, Stop};
