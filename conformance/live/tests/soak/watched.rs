//! A command that is killed and started again, and whose memory is measured.

use serde_json::Value;

use super::GROWTH;
use crate::command::Running;
use crate::harness::Scene;

pub(super) struct Watched {
    pub(super) name: &'static str,
    arguments: Vec<String>,
    running: Option<Running>,
    /// The lines of the runs that were killed.
    before: Vec<Value>,
    /// The logs of the runs that have ended.
    logs: String,
    /// Memory at the first measurement, in KiB. `most` is the peak of all measurements, in KiB.
    first: Option<u64>,
    most: u64,
}

impl Watched {
    pub(super) fn start(scene: &Scene, name: &'static str, arguments: &[&str]) -> Self {
        let arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
        let (before, logs) = (Vec::new(), String::new());
        let mut watched =
            Self { name, arguments, running: None, before, logs, first: None, most: 0 };
        watched.resume(scene);
        watched
    }

    pub(super) fn resume(&mut self, scene: &Scene) {
        if self.running.is_none() {
            let arguments: Vec<&str> = self.arguments.iter().map(String::as_str).collect();
            self.running = Some(Running::start(scene, &arguments));
            self.first = None;
        }
    }

    /// Kills the program, as `kill -9` does.
    pub(super) fn kill(&mut self) {
        if let Some(mut running) = self.running.take() {
            running.process().kill();
            self.logs.push_str(&running.log());
            self.before.extend_from_slice(running.lines());
        }
    }

    /// Waits until `wanted` returns `true` for the program's newest line of a kind. If the current
    /// run has printed no line of this kind yet, the newest line of earlier runs is tested.
    pub(super) fn wait_for_newest(
        &mut self,
        kind: impl Fn(&Value) -> bool,
        wanted: impl Fn(&Value) -> bool,
    ) {
        let running = self.running.as_mut().expect("running");
        let before = self.before.iter().rev().find(|line| kind(line));
        running.wait("what the node has", |lines| {
            let newest = lines.iter().rev().find(|line| kind(line)).or(before)?;
            wanted(newest).then_some(())
        });
    }

    /// Returns all lines of all runs.
    pub(super) fn lines(&mut self) -> Vec<Value> {
        let now = self.running.as_mut().map(|running| running.lines().to_vec());
        [self.before.clone(), now.unwrap_or_default()].concat()
    }

    /// Returns the logs of all runs.
    pub(super) fn log(&self) -> String {
        let now = self.running.as_ref().map(Running::log);
        self.logs.clone() + &now.unwrap_or_default()
    }

    /// Measures the memory of the program, which must not be much above the first measurement.
    pub(super) fn weigh(&mut self) {
        let Some((most, now)) = self.running.as_ref().and_then(Running::memory) else { return };
        let first = *self.first.get_or_insert(now);
        self.most = self.most.max(most);
        assert!(
            now <= first + GROWTH,
            "{}: {now} KiB, {first} KiB at the first measurement",
            self.name
        );
    }

    /// Ends the program as Ctrl-C does, checks that the exit code is 0, and returns all lines.
    pub(super) fn end(&mut self) -> Vec<Value> {
        self.weigh();
        let last = self.running.as_ref().and_then(Running::memory);
        let running = self.running.take().expect("running");
        let (code, lines, log) = running.interrupt();
        assert_eq!(code, Some(0), "{}: {log}", self.name);
        self.logs.push_str(&log);
        if let (Some((most, now)), Some(first)) = (last, self.first) {
            eprintln!(
                "soak: {}: {first} KiB after a third, {now} KiB in the end, {most} KiB at most",
                self.name
            );
        }
        [std::mem::take(&mut self.before), lines].concat()
    }
}
