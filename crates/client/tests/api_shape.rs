//! The public types can be used by several threads and have `Debug`, and errors are
//! `std::error::Error`.

use std::error::Error;
use std::fmt::Debug;

use chainsieve_client::*;

/// `Builder` is `Send` only, since its storage and its log callback need not be `Sync`.
#[test]
fn types_are_send_sync_and_debug() {
    fn check<T: Send + Sync + Debug>() {}
    fn check_send<T: Send + Debug>() {}
    check_send::<Builder>();
    check::<NetworkParams>();
    check::<Client>();
    check::<Folder>();
    check::<HitCounts>();
    check::<LookUpError>();
    check::<Memory>();
    check::<PeerClaims>();
    check::<PeerNote>();
    check::<PeerStatus>();
    check::<RunError>();
    check::<Status>();
    check::<Stopped>();
    check::<StorageError>();
    check::<UpdateStream>();
    check::<Updates>();
    check::<WalletError>();
    check::<testnode::Ended>();
    check::<testnode::Node>();
    check::<testnode::NodeBuilder>();
    check::<testnode::ConnectionNote<'static>>();
}

#[test]
fn errors_are_errors() {
    fn check<T: Error + Clone + PartialEq + Send + Sync + 'static>() {}
    // The error may contain an error of the system, which is not `Clone`.
    fn check_source<T: Error + Send + Sync + 'static>() {}
    check::<LookUpError>();
    check::<RunError>();
    check_source::<StartError>();
    check::<Stopped>();
    check::<StorageError>();
    check::<WalletError>();
}
