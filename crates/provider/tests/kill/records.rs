//! What a reader of logs keeps: a line for each thing that it was told, in order.

use std::fs::{File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::path::Path;

use serde::{Deserialize, Serialize};

/// Who keeps the cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Keeper {
    /// The crate, in a file of its own.
    Crate,
    /// The reader, after the records of each update. What comes after the last cursor is a
    /// transaction that was not finished.
    Reader,
}

/// The first word of a line.
pub(crate) const STARTED: &str = "started";
pub(crate) const FROM: &str = "from";
pub(crate) const LOG: &str = "log";
pub(crate) const BLOCKS: &str = "blocks";
pub(crate) const REMOVED: &str = "removed";
pub(crate) const CURSOR: &str = "cursor";

/// Stands for the last block where there is none.
pub(crate) const NONE: &str = "none";

/// The lines that count, each as its first word and the rest.
pub(crate) fn lines(text: &str, keeper: Keeper) -> impl DoubleEndedIterator<Item = (&str, &str)> {
    counted(text, keeper).lines().map(|line| line.split_once(' ').expect("a word and the rest"))
}

/// The part of the text that counts: whole lines, and whole transactions.
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

/// The file, open for more.
pub(crate) struct Records(File);

impl Records {
    /// Cuts off what does not count. Returns the last cursor too, if there is one.
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

    /// One write for each line: a kill comes between two of them.
    pub(crate) fn write(&mut self, word: &str, rest: &str) {
        self.0.write_all(format!("{word} {rest}\n").as_bytes()).expect("written");
    }
}
