//! A follower of logs, past and live, that runs in a thread of its own.

mod driver;
pub(crate) mod index;
mod updates;

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use chainsieve::eth::follow::{Config, Cursor, Follower, Indexed};
use chainsieve::eth::log_query::{BlockTag, LogQuery};

use crate::durable_file::{DurableFile, FileError};
use crate::provider::Provider;
use crate::stop::{Stop, lock};
use driver::{Driver, NewerAnchors};
use updates::Shared;

pub use index::CandidateIndex;
#[cfg(feature = "tokio")]
pub use updates::LogUpdateStream;
pub use updates::{FollowError, FollowStatus, LogUpdate, LogUpdates};

/// Maximum size of a cursor file. Every cursor is smaller than this maximum: it contains the logs
/// of some hundred full blocks at most.
const MAX_CURSOR: u64 = 4 << 30;

/// Configures and starts a follower. The builder is `Send`, but not `Sync`, because its
/// [`CandidateIndex`] only has to be `Send`.
#[must_use]
pub struct FollowBuilder {
    provider: Provider,
    cursor: Option<Cursor>,
    file: Option<PathBuf>,
    index: Option<Box<dyn CandidateIndex>>,
    adjust: Config,
}

debug_by!(FollowBuilder: provider, file);

impl Provider {
    /// Returns a builder for a follower of a query's logs, past and live.
    ///
    /// The follower starts at the query's first block, or at the newest block if the query names
    /// none. The follower does not end by itself unless the query's range ends at a number.
    ///
    /// The logs are read from receipts that match the receipts root of their header; `eth_getLogs`
    /// is not called. Their transaction hashes are proven by the transactions of the block, as those
    /// of [`logs`](Self::logs) are. If a block leaves the chain, its logs are delivered again as removed.
    ///
    /// ```no_run
    /// use chainsieve_provider::chainsieve::eth::follow::News;
    /// use chainsieve_provider::{LogQuery, Provider};
    /// let provider = Provider::trusting_head("http://127.0.0.1:8545")?;
    /// let query = LogQuery::new().event("Transfer(address,address,uint256)")?;
    /// let following = provider.follow(&query).cursor_file("transfers.cursor").start()?;
    /// for update in following.updates() {
    ///     if let News::Blocks(blocks) = &update.news {
    ///         blocks.logs.iter().for_each(|log| println!("{}", log.to_json()));
    ///     }
    ///     following.acknowledge(&update);
    /// }
    /// following.shutdown()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn follow(&self, query: &LogQuery) -> FollowBuilder {
        // Placeholders: `start` sets the chain's id and profile.
        let adjust = Config::new(0, crate::nodes::ask::unknown_chain(0), query.clone());
        FollowBuilder { provider: self.clone(), cursor: None, file: None, index: None, adjust }
    }
}

impl FollowBuilder {
    setters! { self:
        /// Sets the first block to follow, which replaces the first block of the query.
        start_at(block: impl Into<BlockTag>) {
            self.adjust.query = self.adjust.query.from_block(block);
        }

        /// Adds a query that is answered in the same pass, over the same blocks.
        /// [`Config::queries_of`] of [`Following::config`] returns the queries that a log matches.
        also(query: &LogQuery) { self.adjust.more_queries.push(query.clone()); }

        /// Resumes at this cursor. If a [`cursor_file`](Self::cursor_file) is set and exists, that file
        /// is used instead.
        cursor(cursor: Cursor) { self.cursor = Some(cursor); }

        /// Stores the cursor in this file, and resumes at it. Only one process at a time can use the
        /// file.
        ///
        /// The file is written before each update is delivered and after it is acknowledged. So after a
        /// kill at any moment, each log is delivered at least once, and delivered logs of blocks that
        /// left the chain are reported as removed.
        ///
        /// After a kill, a log may be delivered twice, or reported as removed although it was not
        /// delivered. If this matters, store [`LogUpdate::cursor`] together with the logs instead.
        cursor_file(path: impl AsRef<Path>) { self.file = Some(path.as_ref().to_owned()); }

        /// Sets an index that finds the candidates among past blocks, without headers from nodes: an
        /// [`Index`](chainsieve::eth::index::Index) with block hashes, for example.
        ///
        /// The newest [`keep`](Self::keep) blocks of the index are not used: a reorganisation may
        /// remove them, and the follower must then know their headers. An index proves nothing: it
        /// is as reliable as its builder.
        index(index: impl CandidateIndex + 'static) { self.index = Some(Box::new(index)); }

        /// Sets the number of confirmations: a block is delivered when this many blocks follow it
        /// (default: 0).
        confirmations(blocks: u64) { self.adjust.confirmations = blocks; }

        /// Sets the number of delivered blocks that are remembered, so that they can be reported as
        /// removed if they leave the chain (default: 256).
        keep(blocks: usize) { self.adjust.keep = blocks; }

        /// Ends the follower at the head, instead of waiting for new blocks.
        once() { self.adjust.once = true; }

        /// Sets the interval at which the nodes are asked for the head (default: 2 s).
        poll(interval: Duration) { self.adjust.poll = interval; }

        /// Sets the number of consecutive wrong or missing answers after which the follower ends with
        /// an error (default: 10). Failed connections are counted only with [`once`](Self::once).
        tries(tries: u32) { self.adjust.tries = tries; }
    }

    /// Starts the follower. Asks the nodes for the chain's id, unless it is known.
    ///
    /// The [anchor](crate::AnchorSource) is asked here, and again while the follower runs if it [may
    /// return newer blocks](crate::AnchorSource::refresh).
    /// [`News::Anchored`](chainsieve::eth::follow::News::Anchored) reports the last trusted block on
    /// the nodes' chain. Only the nodes vouch for later blocks.
    ///
    /// The nodes must have the blocks that the anchor returns here. A newer block that the nodes do
    /// not have yet is requested again until they have it.
    ///
    /// # Errors
    /// Returns a [`FollowError`] if the nodes, the anchor, the cursor file or the index fail, or if
    /// the query or the cursor is invalid. After an error, no thread runs.
    pub fn start(self) -> Result<Following, FollowError> {
        let Self { cursor, file, mut index, adjust, .. } = self;
        let stop = self.provider.stop().child();
        let provider = self.provider.with_stop(stop.clone());
        let file = file.as_deref().map(DurableFile::open).transpose()?;
        let cursor = match &file {
            Some(file) => stored_cursor(file)?.or(cursor),
            None => cursor,
        };
        let indexed = match &mut index {
            Some(index) => indexed(&mut **index, adjust.keep).map_err(FollowError::Index)?,
            None => None,
        };
        let config = Config {
            chain_id: provider.chain_id()?,
            profile: provider.profile()?,
            semantics: provider.0.settings.semantics,
            anchors: provider.0.anchors()?,
            index: indexed,
            stored: file.is_some(),
            transaction_hashes: provider.0.settings.transaction_hashes,
            ..adjust
        };
        let follower = Follower::new(config.clone(), cursor)?;
        let shared = Arc::new(Shared::default());
        let anchor = provider.0.settings.anchor.clone();
        let anchors = anchor.map(|source| NewerAnchors {
            source,
            known: config.anchors.clone(),
            node: provider.nodes()[0].clone(),
            shared: Arc::clone(&shared),
            // Set when the follower's thread ends, also if no one stopped the follower.
            stop: stop.child(),
        });
        let ended = anchors.as_ref().map(|anchors| anchors.stop.clone());
        let all = std::iter::once(&config.query).chain(&config.more_queries);
        let index = index.map(|index| (index, all.map(LogQuery::compile).collect()));
        let mut driver = Driver::new(provider, follower, file, index, Arc::clone(&shared));
        let panics = Arc::clone(&shared);
        let run = move || {
            let thread = anchors.map_or(Ok(()), NewerAnchors::spawn);
            if let Err(error) = thread {
                return panics.end(Err(FollowError::Thread(error.to_string())));
            }
            // After a panic, readers of updates must be woken, or they would wait for ever.
            let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| driver.run()));
            if let Some(ended) = ended {
                ended.set();
            }
            if let Err(panic) = ran {
                panics.end(Err(FollowError::Panicked));
                std::panic::resume_unwind(panic);
            }
        };
        let thread = thread::Builder::new().name("chainsieve-follow".into()).spawn(run);
        let thread = thread.map_err(|error| FollowError::Thread(error.to_string()))?;
        Ok(Following { shared, stop, config, thread: Some(thread) })
    }
}

/// Reads the cursor of an earlier run; `None` if the file does not exist.
fn stored_cursor(file: &DurableFile) -> Result<Option<Cursor>, FileError> {
    let Some(text) = file.read(MAX_CURSOR)? else { return Ok(None) };
    let cursor = Cursor::from_json(&text);
    cursor.map(Some).map_err(|error| FileError::invalid(&file.path, &error))
}

/// Returns the blocks of an index that are used: all but the `newest` blocks.
fn indexed(index: &mut dyn CandidateIndex, newest: usize) -> Result<Option<Indexed>, String> {
    let Some((first, last)) = index.blocks()?.map(RangeInclusive::into_inner) else {
        return Ok(None);
    };
    match last.checked_sub(newest as u64).filter(|last| *last >= first) {
        Some(last) => Ok(Some(Indexed { first, last: index.block(last)? })),
        None => Ok(None),
    }
}

/// Handle of a running follower. Dropping the handle stops the follower as
/// [`shutdown`](Self::shutdown) does.
#[derive(Debug)]
#[must_use = "dropping the handle stops the follower"]
pub struct Following {
    shared: Arc<Shared>,
    stop: Stop,
    config: Config,
    thread: Option<JoinHandle<()>>,
}

impl Following {
    /// Returns a reader of the updates, in order.
    ///
    /// The next update is delivered only after the preceding update was
    /// [acknowledged](Self::acknowledge).
    pub fn updates(&self) -> LogUpdates {
        LogUpdates::new(Arc::clone(&self.shared))
    }

    /// Marks an update as processed. An update that was not acknowledged may be delivered again
    /// after a restart.
    pub fn acknowledge(&self, update: &LogUpdate) {
        self.shared.acknowledge(update.id);
        self.stop.ring();
    }

    /// Returns the follower's configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the follower's progress.
    pub fn status(&self) -> FollowStatus {
        lock(&self.shared.state).status
    }

    /// Returns `false` once the follower has ended.
    pub fn is_running(&self) -> bool {
        lock(&self.shared.state).ended.is_none()
    }

    /// Stops the follower, and waits until its cursor is stored. Returns the follower's progress.
    ///
    /// # Errors
    /// Returns the reason if the follower had already ended by itself with an error.
    pub fn shutdown(mut self) -> Result<FollowStatus, FollowError> {
        self.end()?;
        Ok(lock(&self.shared.state).status)
    }

    fn end(&mut self) -> Result<(), FollowError> {
        self.stop.set();
        // The follower's thread wakes tasks, and a woken task may own this handle. If the
        // follower's thread joined itself, it would wait for ever.
        let is_own = |thread: &JoinHandle<()>| thread.thread().id() == thread::current().id();
        let thread = self.thread.take().filter(|thread| !is_own(thread));
        if thread.is_some_and(|thread| thread.join().is_err()) {
            return Err(FollowError::Panicked);
        }
        lock(&self.shared.state).ended.clone().unwrap_or(Ok(()))
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        // `drop` cannot return an error. Callers that need the result use `shutdown`.
        drop(self.end());
    }
}
