//! The thread that asks an anchor source for newer blocks while a follower runs.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use chainsieve::alloy_primitives::B256;

use super::shared::Shared;
use crate::anchor::AnchorSource;
use crate::node::Node;
use crate::note::Note;
use crate::stop::Stop;

/// Shortest interval between two calls, so that a source which returns 0 keeps no core busy.
const SHORTEST: Duration = Duration::from_millis(100);

/// Asks an anchor source again and again, until the follower ends.
pub(super) struct NewerAnchors {
    pub(super) source: Arc<dyn AnchorSource>,
    /// The blocks that the source returned last.
    pub(super) known: Vec<B256>,
    /// Node to which notes are attributed.
    pub(super) node: Node,
    pub(super) shared: Arc<Shared>,
    /// Set when the follower ends.
    pub(super) stop: Stop,
}

impl NewerAnchors {
    /// Starts the thread, unless the source never returns a newer block.
    ///
    /// The thread is not joined: a call of the source in progress may take long, and must delay
    /// neither an update nor a shutdown.
    pub(super) fn spawn(self) -> io::Result<()> {
        if self.source.refresh().is_none() {
            return Ok(());
        }
        let thread = thread::Builder::new().name("chainsieve-anchor".into());
        thread.spawn(move || self.run()).map(drop)
    }

    fn run(mut self) {
        while let Some(interval) = self.source.refresh() {
            if self.stop.wait_timeout(interval.max(SHORTEST)) {
                return;
            }
            let blocks = catch_unwind(AssertUnwindSafe(|| self.source.blocks()));
            let blocks = blocks.unwrap_or_else(|_| Err("the anchor source has panicked".into()));
            if self.stop.is_set() {
                return;
            }
            match blocks {
                Ok(blocks) => {
                    let is_newer = |block: &B256| !self.known.contains(block);
                    let newer: Vec<_> = blocks.iter().copied().filter(is_newer).collect();
                    self.known = blocks;
                    if !newer.is_empty() {
                        self.shared.set_anchors(newer);
                        self.stop.ring();
                    }
                }
                Err(error) => self.node.note(&Note::NoNewerAnchor(error)),
            }
        }
    }
}
