//! The state machine.

use std::vec::Vec;

use core::time::Duration;

use super::{Action, Config, Event, Grade};
use crate::btc::headers::HeaderChain;

/// The client's side of BIP157 with several peers.
#[derive(Debug, Clone)]
pub struct FilterSync {
    config: Config,
}

impl FilterSync {
    /// A sync that has heard nothing.
    pub fn new(config: Config) -> Self {
        Self { config }
    }

    /// Takes an event at the time `now`, counted from any one moment, and returns what to do, in
    /// order. `chain` is the chain of headers after the event.
    pub fn handle(&mut self, chain: &HeaderChain, event: Event, now: Duration) -> Vec<Action> {
        let _ = (&self.config, chain, event, now);
        Vec::new()
    }

    /// The height up to which every block, from the first wanted on, is answered; `None` if the
    /// first is not.
    pub fn answered_to(&self) -> Option<u32> {
        None
    }

    /// What the answer about a height is worth; `None` if there is none yet.
    pub fn grade(&self, height: u32) -> Option<Grade> {
        let _ = height;
        None
    }
}
