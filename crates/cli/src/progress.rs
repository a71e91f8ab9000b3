//! How far a long command is.

use std::fs;

use indicatif::{ProgressBar, ProgressStyle};

/// Bytes above which a bar is worth it.
const SHOW: u64 = 32 << 20;

/// A bar on standard error, and only where that is a terminal.
#[derive(Debug)]
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// Over all the bytes of these files; nothing for what is none.
    pub(crate) fn over_files<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Self {
        let size = |argument| fs::metadata(argument).map_or(0, |metadata| metadata.len());
        Self::over(arguments.into_iter().map(size).sum())
    }

    /// Over so many bytes.
    pub(crate) fn over(total: u64) -> Self {
        if total < SHOW {
            return Self(ProgressBar::hidden());
        }
        let style = ProgressStyle::with_template("{bar:40} {bytes}/{total_bytes}, {eta} left{msg}");
        let bar = ProgressBar::new(total);
        bar.set_style(style.expect("the template is valid"));
        Self(bar)
    }

    /// So many bytes are done.
    pub(crate) fn at(&self, bytes: u64) {
        self.0.set_position(bytes);
    }

    /// Shows a word behind the bar.
    pub(crate) fn note(&self, text: impl AsRef<str>) {
        self.0.set_message(format!(", {}", text.as_ref()));
    }

    /// Prints a line on standard output, above the bar.
    pub(crate) fn suspend<R>(&self, print: impl FnOnce() -> R) -> R {
        self.0.suspend(print)
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
