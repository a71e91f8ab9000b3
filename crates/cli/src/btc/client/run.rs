//! A run of a client: reads its updates until the run must end. The parts of the final report: grades of filters,
//! false filters, peers, the tip.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use chainsieve::bitcoin::{Network, Work};
use chainsieve::btc::bip157::FalseFilter;
use chainsieve::btc::peer::{Grade, service_names};
use chainsieve_client::{
    Client, Finding, Graded, News, PeerStatus, Progress, Status, Stopped, Update, UpdateId,
};
use chainsieve_report::args::network_name;
use chainsieve_report::{Exit, count, grouped};
use serde_json::{Value, json};

use crate::args::client::PeerArgs;
use crate::exit::stop_on_signals;

/// Longest wait for an update before the reasons to end are checked.
const TICK: Duration = Duration::from_millis(200);
/// Maximum number of updates that are read before the reasons to end are checked. An estimate: the
/// number bounds how long Ctrl-C has no effect while updates arrive without a pause.
const BATCH: usize = 1_000;

/// A reader of a client's updates.
pub(super) trait Reader {
    /// Processes an update. Returns the updates that are processed completely, to be acknowledged.
    fn take(
        &mut self,
        update: Update,
        status: &Status,
        client: &Client,
    ) -> anyhow::Result<Vec<Update>>;

    /// Returns `true` if the program that reads the output closed the pipe.
    fn is_closed(&self) -> bool;
}

/// The way in which a run ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ending {
    CaughtUp,
    Interrupted,
    GaveUp(String),
    /// No peer was ever connected.
    Unreachable(String),
    /// The program that reads the output closed the pipe.
    Closed,
}

impl Ending {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::CaughtUp => "caught_up",
            Self::Interrupted => "interrupted",
            Self::GaveUp(_) | Self::Unreachable(_) => "gave_up",
            Self::Closed => "closed",
        }
    }
}

/// The ending of a run, and the state of the client at that time.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) ending: Ending,
    pub(super) false_filters: FalseFilters,
    pub(super) status: Status,
    pub(super) grades: Vec<Graded>,
    /// The timestamp of the tip's header.
    pub(super) time: Option<u32>,
}

impl Ended {
    /// Returns the exit code of the run. A run that caught up succeeds even if a peer was proven
    /// wrong: the grades tell how reliable the filters of the other peers are.
    pub(super) fn exit(&self) -> Exit {
        match self.ending {
            Ending::CaughtUp | Ending::Interrupted | Ending::Closed => Exit::Yes,
            Ending::Unreachable(_) | Ending::GaveUp(_) if !self.false_filters.is_empty() => {
                Exit::Wrong
            }
            Ending::Unreachable(_) => Exit::Failed,
            Ending::GaveUp(_) => Exit::Undecided,
        }
    }
}

/// Returns the reason why the run must end; `None` if it continues.
///
/// `waited` is the time without progress. `give_up` is the maximum time without progress. A run
/// with this limit also ends when it has caught up; a run without the limit follows new blocks for
/// ever.
fn reason(
    give_up: Option<Duration>,
    status: &Status,
    waited: Duration,
    was_connected: bool,
) -> Option<Ending> {
    // Bans are final: the client has no peer left to connect to.
    if status.all_banned {
        return Some(Ending::GaveUp("every peer is banned".into()));
    }
    let give_up = give_up?;
    // Every peer must have been tried: a peer that is not connected yet may know a better chain.
    if status.is_caught_up && status.all_tried {
        return Some(Ending::CaughtUp);
    }
    // Every peer that may be dialled is connected or banned, and none offers the needed services:
    // waiting is useless.
    if status.has_started && !status.is_served && status.all_up {
        let needed = service_names(status.services).join("|");
        return Some(Ending::GaveUp(format!("none of the given peers offers {needed}")));
    }
    // `--give-up` limits the time without progress, not the whole run: a long run continues as long
    // as it makes progress.
    if waited < give_up {
        return None;
    }
    let waited = format!("{} s", waited.as_secs());
    // No peer is connected now.
    if status.peers.iter().all(|peer| peer.claims.is_none()) {
        let why = format!("no peer was connected for {waited}");
        // If a peer was connected before, the peers are not reported as unreachable.
        let ending = if was_connected { Ending::GaveUp(why) } else { Ending::Unreachable(why) };
        return Some(ending);
    }
    let why = if status.is_served {
        "no progress"
    } else {
        "no connected peer offered the needed services"
    };
    Some(Ending::GaveUp(format!("{why} for {waited}")))
}

/// Reads updates until the run must end, then shuts the client down, which stores its state. With
/// `once` the run ends when it has caught up.
pub(super) fn drive(
    client: Client,
    args: &PeerArgs,
    once: bool,
    reader: &mut impl Reader,
) -> anyhow::Result<Ended> {
    let give_up = once.then(|| Duration::from_secs(args.give_up.into()));
    let mut false_filters = FalseFilters::default();
    let ended = read(&client, give_up, reader, &mut false_filters).and_then(|ending| {
        let status = client.status()?;
        let time = client.header_at(status.progress.tip.height)?.map(|header| header.time);
        Ok(Ended { ending, false_filters, status, grades: client.grades()?, time })
    });
    let shutdown = client.shutdown();
    match (ended, shutdown) {
        // If the client has stopped, the error of `shutdown` is the cause, and the error of `read`
        // only says that the client has stopped.
        (Err(error), Err(why)) if error.is::<Stopped>() => Err(why.into()),
        (ended, shutdown) => ended.and_then(|ended| Ok(shutdown.map(|()| ended)?)),
    }
}

fn read(
    client: &Client,
    give_up: Option<Duration>,
    reader: &mut impl Reader,
    false_filters: &mut FalseFilters,
) -> anyhow::Result<Ending> {
    let stop = stop_on_signals()?;
    let mut bar = chainsieve_report::Status::default();
    let mut updates = client.updates();
    let (mut steps, mut since) = (0, Instant::now());
    let mut was_connected = false;
    let mut last = UpdateId(0);
    // How the run will end, once this is decided, and the last update to read before the end.
    let mut decided: Option<(Ending, UpdateId)> = None;
    loop {
        let first = updates.next_within(TICK);
        let more = std::iter::from_fn(|| updates.next_within(Duration::ZERO));
        let batch: Vec<_> = first.into_iter().chain(more.take(BATCH)).collect();
        let status = client.status()?;
        was_connected |= status.peers.iter().any(|peer| peer.claims.is_some());
        let printing = Instant::now();
        for update in batch {
            last = update.id;
            if let News::Finding(finding) = &update.news {
                false_filters.add(finding);
            }
            let done = reader.take(update, &status, client)?;
            // Nothing more can be printed. The current update is not acknowledged, so the next run
            // delivers it again.
            if reader.is_closed() {
                return Ok(Ending::Closed);
            }
            for update in &done {
                client.acknowledge(update);
            }
        }
        // A peer may be connected and banned between two looks at the status.
        was_connected |= !false_filters.is_empty();
        // The client waits for a slow reader of the output, so the time of printing is not part of
        // the time without progress.
        since += printing.elapsed();
        bar.show(|| {
            let progress = &status.progress;
            let filters = status.first.map(|first| {
                let settled = progress.settled_to.unwrap_or(first);
                format!("blocks {settled} of {}", progress.end)
            });
            format!("headers {}  {}", progress.tip.height, filters.unwrap_or_default())
        });
        if status.steps != steps {
            (steps, since) = (status.steps, Instant::now());
        }
        decided = match decided {
            _ if stop.is_set() && !matches!(decided, Some((Ending::Interrupted, _))) => {
                Some((Ending::Interrupted, status.last_update))
            }
            None => match reason(give_up, &status, since.elapsed(), was_connected) {
                // Unread updates may contain new work, so the run has caught up only when they have
                // been read.
                Some(Ending::CaughtUp) if last < status.last_update => None,
                reason => reason.map(|ending| (ending, status.last_update)),
            },
            decided => decided,
        };
        if let Some((ending, to)) = &decided
            && last >= *to
        {
            return Ok(ending.clone());
        }
    }
}

/// Returns a range of heights with one grade, in JSON.
pub(super) fn graded_json(graded: &Graded) -> Value {
    let Graded { from, to, grade } = graded;
    json!({"from": from, "to": to, "grade": grade.name(), "peers": grade.peers()})
}

/// Returns the number of blocks of each grade as text, the lowest grade first.
pub(super) fn grades_in_words(runs: &[Graded]) -> Vec<String> {
    let mut counts = BTreeMap::<Grade, u64>::new();
    for run in runs {
        *counts.entry(run.grade).or_default() += u64::from(run.to - run.from) + 1;
    }
    let words = |(grade, blocks): (Grade, u64)| {
        let plural = if blocks == 1 { "" } else { "s" };
        format!("{} block{plural}: {grade}", grouped(blocks))
    };
    counts.into_iter().map(words).collect()
}

/// Returns the members that the reports of both commands share, in JSON.
pub(super) fn json(ended: &Ended, network: Network) -> Value {
    let progress = &ended.status.progress;
    let tip = progress.tip;
    json!({
        "ended": ended.ending.name(),
        "network": network_name(network),
        "tip": {"height": tip.height, "block": tip.hash.to_string(), "time": ended.time},
        "work": work_hex(progress),
        "answered_to": progress.settled_to,
        "grades": ended.grades.iter().map(graded_json).collect::<Vec<_>>(),
        "false_filters": ended.false_filters.json(),
        "peers": peers_json(&ended.status.peers),
    })
}

/// Returns the first fields of the reports of both commands.
pub(super) fn fields(ended: &Ended) -> Vec<(&'static str, String)> {
    let tip = ended.status.progress.tip;
    vec![
        ("ended", ended.ending.name().replace('_', " ")),
        ("tip", format!("{} at height {}", tip.hash, grouped(tip.height))),
    ]
}

/// Returns the work of the chain as 64 hex digits, big-endian, as nodes print it.
pub(super) fn work_hex(progress: &Progress) -> String {
    hex::encode(progress.work.to_be_bytes())
}

/// Returns the work that a network had by September 2025: `nMinimumChainWork` of Bitcoin Core 30.
fn known_work(network: Network) -> Option<Work> {
    let hex = match network {
        Network::Bitcoin => "0xdee8e2a309ad8a9820433c68",
        Network::Testnet => "0x16dd270dd94fac1d7632",
        Network::Testnet4 => "0x34a4690fe592dc49c7c",
        _ => return None,
    };
    Work::from_hex(hex).ok()
}

/// Returns warnings about what a chain of headers does not prove.
fn chain_warnings(network: Network, work: Work) -> Vec<String> {
    let mut warnings = Vec::new();
    // Peers that withhold the real chain can serve an old chain, or a chain that was cheap to make.
    if known_work(network).is_some_and(|known| work < known) {
        warnings.push(format!(
            "the chain has less work than {network} had in September 2025: the peers withhold \
             blocks, or have another chain"
        ));
    }
    if network == Network::Signet {
        warnings.push(String::from(
            "blocks of signet are authenticated by signatures, which headers do not contain: the \
             chain is only as reliable as the peers",
        ));
    }
    warnings
}

/// Returns the warnings of a run: doubts about the chain, and why the run gave up.
pub(super) fn warnings(ended: &Ended, network: Network) -> Vec<String> {
    let mut warnings = match ended.ending {
        // Nobody withheld anything.
        Ending::Unreachable(_) => Vec::new(),
        _ => chain_warnings(network, ended.status.progress.work),
    };
    if let Ending::GaveUp(why) | Ending::Unreachable(why) = &ended.ending {
        warnings.push(format!("gave up: {why}"));
    }
    warnings.extend(ended.false_filters.warning());
    warnings
}

/// Returns all addresses that the client dialled, with their states, in JSON.
fn peers_json(peers: &[PeerStatus]) -> Value {
    let peers = peers.iter().map(|peer| {
        let claims = peer.claims.as_ref();
        json!({
            "address": peer.address,
            "agent": claims.map(|claims| &claims.agent),
            "height": claims.map(|claims| claims.height),
            "services": claims.map(|claims| service_names(claims.services)),
            "state": peer.state,
            "banned_for": peer.banned_for,
        })
    });
    peers.collect()
}

/// Maximum number of false filters that the report lists: each one costs an attacker an address.
const MAX_LISTED: usize = 100;
/// Maximum size of the proofs that the report contains. Most proofs have less than 1 kB, but a peer
/// can choose a filter whose proof needs a whole block, of up to 4 MB.
const MAX_PROOF_BYTES: usize = 8_000_000;

/// The false filters that peers claimed in a run.
#[derive(Debug, Default)]
pub(super) struct FalseFilters {
    /// Name of each peer, and its filter. A proof that exceeds [`MAX_PROOF_BYTES`] is left out.
    listed: Vec<(String, Box<FalseFilter>)>,
    proof_bytes: usize,
    /// Number of false filters that are not listed.
    left_out: usize,
}

impl FalseFilters {
    /// Adds a finding if it reports a false filter.
    fn add(&mut self, finding: &Finding) {
        let Finding::FalseFilter { peer, filter } = finding else { return };
        if self.listed.len() == MAX_LISTED {
            self.left_out += 1;
            return;
        }
        let mut filter = filter.clone();
        let bytes = filter.proof.as_ref().map_or(0, |proof| proof.encode().len());
        if self.proof_bytes + bytes > MAX_PROOF_BYTES {
            filter.proof = None;
        } else {
            self.proof_bytes += bytes;
        }
        self.listed.push((peer.clone(), filter));
    }

    fn is_empty(&self) -> bool {
        self.listed.is_empty()
    }

    /// Returns a text for each listed filter.
    pub(super) fn texts(&self) -> impl Iterator<Item = String> {
        self.listed.iter().map(|(peer, filter)| format!("peer {peer}: {filter}"))
    }

    /// Returns the listed filters in JSON, each with its proof in hex.
    pub(super) fn json(&self) -> Vec<Value> {
        let of = |(peer, filter): &(String, Box<FalseFilter>)| {
            json!({
                "peer": peer,
                "height": filter.at.height,
                "block": filter.at.hash.to_string(),
                "filter_hash": filter.hash.to_string(),
                "proof": filter.proof.as_ref().map(|proof| hex::encode(proof.encode())),
            })
        };
        self.listed.iter().map(of).collect()
    }

    /// Returns a warning if filters were left out.
    fn warning(&self) -> Option<String> {
        let is_whole = self.left_out == 0;
        let left_out = || format!("{} not listed", count(self.left_out, "further false filter"));
        (!is_whole).then(left_out)
    }
}

#[cfg(test)]
mod tests {
    use chainsieve::bitcoin::BlockHash;
    use chainsieve::bitcoin::hashes::Hash as _;
    use chainsieve::btc::bip158::audit::{FilterEvidence, InvalidFilter};
    use chainsieve::btc::headers::HeaderChain;

    use super::*;

    #[test]
    fn a_chain_of_genesis_alone_is_warned_of() {
        let warnings = |network| chain_warnings(network, HeaderChain::new(network).work());
        for network in [Network::Bitcoin, Network::Testnet, Network::Testnet4, Network::Signet] {
            assert_eq!(warnings(network).len(), 1, "{network}");
        }
        assert_eq!(warnings(Network::Regtest), Vec::<String>::new());
    }

    #[test]
    fn blocks_are_counted_by_their_grade() {
        let run = |from, to, grade| Graded { from, to, grade };
        let runs =
            [run(1, 2, Grade::OnePeer), run(3, 3, Grade::Peers(2)), run(4, 4, Grade::OnePeer)];
        assert_eq!(
            grades_in_words(&runs),
            ["3 blocks: claimed by one peer", "1 block: 2 peers agree"]
        );
        let json = graded_json(&runs[1]);
        assert_eq!(json, json!({"from": 3, "to": 3, "grade": "peers", "peers": 2}));
    }

    /// Returns a finding whose proof has a filter of `len` bytes.
    fn finding(len: usize) -> Finding {
        let block_hash = BlockHash::all_zeros();
        let evidence = FilterEvidence::Malformed;
        let proof = InvalidFilter { block_hash, filter: vec![2; len], evidence };
        let zeros = "0".repeat(64);
        let finding = json!({
            "kind": "false_filter",
            "peer": "a",
            "at": {"height": 5, "hash": zeros},
            "filter_hash": zeros,
            "proof": hex::encode(proof.encode()),
        });
        serde_json::from_value(finding).unwrap()
    }

    #[test]
    fn filters_and_the_size_of_proofs_are_bounded() {
        let mut filters = FalseFilters::default();
        filters.add(&Finding::ClockBehind);
        assert!(filters.is_empty());
        // The second proof exceeds the limit, the third one does not.
        for len in [5_000_000, 5_000_000, 1] {
            filters.add(&finding(len));
        }
        let has_proof = |filter: &Value| filter["proof"].is_string();
        let listed = filters.json();
        assert_eq!(listed.iter().map(has_proof).collect::<Vec<_>>(), [true, false, true]);
        assert_eq!(filters.warning(), None);
        for _ in 0..98 {
            filters.add(&finding(1));
        }
        assert_eq!((filters.json().len(), filters.texts().count()), (MAX_LISTED, MAX_LISTED));
        assert_eq!(filters.warning().unwrap(), "1 further false filter not listed");
    }
}
