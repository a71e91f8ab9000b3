//! The records of a reader of logs: one line for each event, in order.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::path::Path;

use serde::{Deserialize, Serialize};

/// The party that stores the cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Keeper {
    /// The crate stores the cursor in a file of its own.
    Crate,
    /// The reader stores the cursor after the records of each update. Records after the last cursor
    /// belong to an unfinished transaction.
    Reader,
}

/// The first word of a line.
pub(crate) const STARTED: &str = "started";
pub(crate) const FROM: &str = "from";
pub(crate) const LOG: &str = "log";
pub(crate) const BLOCKS: &str = "blocks";
pub(crate) const REMOVED: &str = "removed";
pub(crate) const CURSOR: &str = "cursor";

/// Placeholder for the last block if there is none.
pub(crate) const NONE: &str = "none";

/// Returns the valid lines, each as its first word and the rest.
pub(crate) fn lines(text: &str, keeper: Keeper) -> impl DoubleEndedIterator<Item = (&str, &str)> {
    counted(text, keeper).lines().map(|line| line.split_once(' ').expect("a word and the rest"))
}

/// Returns the valid part of the text: complete lines of complete transactions.
fn counted(text: &str, keeper: Keeper) -> &str {
    let whole = text.rfind('\n').map_or(0, |end| end + 1);
    let whole = &text[..whole];
    match keeper {
        Keeper::Crate => whole,
        Keeper::Reader => {
            let is_cursor = |line: &&str| line.starts_with(CURSOR);
            let after = whole.split_inclusive('\n').rev().take_while(|line| !is_cursor(line));
            &whole[..whole.len() - after.map(str::len).sum::<usize>()]
        }
    }
}

/// The file of records, opened to append lines.
pub(crate) struct Records(File);

impl Records {
    /// Opens the file and cuts off its invalid part. Also returns the last cursor, if there is one.
    pub(crate) fn open(path: &Path, keeper: Keeper) -> (Self, Option<String>) {
        let mut options = OpenOptions::new();
        let mut file = options.read(true).append(true).create(true).open(path).expect("a file");
        let mut text = String::new();
        file.read_to_string(&mut text).expect("a text");
        let length = counted(&text, keeper).len();
        file.set_len(length as u64).expect("cut off");
        let cursor = lines(&text, keeper).rfind(|(word, _)| *word == CURSOR);
        (Self(file), cursor.map(|(_, cursor)| cursor.to_owned()))
    }

    /// Appends a line by a single write, so that a kill leaves no part of a line.
    pub(crate) fn write(&mut self, word: &str, rest: &str) {
        self.0.write_all(format!("{word} {rest}\n").as_bytes()).expect("written");
    }
}
