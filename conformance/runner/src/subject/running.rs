//! A running process, with threads that read and write so that it cannot block the runner.

use std::collections::HashMap;
use std::io::Write as _;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::incoming::{Incoming, Stderr, answer, lines_of};
use super::process::{FINDINGS, Limits};
use crate::answer::{Failure, Violation};

/// How often a silent process is checked for its end: a child of it may keep the pipe open.
const CHECK: Duration = Duration::from_millis(50);
/// Time in which a process that has closed its output is expected to have ended.
const ENDING: Duration = Duration::from_secs(2);

/// A fault: what happened, and the number of the question that caused it, if that is known.
#[derive(Debug)]
pub(super) struct Fault {
    pub(super) failure: Failure,
    pub(super) culprit: Culprit,
}

/// The cause of a fault.
#[derive(Debug)]
pub(super) enum Culprit {
    /// The question with this number.
    Question(usize),
    /// A question of an earlier call.
    Earlier,
    /// One of the open questions, if there are any.
    Unknown,
}

impl From<Failure> for Fault {
    fn from(failure: Failure) -> Self {
        Self { failure, culprit: Culprit::Unknown }
    }
}

impl From<Violation> for Fault {
    fn from(violation: Violation) -> Self {
        Failure::from(violation).into()
    }
}

/// A running process. It and its children are killed when this value is dropped.
#[derive(Debug)]
pub(super) struct Running {
    child: Child,
    /// Lines for the thread that writes them; `None` once the input is closed.
    input: Option<SyncSender<Vec<u8>>>,
    incoming: Receiver<Incoming>,
    line_limit: usize,
    stderr: Stderr,
    /// The call and the number of each answered question, by its `seq`.
    pub(super) answered: HashMap<u64, (u64, usize)>,
}

impl Running {
    pub(super) fn spawn(command: &str, limits: &Limits) -> std::io::Result<Self> {
        let mut child = shell(command)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let (input, lines) = sync_channel::<Vec<u8>>(limits.window + 2);
        let mut stdin = child.stdin.take().expect("piped");
        // A subject that does not read must not block the runner.
        thread::spawn(move || {
            for line in lines {
                if stdin.write_all(&line).and_then(|()| stdin.flush()).is_err() {
                    return;
                }
            }
        });
        Ok(Self {
            incoming: lines_of(child.stdout.take().expect("piped"), limits.line),
            line_limit: limits.line,
            stderr: Stderr::of(child.stderr.take().expect("piped")),
            child,
            input: Some(input),
            answered: HashMap::new(),
        })
    }

    /// Sends a line.
    pub(super) fn send(&mut self, message: &Value) -> Result<(), Failure> {
        let line = format!("{message}\n").into_bytes();
        match self.input.as_ref().map(|input| input.try_send(line)) {
            Some(Err(TrySendError::Full(_))) => Err(Failure::NotReading),
            // The writer ends when the process closes its input. The wait for the answer finds out
            // more about it.
            _ => Ok(()),
        }
    }

    /// Waits for a line.
    pub(super) fn receive(&mut self, limit: Duration) -> Result<Vec<u8>, Failure> {
        let end = Instant::now() + limit;
        let mut is_last_check = false;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match self.incoming.recv_timeout(left.min(CHECK)) {
                Ok(Incoming::Line(line)) => return Ok(line),
                Ok(Incoming::LongLine) => return Err(Failure::LongLine(self.line_limit)),
                Ok(Incoming::End) | Err(RecvTimeoutError::Disconnected) => {
                    return Err(self.after_end());
                }
                Err(RecvTimeoutError::Timeout) if is_last_check => return Err(self.after_end()),
                // What the process wrote before its end may still be on its way.
                Err(RecvTimeoutError::Timeout) if self.has_ended() => is_last_check = true,
                Err(RecvTimeoutError::Timeout) if left.is_zero() => {
                    return Err(Failure::Silent(limit));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// Returns the failure of a process whose output has ended.
    fn after_end(&mut self) -> Failure {
        let end = Instant::now() + ENDING;
        while !self.has_ended() {
            if Instant::now() > end {
                return Failure::ClosedOutput;
            }
            thread::sleep(Duration::from_millis(1));
        }
        let status = self.kill();
        Failure::Died { status, stderr: self.stderr.last_words(ENDING) }
    }

    /// Returns the fault of a line whose `seq` no open question has.
    pub(super) fn stray(&self, seq: u64, call: u64) -> Fault {
        let Some(&(of_call, number)) = self.answered.get(&seq) else {
            return Violation::UnknownSeq(seq).into();
        };
        let is_earlier = of_call != call;
        let culprit = if is_earlier { Culprit::Earlier } else { Culprit::Question(number) };
        Fault { failure: Violation::RepeatedSeq(seq).into(), culprit }
    }

    /// Asks the process to end, and returns what it does instead.
    pub(super) fn stop(&mut self, limit: Duration) -> Vec<String> {
        drop(self.send(&json!({ "cmd": "stop" })));
        // The thread closes the input after the last line.
        self.input = None;
        let mut faults = Vec::new();
        // A process that sends lines without end does not end either.
        while faults.len() < FINDINGS {
            match self.receive(limit) {
                Ok(line) => faults.push(match answer(&line) {
                    Ok((seq, _)) => self.stray(seq, 0).failure.to_string(),
                    Err(violation) => Failure::from(violation).to_string(),
                }),
                Err(Failure::Died { .. }) => break,
                Err(failure) => {
                    faults.push(format!("does not end after stop: {failure}"));
                    break;
                }
            }
        }
        faults
    }

    fn has_ended(&mut self) -> bool {
        self.child.try_wait().is_ok_and(|status| status.is_some())
    }

    /// Kills the process and its children, and returns how the process ended.
    fn kill(&mut self) -> String {
        kill_group(&mut self.child);
        self.child.wait().map_or_else(|error| error.to_string(), |status| status.to_string())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Returns the shell's command, in a process group of its own.
#[cfg(unix)]
fn shell(command: &str) -> Command {
    use std::os::unix::process::CommandExt as _;

    let mut shell = Command::new("sh");
    shell.args(["-c", command]).process_group(0);
    shell
}

/// Returns the shell's command. Without process groups, children of the process may live on.
#[cfg(not(unix))]
fn shell(command: &str) -> Command {
    let mut shell = Command::new("cmd");
    shell.args(["/C", command]);
    shell
}

/// Kills the process and the other processes of its group: a child of it may keep the pipe open.
#[cfg(unix)]
fn kill_group(child: &mut Child) {
    use nix::sys::signal::{Signal, killpg};
    use nix::unistd::Pid;

    if let Ok(group) = i32::try_from(child.id()) {
        // The call fails if the whole group has ended.
        let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
    }
}

#[cfg(not(unix))]
fn kill_group(child: &mut Child) {
    // The call fails if the process has ended.
    drop(child.kill());
}
