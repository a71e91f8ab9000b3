//! The public types can be used by several threads and have `Debug`, and errors are
//! `std::error::Error`.

use std::error::Error;
use std::fmt::Debug;

use chainsieve_client::*;

fn shared<T: Send + Sync + Debug>() {}
fn error<T: Error + Clone + PartialEq + Send + Sync + 'static>() {}

macro_rules! each {
    ($check:ident: $($type:ty),+ $(,)?) => {
        $($check::<$type>();)+
    };
}

/// `Builder` is `Send` only, since its storage and its log callback need not be `Sync`.
#[test]
fn types_are_send_sync_and_debug() {
    fn sent<T: Send + Debug>() {}
    sent::<Builder>();
    each!(
        shared: NetworkParams, Client, Folder, HitCounts, LookUpError, Memory, PeerClaims, PeerNote,
        PeerStatus, RunError, Status, Stopped, StorageError, UpdateStream, Updates, WalletError,
        testnode::Ended, testnode::Node, testnode::NodeBuilder, testnode::ConnectionNote<'static>,
    );
}

#[test]
fn errors_are_errors() {
    // The error may contain an error of the system, which is not `Clone`.
    fn with_source<T: Error + Send + Sync + 'static>() {}
    with_source::<StartError>();
    each!(error: LookUpError, RunError, Stopped, StorageError, WalletError);
}
