//! Reads a client's updates until there is a reason to end.

use std::time::{Duration, Instant};

use chainsieve::btc::peer::service_names;
use chainsieve_client::{Client, Graded, Status, Stopped, Update, UpdateId};

use crate::args::client::PeerArgs;
use crate::exit::Exit;
use crate::{progress, stop};

/// How long nothing may come until it is asked whether there is a reason to end.
const TICK: Duration = Duration::from_millis(200);
/// Most updates that are read before that.
const BATCH: usize = 1_000;

/// Who reads updates.
pub(super) trait Reader {
    /// Takes an update. Returns those that are dealt with now, to be acknowledged.
    fn take(
        &mut self,
        update: Update,
        status: &Status,
        client: &Client,
    ) -> anyhow::Result<Vec<Update>>;

    /// Nobody reads what it prints.
    fn is_closed(&self) -> bool;
}

/// How a run ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Ending {
    CaughtUp,
    Interrupted,
    GaveUp(String),
    /// No peer was reached.
    Unreachable(String),
    /// Nobody reads what is printed.
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

    pub(super) fn exit(&self) -> Exit {
        match self {
            Self::Unreachable(_) => Exit::Failed,
            Self::GaveUp(_) => Exit::Undecided,
            Self::CaughtUp | Self::Interrupted | Self::Closed => Exit::Yes,
        }
    }
}

/// How a run has ended, and how the client was doing then.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) ending: Ending,
    pub(super) status: Status,
    pub(super) grades: Vec<Graded>,
    /// The time of the tip.
    pub(super) time: Option<u32>,
}

/// Why the run must end, if it must. `give_up`: the longest time without progress, after which the
/// run ends, as it does once it has caught up; without it the run follows new blocks for ever.
/// `waited`: how long there was no progress.
fn reason(give_up: Option<Duration>, status: &Status, waited: Duration) -> Option<Ending> {
    // Nobody will ever come again.
    if status.all_banned {
        return Some(Ending::GaveUp("every peer is banned".into()));
    }
    let give_up = give_up?;
    if status.is_caught_up && status.all_tried {
        return Some(Ending::CaughtUp);
    }
    if status.has_started && !status.is_served && status.all_up {
        let needed = service_names(status.services).join("|");
        return Some(Ending::GaveUp(format!("none of the peers named offers {needed}")));
    }
    if waited < give_up {
        return None;
    }
    let waited = format!("{} s", waited.as_secs());
    if status.peers.iter().all(|peer| peer.claims.is_none()) {
        return Some(Ending::Unreachable(format!("no peer is connected for {waited}")));
    }
    let why = if status.is_served {
        "no progress"
    } else {
        "no peer that is connected offers what is needed"
    };
    Some(Ending::GaveUp(format!("{why} for {waited}")))
}

/// Reads until there is a reason to end, and has the client keep what it knows. With `once` the run
/// ends when it has caught up.
pub(super) fn drive(
    client: Client,
    args: &PeerArgs,
    once: bool,
    reader: &mut impl Reader,
) -> anyhow::Result<Ended> {
    let give_up = once.then(|| Duration::from_secs(args.give_up.into()));
    let ended = read(&client, give_up, reader).and_then(|ending| {
        let status = client.status()?;
        let time = client.header_at(status.progress.tip.height)?.map(|header| header.time);
        Ok(Ended { ending, status, grades: client.grades()?, time })
    });
    let shutdown = client.shutdown();
    match (ended, shutdown) {
        // Why it has stopped says more than that it has.
        (Err(error), Err(why)) if error.is::<Stopped>() => Err(why.into()),
        (ended, shutdown) => ended.and_then(|ended| Ok(shutdown.map(|()| ended)?)),
    }
}

fn read(
    client: &Client,
    give_up: Option<Duration>,
    reader: &mut impl Reader,
) -> anyhow::Result<Ending> {
    let stop = stop::on_signals()?;
    let mut bar = progress::Status::new();
    let mut updates = client.updates();
    let (mut steps, mut since) = (0, Instant::now());
    let mut last = UpdateId(0);
    // An ending for which updates are still read, and up to which.
    let mut decided: Option<(Ending, UpdateId)> = None;
    loop {
        let first = updates.next_within(TICK);
        let more = std::iter::from_fn(|| updates.next_within(Duration::ZERO));
        let batch: Vec<_> = first.into_iter().chain(more.take(BATCH)).collect();
        let status = client.status()?;
        let printing = Instant::now();
        for update in batch {
            last = update.id;
            let done = reader.take(update, &status, client)?;
            if reader.is_closed() {
                return Ok(Ending::Closed);
            }
            for update in &done {
                client.acknowledge(update);
            }
        }
        // The client waits for a slow reader: that is no lack of progress.
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
            None => match reason(give_up, &status, since.elapsed()) {
                // What comes until everything is read may be more to wait for.
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
