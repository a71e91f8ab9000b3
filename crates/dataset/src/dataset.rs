//! A data set, and how it is verified.

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use chainsieve::eth::chain_profile::ChainProfile;
use chainsieve::eth::header::{BlockRef, HeaderBuf};

use crate::file::File;
use crate::place::Table;
use crate::verdicts::Verdicts;

/// The order of the rows of all tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Order {
    /// Any order, as far as the buffer reaches. If it is full, and all rows up to then are in the order of blocks
    /// or of files, verification goes on as if that had been stated.
    #[default]
    Detect,
    /// Any order: no verdict before the last row was read. All rows must fit into the buffer.
    Any,
    /// The rows of each table ascend by block, over all its files: verdicts need few rows in memory.
    Blocks,
    /// Each file of a table has later blocks than the files before, with rows in any order: the rows of a file
    /// must fit into the buffer.
    Files,
}

/// A source of trusted headers.
pub(crate) type Headers = Box<dyn FnMut(u64) -> Option<HeaderBuf> + Send>;

/// A data set that is to be verified: tables, and what is known of the chain.
///
/// Each table has one file or several: call the method again for each. Columns are found by their names in the
/// schemas of public sources, and their encoding by values. See the [crate] for an example.
#[must_use]
pub struct Dataset {
    pub(crate) files: [Vec<File>; 4],
    pub(crate) profile: Option<ChainProfile>,
    pub(crate) headers: Option<Headers>,
    pub(crate) anchors: Vec<BlockRef>,
    pub(crate) range: Option<RangeInclusive<u64>>,
    pub(crate) order: Order,
    pub(crate) buffer: usize,
    pub(crate) is_filtered: bool,
    pub(crate) amsterdam_since: Option<u64>,
    pub(crate) progress: Progress,
}

impl fmt::Debug for Dataset {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dataset").field("order", &self.order).finish_non_exhaustive()
    }
}

impl Default for Dataset {
    fn default() -> Self {
        Self {
            files: [const { Vec::new() }; 4],
            profile: None,
            headers: None,
            anchors: Vec::new(),
            range: None,
            order: Order::default(),
            buffer: Self::BUFFER,
            is_filtered: false,
            amsterdam_since: None,
            progress: Progress::default(),
        }
    }
}

impl Dataset {
    /// The bytes of rows that may wait for the rest of their blocks, unless [`buffer`](Self::buffer) says
    /// otherwise: 512 MiB, which is about two million logs.
    pub const BUFFER: usize = 512 << 20;

    /// A data set without tables.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a file of the table of blocks.
    pub fn blocks(self, file: impl Into<File>) -> Self {
        self.file(Table::Blocks, file.into())
    }

    /// Adds a file of the table of transactions.
    pub fn transactions(self, file: impl Into<File>) -> Self {
        self.file(Table::Transactions, file.into())
    }

    /// Adds a file of the table of receipts, for sources that do not have their columns in the table of
    /// transactions. They are joined by the index of the transaction, or by its hash.
    pub fn receipts(self, file: impl Into<File>) -> Self {
        self.file(Table::Receipts, file.into())
    }

    /// Adds a file of the table of logs.
    pub fn logs(self, file: impl Into<File>) -> Self {
        self.file(Table::Logs, file.into())
    }

    fn file(mut self, table: Table, file: File) -> Self {
        self.files[table as usize].push(file);
        self
    }

    /// States what the headers of the chain commit to. Without it, most checks are undecided.
    pub fn profile(mut self, profile: ChainProfile) -> Self {
        self.profile = Some(profile);
        self
    }

    /// Gives a source of headers that the caller trusts, by their number, in place of the table of blocks:
    /// [`rlp_headers`](crate::rlp_headers), or a function. It is asked for each block once, in ascending order.
    /// The rows of a block whose header it does not have are compared with the table of blocks alone.
    pub fn headers(
        mut self,
        source: impl FnMut(u64) -> Option<HeaderBuf> + Send + 'static,
    ) -> Self {
        self.headers = Some(Box::new(source));
        self
    }

    /// Gives a block whose hash the caller trusts. Headers that are linked to it by parent hashes, downwards, are
    /// then [anchored](chainsieve::eth::columns::HeaderBasis::Anchored).
    pub fn anchor(mut self, trusted: BlockRef) -> Self {
        self.anchors.push(trusted);
        self
    }

    /// States which blocks the data set should have. Each of them gets a verdict, and rows of other blocks are
    /// only counted. Without it, each block that has a row gets a verdict, and numbers between them without any
    /// row are gaps in the [`Summary`](crate::Summary).
    pub fn range(mut self, blocks: RangeInclusive<u64>) -> Self {
        self.range = Some(blocks);
        self
    }

    /// States the order of the rows. A row that contradicts it ends the verification with an error.
    pub fn order(mut self, order: Order) -> Self {
        self.order = order;
        self
    }

    /// Sets the bytes of rows that may wait for the rest of their blocks, in place of [`Self::BUFFER`].
    pub fn buffer(mut self, bytes: usize) -> Self {
        self.buffer = bytes;
        self
    }

    /// States that rows are left out on purpose, for example all logs of other contracts. Then only the existence
    /// of the rows can be refuted.
    pub fn filtered(mut self) -> Self {
        self.is_filtered = true;
        self
    }

    /// States which block is the first one of Amsterdam; `u64::MAX` if the chain has none yet. This fork adds
    /// fields to headers, and changes the rules of gas. Without this statement, a header with a `requests_hash`
    /// that differs from its hash is undecided, and so are sums of gas that differ.
    pub fn amsterdam_since(mut self, first: u64) -> Self {
        self.amsterdam_since = Some(first);
        self
    }

    /// Returns a counter, which another thread can read while the data set is verified.
    pub fn progress(&self) -> Progress {
        self.progress.clone()
    }

    /// Begins to verify. Nothing is read before the first verdict is asked for.
    pub fn verify(self) -> Verdicts {
        Verdicts::new(self)
    }
}

/// Rows and blocks so far, for a progress bar. Clones count together.
#[derive(Debug, Clone, Default)]
pub struct Progress {
    rows: Arc<AtomicU64>,
    blocks: Arc<AtomicU64>,
}

impl Progress {
    /// Rows that were read, of all tables.
    pub fn rows(&self) -> u64 {
        self.rows.load(Ordering::Relaxed)
    }

    /// Blocks that were verified.
    pub fn blocks(&self) -> u64 {
        self.blocks.load(Ordering::Relaxed)
    }

    pub(crate) fn add(&self, rows: u64, blocks: u64) {
        self.rows.fetch_add(rows, Ordering::Relaxed);
        self.blocks.fetch_add(blocks, Ordering::Relaxed);
    }
}
