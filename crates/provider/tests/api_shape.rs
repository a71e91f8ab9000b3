//! The public types can be moved and shared between threads, and print as `Debug`. Errors are
//! `Error`s.

use std::error::Error;
use std::fmt::Debug;

use chainsieve_provider as ours;

fn sent<T: Debug + Send>() {}
fn shared<T: Debug + Send + Sync>() {}
fn error<T: Error + Send + Sync + 'static>() {}

macro_rules! each {
    ($check:ident: $($type:ident),+ $(,)?) => {
        $($check::<ours::$type>();)+
    };
}

#[test]
fn types_can_be_shared_between_threads() {
    each!(
        shared: ResolvedQuery, FetchedAnswers, AuditResult, Beside, Budget, Builder, Endpoint, FetchedReceipts, FetchedChain,
        FollowStatus, Following, Limit, LogUpdate, LogUpdates, Node, Note, OtherNode, ProvenLogs, Provider,
        ScanResult, Stage, Stop, Tip, Warning,
    );
    shared::<ours::Pending<u64>>();
    shared::<ours::ScannedPart<'static>>();
    // The index of a follower may be of any type that can be sent to the follower's thread.
    each!(sent: FollowBuilder);
    #[cfg(feature = "tokio")]
    each!(shared: LogUpdateStream);
    #[cfg(feature = "abi")]
    {
        shared::<ours::Argument<'static>>();
        shared::<ours::DecodedEvent<'static>>();
        each!(shared: EventDecoder);
    }
}

#[test]
fn errors_are_errors() {
    each!(
        error: BuildError, EndpointError, FetchError, FileError, FollowError, Incomplete, LogsError,
        RpcError,
    );
    #[cfg(feature = "abi")]
    each!(error: EventDecoderError);
}
