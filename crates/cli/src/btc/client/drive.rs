//! Reads the updates of a client until the run must end.

use std::time::{Duration, Instant};

use chainsieve::btc::peer::service_names;
use chainsieve_client::{Client, Graded, News, Status, Stopped, Update, UpdateId};
use chainsieve_report::Exit;

use super::summary::FalseFilters;
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
