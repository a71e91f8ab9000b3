//! How far a long command is.

use std::fs;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

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

    /// Over so many things that take their time, named by a word.
    pub(crate) fn counting(total: u64, what: &str) -> Self {
        let template =
            format!("{{bar:40}} {{human_pos}}/{{human_len}} {what}, {{eta}} left{{msg}}");
        let style = ProgressStyle::with_template(&template);
        let bar = ProgressBar::new(total);
        bar.set_style(style.expect("the template is valid"));
        Self(bar)
    }

    /// Whether there is one, shown on a terminal or not.
    pub(crate) fn is_shown(&self) -> bool {
        self.0.length().is_some()
    }

    /// So much is done.
    pub(crate) fn at(&self, done: u64) {
        self.0.set_position(done);
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

/// The status line that is shown now.
static SHOWN: Mutex<Option<ProgressBar>> = Mutex::new(None);

/// How often a status line is written anew.
const REFRESH: Duration = Duration::from_millis(250);

/// One line on standard error that says how far a command without a known end is, and only where
/// that is a terminal.
#[derive(Debug)]
pub(crate) struct Status {
    bar: ProgressBar,
    next: Option<Instant>,
}

impl Status {
    pub(crate) fn new() -> Self {
        let bar = ProgressBar::new_spinner();
        bar.set_style(ProgressStyle::with_template("{wide_msg}").expect("the template is valid"));
        *SHOWN.lock().unwrap_or_else(PoisonError::into_inner) = Some(bar.clone());
        Self { bar, next: None }
    }

    /// Shows a text, not too often.
    pub(crate) fn show(&mut self, text: impl FnOnce() -> String) {
        let now = Instant::now();
        if !self.bar.is_hidden() && self.next.is_none_or(|next| next <= now) {
            self.next = Some(now + REFRESH);
            self.bar.set_message(text());
        }
    }
}

impl Drop for Status {
    fn drop(&mut self) {
        *SHOWN.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.bar.finish_and_clear();
    }
}

/// Prints above the status line, if there is one.
pub(crate) fn above_status<R>(print: impl FnOnce() -> R) -> R {
    let shown = SHOWN.lock().unwrap_or_else(PoisonError::into_inner).clone();
    match shown {
        Some(bar) => bar.suspend(print),
        None => print(),
    }
}
