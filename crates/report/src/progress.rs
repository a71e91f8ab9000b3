//! Progress bars and status lines of long-running commands.

use std::fs;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

use crate::page::is_quiet;

/// Minimum number of bytes for which a progress bar is shown. Fewer bytes are read so fast that a
/// bar is of no use.
const SHOW: u64 = 32 << 20;

/// Returns the size of a file in bytes; 0 if the argument is not a file.
pub fn size(argument: &str) -> u64 {
    fs::metadata(argument).map_or(0, |metadata| metadata.len())
}

/// A progress bar on standard error, shown only if that is a terminal.
#[derive(Debug)]
pub struct Progress(ProgressBar);

impl Progress {
    /// Returns a bar for the bytes of these files; an argument that is not a file adds 0 bytes.
    pub fn over_files<'a>(arguments: impl IntoIterator<Item = &'a str>) -> Self {
        Self::over(arguments.into_iter().map(size).sum())
    }

    /// Returns a bar for a number of bytes, hidden for small totals.
    pub fn over(total: u64) -> Self {
        if total < SHOW {
            return Self(ProgressBar::hidden());
        }
        Self::with_template(total, "{bar:40} {bytes}/{total_bytes}, {eta} left{msg}")
    }

    /// Returns a bar for a number of slow steps; `what` names them.
    pub fn counting(total: u64, what: &str) -> Self {
        let template =
            format!("{{bar:40}} {{human_pos}}/{{human_len}} {what}, {{eta}} left{{msg}}");
        Self::with_template(total, &template)
    }

    fn with_template(total: u64, template: &str) -> Self {
        let style = ProgressStyle::with_template(template).expect("the template is valid");
        if is_quiet() {
            return Self(ProgressBar::hidden());
        }
        Self(shown(ProgressBar::new(total).with_style(style)))
    }

    /// Returns `true` if the bar has a total, whether or not it is visible on a terminal.
    pub fn is_shown(&self) -> bool {
        self.0.length().is_some()
    }

    /// Sets the position of the bar.
    pub fn at(&self, done: u64) {
        self.0.set_position(done);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        cleared(&self.0);
    }
}

/// The visible bar or status line, if there is one.
static SHOWN: Mutex<Option<ProgressBar>> = Mutex::new(None);

fn shown(bar: ProgressBar) -> ProgressBar {
    if !bar.is_hidden() {
        *SHOWN.lock().unwrap_or_else(PoisonError::into_inner) = Some(bar.clone());
    }
    bar
}

fn cleared(bar: &ProgressBar) {
    if !bar.is_hidden() {
        *SHOWN.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
    bar.finish_and_clear();
}

/// Shows a text after the visible bar.
pub fn note(text: &str) {
    if let Some(bar) = &*SHOWN.lock().unwrap_or_else(PoisonError::into_inner) {
        bar.set_message(format!(", {text}"));
    }
}

/// Minimum time between two updates of a status line.
const REFRESH: Duration = Duration::from_millis(250);

/// A status line on standard error for a command whose total work is unknown, shown only if
/// standard error is a terminal.
#[derive(Debug)]
pub struct Status {
    bar: ProgressBar,
    next: Option<Instant>,
}

impl Default for Status {
    /// Returns a status line without a text.
    fn default() -> Self {
        let bar = if is_quiet() { ProgressBar::hidden() } else { ProgressBar::new_spinner() };
        bar.set_style(ProgressStyle::with_template("{wide_msg}").expect("the template is valid"));
        Self { bar: shown(bar), next: None }
    }
}

impl Status {
    /// Shows a text, at most once per `REFRESH`.
    pub fn show(&mut self, text: impl FnOnce() -> String) {
        let now = Instant::now();
        if !self.bar.is_hidden() && self.next.is_none_or(|next| next <= now) {
            self.next = Some(now + REFRESH);
            self.bar.set_message(text());
        }
    }
}

impl Drop for Status {
    fn drop(&mut self) {
        cleared(&self.bar);
    }
}

/// Calls `print` with the visible bar or status line hidden, so that its output stays above it.
pub(crate) fn above_status<R>(print: impl FnOnce() -> R) -> R {
    let shown = SHOWN.lock().unwrap_or_else(PoisonError::into_inner).clone();
    match shown {
        Some(bar) => bar.suspend(print),
        None => print(),
    }
}
