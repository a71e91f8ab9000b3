//! Stale tips: when a client reports that no new block arrives.

use std::vec::Vec;

use bitcoin::block::Header;
use bitcoin::consensus::encode::deserialize_hex;
use bitcoin::p2p::ServiceFlags;
use bitcoin::p2p::message::NetworkMessage;

use super::super::*;
use crate::btc::client::{
    Action, Config, Event, Finding, LightClient, News, PeerInfo, Protocol, StoredFiles,
};
use crate::btc::peer::PeerId;

fn minutes(count: u64) -> Duration {
    Duration::from_secs(60 * count)
}

/// A client at a time long after the first blocks.
struct Run {
    client: LightClient,
    now: Duration,
}

impl Run {
    fn new(config: Config) -> Self {
        let client = LightClient::new(config, &StoredFiles::default()).unwrap();
        Self { client, now: minutes(30_000_000) }
    }

    /// Passes in an event, and returns the minutes that findings say to have no new block.
    fn handle(&mut self, event: Event) -> Vec<u64> {
        let stored = |actions: &[Action]| {
            actions.iter().rev().find_map(|action| match action {
                Action::Write(id, _) => Some(Event::Stored(*id)),
                _ => None,
            })
        };
        let mut actions = self.client.handle(event, self.now);
        while let Some(event) = stored(&actions) {
            actions.retain(|action| !matches!(action, Action::Write(..)));
            actions.extend(self.client.handle(event, self.now));
        }
        let found = actions.into_iter().filter_map(|action| match action {
            Action::Update(update) => match update.news {
                News::Finding(Finding::StaleTip { seconds }) => Some(seconds / 60),
                _ => None,
            },
            _ => None,
        });
        found.collect()
    }

    /// Lets time pass with a check in each minute. Returns the reports.
    fn pass(&mut self, count: u64) -> Vec<u64> {
        let mut reports = Vec::new();
        for _ in 0..count {
            self.now += minutes(1);
            reports.extend(self.handle(Event::Tick));
        }
        reports
    }
}

#[test]
fn a_tip_is_stale_after_half_an_hour_until_a_block_comes() {
    let protocol = Protocol::HeadersOnly;
    let mut run = Run::new(Config { protocol, ..Config::new(Network::Bitcoin, [0; 16]) });
    assert!(run.handle(Event::Tick).is_empty());
    assert!(run.pass(30).is_empty());
    assert!(!run.client.is_tip_stale());
    // The report is repeated each time the time has doubled.
    assert_eq!(run.pass(300), [31, 63, 127, 255]);
    assert!(run.client.is_tip_stale());
    let info = PeerInfo {
        name: "peer".into(),
        services: ServiceFlags::NETWORK | ServiceFlags::COMPACT_FILTERS,
        start_height: 1,
    };
    run.handle(Event::Connected(PeerId(1), info));
    assert!(run.client.is_tip_stale());
    let block_1: Header = deserialize_hex("010000006fe28c0ab6f1b372c1a6a246ae63f74f931e8365e15a089c68d6190000000000982051fd1e4ba744bbbe680e1fee14677ba1a3c3540bf7b1cdb606e857233e0e61bc6649ffff001d01e36299").unwrap();
    let headers = NetworkMessage::Headers(std::vec![block_1]);
    run.handle(Event::Message(PeerId(1), headers.clone()));
    assert!(!run.client.is_tip_stale());
    assert_eq!(run.pass(31), [31]);
    // A block that is known already is no new block.
    run.handle(Event::Message(PeerId(1), headers));
    assert!(run.client.is_tip_stale());
    assert_eq!(run.pass(32), [63]);
    assert_eq!(run.client.chain().tip().height, 1);
}

/// Time in which the client was paused, such as the sleep of a computer, does not count.
#[test]
fn paused_time_makes_no_tip_stale() {
    let mut run = Run::new(Config::new(Network::Bitcoin, [0; 16]));
    run.handle(Event::Tick);
    assert!(run.pass(20).is_empty());
    run.now += minutes(600);
    run.handle(Event::Paused(minutes(600)));
    assert!(run.pass(10).is_empty());
    assert_eq!(run.pass(1), [31]);
}

/// A network with slower blocks has more time. A signet with faster blocks has half an hour, and
/// regtest, where nobody need mine, has no limit.
#[test]
fn the_limit_is_three_block_times_and_at_least_half_an_hour() {
    for (network, block_time, expected) in [
        (Network::Signet, 600, Some(31)),
        (Network::Signet, 30, Some(31)),
        (Network::Signet, 1_200, Some(61)),
        (Network::Testnet4, 600, Some(31)),
        (Network::Regtest, 600, None),
    ] {
        let mut run = Run::new(Config { block_time, ..Config::new(network, [0; 16]) });
        run.handle(Event::Tick);
        let reports = run.pass(70);
        assert_eq!(reports.first().copied(), expected, "{network} {block_time}");
        assert_eq!(run.client.is_tip_stale(), expected.is_some(), "{network} {block_time}");
    }
}
