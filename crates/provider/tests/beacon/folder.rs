//! The folder: used by one process at a time, read by others, and never silently replaced.

use std::fs;
use std::time::Duration;

use chainsieve::alloy_primitives::B256;
use chainsieve::eth::anchor::network::Network;
use chainsieve::eth::anchor::sync_committee::{DecodeError, LightClient};
use chainsieve_provider::{AnchorSource, BeaconClient, BeaconError, FileError};
use testkit::eth::beacon_server::{BeaconServer, Quirk};
use testkit::eth::beacon_world::at;

use testkit::TestFolder;

use crate::setup::{MADE_UP, PERIODS, file};

fn honest() -> BeaconServer {
    BeaconServer::start(MADE_UP.network(), MADE_UP.data.clone())
}

/// Runs a client in the folder to the newest block.
fn filled(folder: &TestFolder) {
    let server = honest();
    let client = MADE_UP.client([server.url()]).folder(folder.path()).build().expect("a client");
    assert_eq!(client.sync().expect("a bootstrap").finalized.beacon.slot, MADE_UP.newest());
}

/// Opens the folder without servers and checkpoint.
fn offline(folder: &TestFolder) -> Result<BeaconClient, BeaconError> {
    BeaconClient::builder(MADE_UP.network().clone()).folder(folder.path()).build()
}

fn failure(result: Result<BeaconClient, BeaconError>) -> FileError {
    match result {
        Err(BeaconError::File(error)) => error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn one_client_at_a_time_and_readers_beside_it() {
    let folder = TestFolder::new("used");
    assert_eq!(BeaconClient::read(folder.path(), MADE_UP.network().clone()).map(drop), Ok(()));
    let server = honest();
    let open = || MADE_UP.client([server.url()]).folder(folder.path()).build();
    let client = open().expect("a client");
    assert_eq!(failure(open()), FileError::InUse { path: file(&folder) });
    let read = || BeaconClient::read(folder.path(), MADE_UP.network().clone()).expect("readable");
    assert!(read().is_none());
    let round = client.sync().expect("a bootstrap");
    assert_eq!(read().expect("stored").finalized().beacon, round.finalized.beacon);
    assert_eq!(failure(open()), FileError::InUse { path: file(&folder) });
    drop(client);
    assert!(open().expect("free again").light_client().is_some());
}

#[test]
fn without_servers_the_folder_is_used_as_it_is() {
    let folder = TestFolder::new("offline");
    let error = offline(&folder).expect_err("nothing to start from");
    assert_eq!(error, BeaconError::NoCheckpoint(file(&folder)));
    assert!(error.to_string().contains("light-client.json"), "{error}");
    filled(&folder);
    let client = offline(&folder).expect("stored");
    let round = client.sync().expect("known");
    assert_eq!((round.finalized.beacon.slot, round.answered), (MADE_UP.newest(), 0));
    let blocks = client.blocks().expect("a block");
    assert_eq!(Some(blocks[0]), round.finalized.execution.bound_hash());
    assert_eq!(blocks.len(), 1);
    let none = BeaconClient::builder(MADE_UP.network().clone()).build();
    assert_eq!(none.map(drop), Err(BeaconError::NoStart));
}

/// Servers that fail do not take away what is stored.
#[test]
fn failing_servers_and_a_folder() {
    let folder = TestFolder::new("failing");
    filled(&folder);
    let server = honest();
    server.set_quirk(Some(Quirk::Error));
    let client = MADE_UP.client([server.url()]).folder(folder.path()).build().expect("a client");
    let round = client.sync().expect("known");
    assert_eq!((round.finalized.beacon.slot, round.answered), (MADE_UP.newest(), 0));
    assert_eq!(round.failures.len(), 1);
}

#[test]
fn another_checkpoint_needs_a_restart() {
    let folder = TestFolder::new("restart");
    filled(&folder);
    let server = honest();
    let mut data = MADE_UP.data.clone();
    let slot = MADE_UP.chain.block_at(at(4, 0));
    let root = data.add_bootstrap(MADE_UP.chain.bootstrap(slot));
    server.set(data);
    let other = || MADE_UP.client([server.url()]).checkpoint(root).folder(folder.path());
    let error = other().build().expect_err("another checkpoint");
    let (stored, given) = (MADE_UP.root, root);
    assert_eq!(error, BeaconError::OtherCheckpoint { path: file(&folder), stored, given });
    // Until the new checkpoint's bootstrap is there, the old file stays.
    let before = fs::read(file(&folder)).expect("a file");
    server.set_quirk(Some(Quirk::NotFound));
    let client = other().restart().build().expect("a client");
    assert!(client.light_client().is_none());
    client.sync().expect_err("no bootstrap");
    assert_eq!(fs::read(file(&folder)).expect("a file"), before);
    server.set_quirk(None);
    let round = client.sync().expect("a bootstrap");
    assert_eq!(round.finalized.beacon.slot, MADE_UP.newest());
    drop(client);
    let stored = offline(&folder).expect("stored").light_client().expect("stored");
    assert_eq!(stored.trust().checkpoint.root, root);
    // A restart needs a checkpoint.
    let error = BeaconClient::builder(MADE_UP.network().clone()).folder(folder.path()).restart();
    assert!(matches!(error.build(), Err(BeaconError::NoCheckpoint(_))));
}

#[test]
fn a_damaged_file_is_an_error_that_names_it() {
    let folder = TestFolder::new("damaged");
    filled(&folder);
    let whole = fs::read(file(&folder)).expect("a file");
    let mut changed = whole.clone();
    let middle = changed.len() / 2;
    changed[middle] ^= 1;
    for text in [&whole[..whole.len() / 2], &changed, b"", b"{}"] {
        fs::write(file(&folder), text).expect("written");
        let server = honest();
        let build = || MADE_UP.client([server.url()]).folder(folder.path()).build();
        let FileError::Invalid { path, .. } = failure(build()) else { panic!() };
        assert_eq!(path, file(&folder));
        assert!(build().expect_err("damaged").to_string().contains("light-client.json"));
        BeaconClient::read(folder.path(), MADE_UP.network().clone()).expect_err("damaged");
        assert_eq!(server.take_asked(), []);
        // A damaged file is not replaced without a word.
        assert_eq!(fs::read(file(&folder)).expect("a file"), text);
    }
    fs::write(file(&folder), vec![b' '; 5 << 20]).expect("written");
    let (path, size, limit) = (file(&folder), 5 << 20, 4 << 20);
    assert_eq!(failure(offline(&folder)), FileError::TooLarge { path, size, limit });
    fs::write(file(&folder), [0xff; 9]).expect("written");
    let FileError::Io { path, .. } = failure(offline(&folder)) else { panic!() };
    assert_eq!(path, file(&folder));
    fs::write(file(&folder), &whole).expect("written");
    let other = BeaconClient::builder(Network::mainnet()).folder(folder.path()).build();
    let FileError::Invalid { why, .. } = failure(other) else { panic!() };
    let text = String::from_utf8(whole).expect("a text");
    let expected = LightClient::from_json(&text, Network::mainnet(), Duration::ZERO);
    let expected = expected.map(drop).expect_err("another network");
    assert!(matches!(expected, DecodeError::OtherNetwork { .. }), "{expected}");
    assert_eq!(why, expected.to_string());
    // A restart replaces a damaged file.
    fs::write(file(&folder), b"{").expect("written");
    let server = honest();
    let client = MADE_UP.client([server.url()]).folder(folder.path()).restart().build();
    client.expect("a client").sync().expect("a bootstrap");
    assert!(offline(&folder).expect("stored").light_client().is_some());
}

/// A folder that cannot be written is an error. Nothing that is not stored is returned, and once the
/// folder is back, the client goes on.
#[test]
fn what_cannot_be_stored_is_not_returned() {
    let folder = TestFolder::new("full");
    let server = BeaconServer::start(MADE_UP.network(), MADE_UP.data_at(at(3, 30)));
    let client = MADE_UP.client([server.url()]).folder(folder.path()).build().expect("a client");
    let before = client.sync().expect("a bootstrap").finalized.beacon.slot;
    server.set(MADE_UP.data.clone());
    // The file's place is taken by a folder that is not empty.
    let kept = fs::read(file(&folder)).expect("a file");
    fs::remove_file(file(&folder)).expect("removed");
    fs::create_dir_all(file(&folder).join("in the way")).expect("a folder");
    for _ in 0..3 {
        let error = client.sync().expect_err("not stored");
        assert!(
            matches!(&error, BeaconError::File(FileError::Io { path, .. }) if *path == file(&folder))
        );
        client.blocks().expect_err("not stored");
    }
    fs::remove_dir_all(file(&folder)).expect("removed");
    fs::write(file(&folder), kept).expect("written");
    let round = client.sync().expect("stored");
    assert!(round.finalized.beacon.slot > before);
    let read = || {
        let read = BeaconClient::read(folder.path(), MADE_UP.network().clone());
        read.expect("readable").expect("stored").finalized().beacon.slot
    };
    assert_eq!(round.finalized.beacon.slot, read());
    assert_eq!(client.sync().expect("stored").finalized.beacon.slot, MADE_UP.newest());
    assert_eq!(read(), MADE_UP.newest());
    assert!(PERIODS > 3 && MADE_UP.root != B256::ZERO);
}
