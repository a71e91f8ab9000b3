//! The frame of a program: from its command line to its exit code.

use std::env;
use std::process::{self, ExitCode};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context as _, anyhow};
use clap::Parser;

use crate::args::{self, OutputArgs};
use crate::exit::{Exit, OfCause};
use crate::page::{Report, print_error, print_time_taken, set_quiet, set_verbose};
use crate::text::printable;

/// Exit code of a command that Ctrl-C killed, by the convention of shells: 128 + SIGINT.
const INTERRUPTED: i32 = 130;

/// Runs the command of a parsed command line and prints its report.
///
/// `output` returns the options about the output, `command` runs the command, and `of_cause` has the
/// program's own rules about the exit codes of errors.
pub fn run<C: Parser>(
    parsed: Result<C, clap::Error>,
    output: impl Fn(&C) -> OutputArgs,
    command: impl FnOnce(&C) -> anyhow::Result<Report>,
    of_cause: OfCause,
) -> ExitCode {
    let cli = match parsed {
        Ok(cli) => cli,
        Err(error) if args::holds_private_key(&error.to_string()) => {
            return usage(args::NOT_SHOWN);
        }
        // The URL of a node or a provider often contains an API key, so an error of the parser must
        // not repeat it, even if it was given at the wrong place.
        Err(error) if error.use_stderr() && error.to_string().contains("://") => {
            return usage(args::URL_NOT_SHOWN);
        }
        Err(error) => of_printable_arguments::<C>(error).exit(),
    };
    let output = output(&cli);
    set_quiet(output.quiet);
    if output.verbose {
        set_verbose();
    }
    let result = command(&cli).and_then(|report| report.print(output.json));
    print_time_taken();
    result.unwrap_or_else(|error| {
        print_error(&error);
        Exit::of_error(&error, of_cause).into()
    })
}

fn usage(text: &'static str) -> ExitCode {
    print_error(&anyhow!(text));
    Exit::Usage.into()
}

/// Returns the error about the same arguments, but with each argument escaped, because the parser's
/// errors repeat the arguments.
fn of_printable_arguments<C: Parser>(error: clap::Error) -> clap::Error {
    let given = || env::args_os().map(|arg| arg.to_string_lossy().into_owned());
    let args: Vec<_> = given().map(|arg| printable(&arg).into_owned()).collect();
    if given().eq(args.iter().cloned()) {
        return error;
    }
    C::try_parse_from(args).err().unwrap_or(error)
}

/// The functions that the first signal calls.
type Stops = Vec<Box<dyn Fn() + Send>>;

/// The functions that the first signal calls, and `true` once a signal has come.
static STOPS: Mutex<(Stops, bool)> = Mutex::new((Vec::new(), false));

/// Calls `stop` at Ctrl-C, SIGTERM or SIGHUP, or at once if such a signal has already come. A second signal
/// always ends the process at once, because a command may not react to the first signal.
///
/// # Errors
/// Returns an error if the system does not deliver signals.
pub fn on_signals(stop: impl Fn() + Send + 'static) -> anyhow::Result<()> {
    let lock = || STOPS.lock().unwrap_or_else(PoisonError::into_inner);
    let mut stops = lock();
    if stops.0.is_empty() {
        let handler = move || {
            let mut stops = lock();
            if stops.1 {
                process::exit(INTERRUPTED);
            }
            stops.1 = true;
            stops.0.iter().for_each(|stop| stop());
        };
        ctrlc::set_handler(handler).context("cannot listen for Ctrl-C")?;
    }
    if stops.1 {
        stop();
    }
    stops.0.push(Box::new(stop));
    Ok(())
}
