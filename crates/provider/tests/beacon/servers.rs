//! Several servers, of which one is honest and the others misbehave in each way that is known.

use std::time::{Duration, Instant};

use chainsieve::eth::anchor::sync_committee::Evidence;
use chainsieve_provider::{AnchorSource, BeaconClient, BeaconError, BeaconRound, ServerFailure};
use testkit::allocation::requested_by;
use testkit::eth::beacon_server::{BeaconServer, Quirk};
use testkit::eth::beacon_world::at;

use crate::setup::{MADE_UP, PERIODS};

/// Largest number of rounds after which the newest block is known. One is enough, unless the honest
/// server's answer is late because the machine is busy.
const ROUNDS: usize = 10;

/// Largest number of bytes that a run requests: the limit of one answer is 2.3 MB for the updates of
/// nine periods, and memory doubles while it grows.
const MEMORY: usize = 200 << 20;

/// Timeout of each request to servers that never end an answer. If an honest server on a busy machine
/// needs longer, the next round asks it again.
const SHORT: Duration = Duration::from_secs(5);

fn is_slow(quirk: Quirk) -> bool {
    matches!(quirk, Quirk::Drip | Quirk::Stall | Quirk::Silent)
}

fn timeout_of(quirk: Quirk) -> Duration {
    if is_slow(quirk) { SHORT } else { Duration::from_secs(60) }
}

fn server(quirk: Option<Quirk>) -> BeaconServer {
    BeaconServer::with(MADE_UP.network(), MADE_UP.data.clone(), quirk)
}

/// Asks the servers until the newest block is known. Returns the first round.
fn run(client: &BeaconClient, what: &str) -> BeaconRound {
    let newest = MADE_UP.newest();
    let ((first, last), memory) = requested_by(|| {
        let first = client.sync();
        let mut last = first.clone();
        for _ in 1..ROUNDS {
            if last.as_ref().is_ok_and(|round| round.finalized.beacon.slot == newest) {
                break;
            }
            last = client.sync();
        }
        (first, last)
    });
    let last = last.unwrap_or_else(|error| panic!("{what}: {error}"));
    let finalized = last.finalized;
    assert_eq!(finalized.beacon.slot, newest, "{what}: {:?}", last.failures);
    assert_eq!(Some(finalized.root), MADE_UP.chain.root(newest), "{what}");
    assert!(matches!(finalized.evidence, Evidence::Finalized(_)), "{what}");
    assert!(memory < MEMORY, "{what}: {memory} bytes");
    first.unwrap_or_else(|error| panic!("{what}: {error}"))
}

#[test]
fn one_honest_server() {
    let honest = server(None);
    let client = MADE_UP.client([honest.url()]).build().expect("a client");
    let round = run(&client, "one server");
    assert_eq!((round.answered, round.failures), (1, Vec::new()));
    // Bootstrap, updates of the missing periods, the update of the current one, finality: in a few
    // requests, all as SSZ.
    let asked = honest.take_asked();
    assert!(asked.len() <= 8, "{asked:#?}");
    assert!(asked.iter().all(|asked| asked.accept.starts_with("application/octet-stream")));
    let finality = asked.iter().filter(|asked| asked.path.ends_with("/finality_update")).count();
    assert!((1..=2).contains(&finality), "{asked:#?}");
}

/// Each quirk beside one honest server.
#[test]
fn each_quirk_beside_an_honest_server() {
    std::thread::scope(|scope| {
        for quirk in Quirk::ALL {
            scope.spawn(move || {
                let (honest, other) = (server(None), server(Some(quirk)));
                // The odd server is asked first.
                let client = MADE_UP.client([other.url(), honest.url()]).timeout(timeout_of(quirk));
                let client = client.build().expect("a client");
                let round = run(&client, &format!("{quirk:?}"));
                let others = round.failures.iter().filter(|failure| failure.server == other.url());
                let others: Vec<_> = others.collect();
                let is_proven = others.iter().any(|failure| failure.is_proven);
                assert_eq!(is_proven, quirk == Quirk::Damaged, "{quirk:?}: {others:?}");
                let is_silent = matches!(quirk, Quirk::OtherPeriods | Quirk::More);
                if !quirk.is_usable() && !is_silent {
                    assert!(!others.is_empty(), "{quirk:?}");
                }
                let of_honest = |failure: &&ServerFailure| failure.server == honest.url();
                let mut of_honest = round.failures.iter().filter(of_honest);
                assert!(is_slow(quirk) || of_honest.next().is_none(), "{:?}", round.failures);
                // A redirect is not followed.
                let asked = other.take_asked();
                assert!(asked.iter().all(|asked| asked.path.starts_with("/eth/")), "{asked:?}");
            });
        }
    });
}

/// A quirk after which the server's answers can still be read is no obstacle.
#[test]
fn usable_quirks_alone() {
    std::thread::scope(|scope| {
        for quirk in Quirk::ALL.into_iter().filter(|quirk| quirk.is_usable()) {
            scope.spawn(move || {
                let other = server(Some(quirk));
                let client = MADE_UP.client([other.url()]).build().expect("a client");
                let round = run(&client, &format!("{quirk:?}"));
                assert_eq!(round.answered, 1, "{quirk:?}: {:?}", round.failures);
            });
        }
    });
}

/// One honest server among all others at once.
#[test]
fn all_quirks_at_once() {
    let servers = Quirk::ALL.map(|quirk| server(Some(quirk)));
    let honest = server(None);
    let mut urls: Vec<_> = servers.iter().map(BeaconServer::url).collect();
    urls.insert(11, honest.url());
    let client = MADE_UP.client(urls).timeout(SHORT).build().expect("a client");
    run(&client, "all quirks");
}

/// Without an honest server, nothing is believed, and the error names each server.
#[test]
fn without_an_honest_server() {
    let quirks = [Quirk::NotFound, Quirk::Damaged, Quirk::Html, Quirk::Cut, Quirk::Redirect];
    let servers = quirks.map(|quirk| server(Some(quirk)));
    let client = MADE_UP.client(servers.iter().map(BeaconServer::url)).build().expect("a client");
    let error = client.sync().expect_err("no bootstrap");
    let BeaconError::NoBootstrap { checkpoint, failures } = &error else { panic!("{error}") };
    assert_eq!(*checkpoint, MADE_UP.root);
    assert_eq!(failures.len(), servers.len());
    for (server, quirk) in servers.iter().zip(quirks) {
        let of = failures.iter().find(|failure| failure.server == server.url());
        assert_eq!(of.expect("named").is_proven, quirk == Quirk::Damaged, "{quirk:?}");
        assert!(error.to_string().contains(server.url()), "{error}");
    }
    assert!(client.light_client().is_none());
    // The servers are mended, and the client goes on.
    for server in &servers {
        server.set_quirk(None);
    }
    run(&client, "mended");
}

/// Servers that lag: the newest of them counts.
#[test]
fn the_newest_server_counts() {
    let now = MADE_UP.now;
    let lagging = [now - 3, now - 70, at(PERIODS - 4, 9), at(1, 30)];
    let mut servers =
        lagging.map(|slot| BeaconServer::start(MADE_UP.network(), MADE_UP.data_at(slot)));
    servers.reverse();
    let client = MADE_UP.client(servers.iter().map(BeaconServer::url)).build().expect("a client");
    let round = client.sync().expect("a bootstrap");
    assert_eq!((round.answered, &round.failures[..]), (4, &[][..]));
    let newest = lagging.into_iter().filter_map(|slot| MADE_UP.chain.finalized(slot)).max();
    assert_eq!(Some(round.finalized.beacon.slot), newest);
}

/// Between two rounds, nothing is requested.
#[test]
fn rounds_are_apart() {
    let honest = server(None);
    let client = MADE_UP.client([honest.url()]).poll(Duration::from_secs(3_600));
    let client = client.build().expect("a client");
    let round = run(&client, "one server");
    assert!(!honest.take_asked().is_empty());
    honest.set_quirk(Some(Quirk::Error));
    let again = client.sync().expect("nothing is requested");
    assert_eq!((again.finalized, again.answered), (round.finalized, 1));
    assert_eq!(honest.take_asked(), []);
}

/// As a source of anchors, the client returns the execution block of the newest finalised header.
#[test]
fn anchors_are_execution_blocks() {
    let honest = server(None);
    let client = MADE_UP.client([honest.url()]).build().expect("a client");
    let blocks = client.blocks().expect("a block");
    let header = MADE_UP.chain.header(MADE_UP.newest());
    let bound = header.bound_execution(MADE_UP.network()).expect("proven");
    assert_eq!(blocks, [bound.bound_hash().expect("after Capella")]);
    // A block from before Capella binds nothing.
    let slot = at(1, 30);
    let old = BeaconServer::start(MADE_UP.network(), MADE_UP.data_at(slot));
    let client = MADE_UP.client([old.url()]).build().expect("a client");
    let error = client.blocks().expect_err("no execution block");
    assert!(error.contains("older than Capella"), "{error}");
}

/// The newest signed header is asked for only on request. It is never an anchor, and a false one is
/// refused.
#[test]
fn an_optimistic_header_is_newer_and_not_final() {
    let finality = MADE_UP.data_at(MADE_UP.now).finality.expect("a finality update");
    let newest =
        MADE_UP.data.optimistic.as_ref().expect("an optimistic update").attested.beacon.slot;
    // The finality update of this server is an epoch old.
    let early = MADE_UP.chain.finalized(MADE_UP.now - 8);
    let mut data = MADE_UP.data_at(MADE_UP.now - 8);
    let stale = data.finality.as_ref().expect("a finality update").attested.beacon.slot;
    data.optimistic.clone_from(&MADE_UP.data.optimistic);
    assert!(stale < newest && finality.attested.beacon.slot <= newest);

    let honest = BeaconServer::start(MADE_UP.network(), data.clone());
    let is_optimistic = |path: &str| path.ends_with("/optimistic_update");
    let round = MADE_UP.client([honest.url()]).build().expect("a client").sync();
    let round = round.expect("a round");
    assert_eq!(round.optimistic.beacon.slot, stale);
    assert!(!honest.take_asked().iter().any(|asked| is_optimistic(&asked.path)));

    let damaged = BeaconServer::with(MADE_UP.network(), data, Some(Quirk::Damaged));
    let urls = [damaged.url(), honest.url()];
    let client = MADE_UP.client(urls).optimistic().build().expect("a client");
    let round = client.sync().expect("a round");
    assert_eq!(round.optimistic.beacon.slot, newest);
    assert_eq!(Some(round.optimistic.root), MADE_UP.chain.root(newest));
    assert!(matches!(round.optimistic.evidence, Evidence::Optimistic(_)));
    assert_eq!(Some(round.finalized.beacon.slot), early);
    assert_eq!(honest.take_asked().iter().filter(|asked| is_optimistic(&asked.path)).count(), 1);
    assert!(round.failures.iter().all(|failure| failure.is_proven), "{:?}", round.failures);
    assert_eq!(round.answered, 1);
    let anchor = round.finalized.execution.bound_hash().map(|hash| vec![hash]);
    assert_eq!(client.blocks().ok(), anchor);
}

/// A server that accepts requests and never answers delays neither the start nor newer blocks, although
/// it is asked first. It is named, and once it answers, it is one of those that do.
#[test]
fn a_hung_server_delays_nothing() {
    /// Less than the timeout of a single request.
    const MOMENT: Duration = Duration::from_secs(40);
    let hung = server(Some(Quirk::Silent));
    let honest = BeaconServer::start(MADE_UP.network(), MADE_UP.data_at(MADE_UP.now - 70));
    let client = MADE_UP.client([hung.url(), honest.url()]).retries(5).optimistic();
    let client = client.poll(Duration::from_millis(20)).build().expect("a client");
    let began = Instant::now();
    let hash = |slot| {
        let header = MADE_UP.chain.header(slot);
        header.bound_execution(MADE_UP.network()).expect("proven").bound_hash()
    };
    let before = MADE_UP.chain.finalized(MADE_UP.now - 70).expect("by two thirds");
    assert_eq!(client.blocks().expect("a block").pop(), hash(before));
    assert!(began.elapsed() < MOMENT, "the start took {:?}", began.elapsed());
    // Newer blocks are known within a poll, each time.
    let began = Instant::now();
    for slots in [40, 20, 0] {
        honest.set(MADE_UP.data_at(MADE_UP.now - slots));
        let newest = MADE_UP.chain.finalized(MADE_UP.now - slots).and_then(hash);
        while client.blocks().expect("a block").pop() != newest {
            std::thread::sleep(Duration::from_millis(20));
            assert!(began.elapsed() < MOMENT, "{slots} slots ago: {:?}", began.elapsed());
        }
    }
    let round = client.advance().expect("a round");
    assert_eq!(round.answered, 1, "{:?}", round.failures);
    assert!(round.failures.iter().all(|failure| failure.server == hung.url()));
    assert!(!round.failures.is_empty());
    // It was asked once.
    assert_eq!(hung.take_asked().len(), 1);
}

/// A server that is slow, and not silent, is waited for if it is the only one.
#[test]
fn a_slow_server_is_enough() {
    let slow = server(Some(Quirk::Slow));
    let client = MADE_UP.client([slow.url()]).poll(Duration::from_secs(60)).build();
    let round = client.expect("a client").advance().expect("a round");
    assert_eq!((round.answered, &round.failures[..]), (1, &[][..]));
    assert_eq!(round.finalized.beacon.slot, MADE_UP.newest());
}
