//! The context of one event: the inputs for the parts of a sync, and the resulting actions.

use std::ops::RangeInclusive;
use std::vec::Vec;

use core::time::Duration;

use super::{Action, Finding, Message, Reason, Violation};
use crate::btc::headers::{BlockAt, HeaderChain};
use crate::btc::peer::PeerId;

/// The chain and the time at one event, with the actions that were decided so far.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    pub(super) chain: &'a HeaderChain,
    pub(super) now: Duration,
    actions: Vec<Action>,
}

impl<'a> Turn<'a> {
    pub(super) fn new(chain: &'a HeaderChain, now: Duration) -> Self {
        Self { chain, now, actions: Vec::new() }
    }

    pub(super) fn act(&mut self, action: Action) {
        self.actions.push(action);
    }

    pub(super) fn send(&mut self, peer: PeerId, message: Message) {
        self.act(Action::Send(peer, message));
    }

    pub(super) fn report(&mut self, finding: Finding) {
        self.act(Action::Report(finding));
    }

    pub(super) fn reopen(&mut self, runs: Vec<RangeInclusive<u32>>) {
        let actions = runs.into_iter().map(|run| Action::Reopened(*run.start(), *run.end()));
        self.actions.extend(actions);
    }

    pub(super) fn block_at(&self, height: u32) -> Option<BlockAt> {
        self.chain.hash_at(height).map(|hash| BlockAt { height, hash })
    }

    pub(super) fn into_actions(self) -> Vec<Action> {
        self.actions
    }
}

/// The way in which a peer is disconnected because of its message.
#[derive(Debug)]
pub(super) enum Verdict {
    /// Disconnect the peer. Its claims about filters that it has sent stay valid: a protocol
    /// violation is not a lie about filters, and the connection of an honest peer may also end in
    /// this way.
    Disconnect(Reason),
    /// Disconnect the peer as a liar, and drop all claims that only this peer vouched for.
    Convict(Reason),
}

impl From<Violation> for Verdict {
    fn from(violation: Violation) -> Self {
        Self::Disconnect(Reason::Violation(violation))
    }
}
