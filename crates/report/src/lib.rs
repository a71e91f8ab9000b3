//! Frame of chainsieve's programs.
//!
//! A command returns a [`Report`], which contains the same facts as a [`Page`] for people and as JSON
//! for programs, and an exit code. [`run`] parses the command line, runs the command, prints the
//! report, and maps errors to messages and exit codes.
//!
//! Text from untrusted sources is escaped before it is printed. Errors show neither private keys
//! nor URLs, because errors end up in logs.

pub mod args;
pub mod blocks;
pub mod calendar;
mod exit;
mod input;
mod page;
mod program;
mod progress;
mod source;
mod text;

pub use exit::{Exit, OfCause, UsageError};
pub use input::{
    Input, Reader, as_text, check_overwrite, decode_hex, excerpt, folder_and_name, named, replace,
    shorten, write, write_hex,
};
pub use page::{Lines, Page, Report, json_line, line_of, print_log, print_note};
pub use program::{on_signals, run};
pub use progress::{Progress, Status, note, size};
pub use source::{Bytes, Source, stdin_is_piped};
pub use text::{
    bytes, count, duration, estimate, float, grouped, plain_or_quoted, printable, printable_json,
    rate, rate_with_separators, share, span, with_separators,
};
