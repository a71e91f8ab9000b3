//! Progress bars of long-running commands.

use indicatif::{ProgressBar, ProgressStyle};

use crate::output::is_quiet;

/// A progress bar on standard error, shown only if that is a terminal.
#[derive(Debug)]
pub(crate) struct Progress(ProgressBar);

impl Progress {
    /// Returns a bar for a number of slow steps; `what` names them.
    pub(crate) fn counting(total: u64, what: &str) -> Self {
        if is_quiet() {
            return Self(ProgressBar::hidden());
        }
        let template = format!("{{bar:40}} {{human_pos}}/{{human_len}} {what}, {{eta}} left");
        let style = ProgressStyle::with_template(&template).expect("the template is valid");
        Self(ProgressBar::new(total).with_style(style))
    }

    /// Sets the position of the bar.
    pub(crate) fn at(&self, done: u64) {
        self.0.set_position(done);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}
