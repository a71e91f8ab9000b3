//! Logs past and live: a follower in a thread of its own.

mod cursor_file;
mod driver;
mod shared;
mod updates;

use std::fmt;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use chainsieve::eth::follow::{
    Config, Cursor, Fault, Follower, Indexed, StartError, Update, UpdateId,
};
use chainsieve::eth::header::BlockRef;
use chainsieve::eth::log_query::{BlockTag, LogQuery};
use thiserror::Error;

pub use self::cursor_file::{CursorFileCause, CursorFileError};
#[cfg(feature = "tokio")]
pub use self::updates::LogUpdateStream;
pub use self::updates::LogUpdates;
use crate::error::FetchError;
use crate::provider::Provider;
use crate::stop::Stop;
use cursor_file::CursorFile;
use driver::Driver;
use shared::Shared;

/// What a follower has to tell.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct LogUpdate {
    /// Its number in this run.
    pub id: UpdateId,
    /// The logs, and what left the chain.
    pub update: Update,
    /// Resumes after this update. A caller who stores it together with what it makes of the update
    /// needs no [file](FollowBuilder::cursor_file). `None` where there is a file.
    pub cursor: Option<Cursor>,
}

/// Why a follower ended.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FollowError {
    /// A node does not tell what is needed at the start, or an anchor is not known.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// The query or the cursor cannot be followed.
    #[error(transparent)]
    Start(#[from] StartError),
    /// What the nodes answered.
    #[error("{node}: {fault}")]
    Fault {
        /// The node that answered last.
        node: String,
        /// Why the follower cannot go on.
        fault: Box<Fault>,
    },
    /// The cursor is not read or written.
    #[error("cursor, {0}")]
    Cursor(#[from] CursorFileError),
    /// The index is not read.
    #[error("{0}")]
    Index(String),
    /// The thread is not started.
    #[error("thread: {0}")]
    Thread(String),
    /// The thread has panicked.
    #[error("the follower has panicked")]
    Panicked,
}

/// An index of the chain that says which blocks of the past are candidates.
pub trait CandidateIndex: Send {
    /// The blocks that it has, less those that may still leave the chain.
    ///
    /// # Errors
    /// Why it cannot be read.
    fn blocks(&mut self) -> Result<Option<RangeInclusive<u64>>, String>;

    /// The block with this number.
    ///
    /// # Errors
    /// Why it cannot be read.
    fn block(&mut self, number: u64) -> Result<BlockRef, String>;

    /// The first candidates of a range, in order, and the block up to which there are no others.
    ///
    /// # Errors
    /// Why it cannot be read.
    fn candidates(
        &mut self,
        numbers: RangeInclusive<u64>,
    ) -> Result<(Vec<BlockRef>, BlockRef), String>;
}

/// Sets a follower up.
#[must_use]
pub struct FollowBuilder {
    provider: Provider,
    cursor: Option<Cursor>,
    file: Option<PathBuf>,
    index: Option<Box<dyn CandidateIndex>>,
    adjust: Config,
}

impl fmt::Debug for FollowBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FollowBuilder")
            .field("provider", &self.provider)
            .field("query", &self.adjust.query)
            .field("file", &self.file)
            .finish_non_exhaustive()
    }
}

impl Provider {
    /// Follows the logs of a query from its first block on, and then live: from the newest block
    /// unless the query says otherwise, and without end unless it ends at a number.
    ///
    /// The logs are read out of receipts that have the root of their header; `eth_getLogs` is not
    /// asked. Logs of blocks that leave the chain come again as removed.
    ///
    /// ```no_run
    /// use chainsieve_provider::chainsieve::eth::follow::Update;
    /// use chainsieve_provider::{LogQuery, Provider};
    /// let provider = Provider::new("http://127.0.0.1:8545")?;
    /// let query = LogQuery::new().event("Transfer(address,address,uint256)")?;
    /// let following = provider.follow(&query).cursor_file("transfers.cursor").start()?;
    /// for update in following.updates() {
    ///     if let Update::Blocks(blocks) = &update.update {
    ///         blocks.logs.iter().for_each(|log| println!("{}", log.to_json()));
    ///     }
    ///     following.acknowledge(&update);
    /// }
    /// following.shutdown()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn follow(&self, query: &LogQuery) -> FollowBuilder {
        // Which chain it is, is asked at the start.
        let adjust = Config::new(0, crate::nodes::unknown_chain(0), query.clone());
        FollowBuilder { provider: self.clone(), cursor: None, file: None, index: None, adjust }
    }
}

impl FollowBuilder {
    /// Begins at this block, whatever the query says.
    pub fn from(mut self, block: impl Into<BlockTag>) -> Self {
        self.adjust.query = self.adjust.query.from_block(block);
        self
    }

    /// Answers one more query in the same pass, over the same blocks.
    /// [`Config::queries_of`] of [`Following::config`] says which queries want a log.
    pub fn and(mut self, query: &LogQuery) -> Self {
        self.adjust.more_queries.push(query.clone());
        self
    }

    /// Goes on where this cursor was taken. An existing [`cursor_file`](Self::cursor_file) goes
    /// before it.
    pub fn cursor(mut self, cursor: Cursor) -> Self {
        self.cursor = Some(cursor);
        self
    }

    /// Keeps the cursor in this file, and goes on from there. One process at a time uses it.
    ///
    /// It is written before an update is given out and after it is acknowledged: wherever a kill
    /// comes, each log is given out at least once, and what was given out of blocks that left the
    /// chain is taken back.
    ///
    /// After a kill a log may come once more, or come as removed though it was not given out
    /// before. Where that matters, store [`LogUpdate::cursor`] together with the logs instead.
    pub fn cursor_file(mut self, path: impl AsRef<Path>) -> Self {
        self.file = Some(path.as_ref().to_owned());
        self
    }

    /// Looks the past up in an index instead of in headers. It must know the candidates of every
    /// query that is followed.
    pub fn index(mut self, index: impl CandidateIndex + 'static) -> Self {
        self.index = Some(Box::new(index));
        self
    }

    /// Gives a block out once this many blocks come after it; 0 unless this is called.
    pub fn confirmations(mut self, blocks: u64) -> Self {
        self.adjust.confirmations = blocks;
        self
    }

    /// How many blocks that were given out may leave the chain again; 256 unless this is called.
    pub fn keep(mut self, blocks: usize) -> Self {
        self.adjust.keep = blocks;
        self
    }

    /// Ends at the head instead of waiting for new blocks.
    pub fn once(mut self) -> Self {
        self.adjust.once = true;
        self
    }

    /// How often the head is asked for; 2 s unless this is called.
    pub fn poll(mut self, interval: Duration) -> Self {
        self.adjust.poll = interval;
        self
    }

    /// The number of wrong or missing answers in a row after which the follower gives up; 10 unless
    /// this is called. Failed connections count only with [`once`](Self::once).
    pub fn tries(mut self, tries: u32) -> Self {
        self.adjust.tries = tries;
        self
    }

    /// Starts the follower. The nodes are asked for the chain's id, unless that is known.
    ///
    /// The [anchor](crate::Anchor) is asked once, here. Later blocks are the nodes' word.
    ///
    /// # Errors
    /// [`FollowError`]. Nothing runs then.
    pub fn start(self) -> Result<Following, FollowError> {
        let Self { cursor, file, mut index, adjust, .. } = self;
        let stop = self.provider.stop().child();
        let provider = self.provider.with_stop(stop.clone());
        let file = file.as_deref().map(CursorFile::open).transpose()?;
        let cursor = match &file {
            Some(file) => file.read()?.or(cursor),
            None => cursor,
        };
        let indexed = match &mut index {
            Some(index) => indexed(&mut **index).map_err(FollowError::Index)?,
            None => None,
        };
        let config = Config {
            chain_id: provider.chain_id()?,
            profile: provider.profile()?,
            semantics: provider.0.settings.semantics,
            anchors: provider.0.anchors()?,
            index: indexed,
            stored: file.is_some(),
            ..adjust
        };
        let follower = Follower::new(config.clone(), cursor)?;
        let shared = Arc::new(Shared::default());
        let mut driver = Driver::new(provider, follower, file, index, Arc::clone(&shared));
        let panics = Arc::clone(&shared);
        let run = move || {
            // A reader that waits must not wait for a thread that is gone.
            let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| driver.run()));
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

fn indexed(index: &mut dyn CandidateIndex) -> Result<Option<Indexed>, String> {
    let Some(blocks) = index.blocks()? else { return Ok(None) };
    Ok(Some(Indexed { first: *blocks.start(), last: index.block(*blocks.end())? }))
}

/// A running follower. Dropping it stops it as [`shutdown`](Self::shutdown) does.
#[derive(Debug)]
pub struct Following {
    shared: Arc<Shared>,
    stop: Stop,
    config: Config,
    thread: Option<JoinHandle<()>>,
}

/// How far a follower is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct FollowStatus {
    /// The provider's head.
    pub head: Option<BlockRef>,
    /// The number of the next header to link.
    pub next: Option<u64>,
    /// The last block that was given out and acknowledged.
    pub last: Option<BlockRef>,
    /// The number of blocks in this run whose receipts were verified.
    pub verified: u64,
}

impl Following {
    /// The updates, in order: one is out at a time, and the next comes once it is
    /// [acknowledged](Self::acknowledge).
    pub fn updates(&self) -> LogUpdates {
        LogUpdates::new(Arc::clone(&self.shared))
    }

    /// Says that an update was dealt with. Until then it may come again after a restart.
    pub fn acknowledge(&self, update: &LogUpdate) {
        self.shared.acknowledge(update.id);
        self.stop.ring();
    }

    /// What is followed, and how.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// How far it is.
    pub fn status(&self) -> FollowStatus {
        self.shared.status()
    }

    /// Returns `false` once the follower has ended.
    pub fn is_running(&self) -> bool {
        self.shared.ended().is_none()
    }

    /// Stops the follower, and waits until everything that it knows is stored. Returns how far it
    /// came.
    ///
    /// # Errors
    /// Why it had ended before by itself.
    pub fn shutdown(mut self) -> Result<FollowStatus, FollowError> {
        self.end()?;
        Ok(self.shared.status())
    }

    fn end(&mut self) -> Result<(), FollowError> {
        self.stop.set();
        // A task that is woken may be the last owner, and would wait for itself.
        let is_own = |thread: &JoinHandle<()>| thread.thread().id() == thread::current().id();
        let thread = self.thread.take().filter(|thread| !is_own(thread));
        if thread.is_some_and(|thread| thread.join().is_err()) {
            return Err(FollowError::Panicked);
        }
        self.shared.ended().unwrap_or(Ok(()))
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        // Nobody is left to be told.
        drop(self.end());
    }
}
