//! A call of a client while it is processed: the memory that it may hold, and the check that a client
//! still waits for the answer.

use std::io;
use std::ops::Deref;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use serde::Serialize;
use serde_json::value::RawValue;

use super::Proven;
use super::clients::{Client, Held};
use super::error::Refusal;
use crate::stop::{Stop, lock};

/// Number of bytes that are reserved at once while an answer is written.
const STEP: u64 = 64 << 10;

/// Bytes that surround the result in an answer, without the id, which the client chooses.
const ENVELOPE: u64 = 64;

/// The answer to a call, as JSON.
pub(super) type Answer = Result<Written, Refusal>;

/// A method, which receives its parameters as JSON.
pub(super) type Method = fn(&Call, &[&RawValue]) -> Answer;

/// JSON, and the part of the budget that its bytes take.
#[derive(Debug)]
pub(super) struct Written {
    pub(super) json: Vec<u8>,
    /// The part of the budget, which is dropped together with the last clone of the bytes.
    pub(super) held: Held,
}

/// A call of a client, or the work for a subscription.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) proven: Arc<Proven>,
    pub(super) client: Arc<Client>,
    /// Set when no client waits for the answer any more.
    pub(super) stop: Stop,
    room: Arc<Room>,
    /// `true` if the answer is written on a thread that must not wait. Such an answer is short.
    is_instant: bool,
    held: Mutex<Held>,
}

/// The bytes that are left for the answer to a request. The calls of a batch share them.
#[derive(Debug)]
pub(super) struct Room {
    /// Number of bytes that are left.
    left: AtomicU64,
    /// A lock that is held by the call whose answer is written. If two answers were written at once, each
    /// could take the bytes that the other needs, so that neither fits.
    turn: Mutex<()>,
}

impl Room {
    pub(super) fn new(bytes: u64) -> Arc<Self> {
        Arc::new(Self { left: AtomicU64::new(bytes), turn: Mutex::new(()) })
    }
}

impl Deref for Call {
    type Target = Proven;

    fn deref(&self) -> &Proven {
        &self.proven
    }
}

impl Call {
    pub(super) fn new(
        proven: Arc<Proven>,
        client: Arc<Client>,
        stop: Stop,
        room: Arc<Room>,
    ) -> Self {
        let held = Mutex::new(proven.passing.part(&client));
        Self { proven, client, stop, room, is_instant: false, held }
    }

    /// Returns the call with an answer that does not wait for the other answers of its batch.
    pub(super) fn instant(self) -> Self {
        Self { is_instant: true, ..self }
    }

    /// Returns an error if no client waits for the answer any more, so that the work for the answer
    /// ends.
    pub(super) fn check_waiting(&self) -> Result<(), Refusal> {
        if self.stop.is_set() { Err(Refusal::Abandoned) } else { Ok(()) }
    }

    /// Reserves bytes for the data from which the answer is written, until the call ends.
    pub(super) fn hold(&self, bytes: u64) -> Result<(), Refusal> {
        lock(&self.held).grow(bytes)
    }

    /// Returns a result as JSON, if it is not too large for an answer.
    pub(super) fn written(&self, value: &(impl Serialize + ?Sized)) -> Answer {
        self.write(|out| out.value(value))
    }

    /// Returns a list as JSON, if it is not too large for an answer. Only one element is in memory at a time.
    pub(super) fn written_list<T: Serialize>(
        &self,
        values: impl IntoIterator<Item = Result<T, Refusal>>,
    ) -> Answer {
        self.write(|out| {
            let mut before = b"[";
            for value in values {
                out.bytes(before)?;
                out.value(&value?)?;
                before = b",";
            }
            out.bytes(if before == b"[" { b"[]" } else { b"]" })
        })
    }

    fn write(&self, write: impl FnOnce(&mut Writer<'_>) -> Result<(), Refusal>) -> Answer {
        let _turn = (!self.is_instant).then(|| lock(&self.room.turn));
        let mut out = Writer { call: self, json: Vec::new(), reserved: 0, failed: None };
        let written = write(&mut out);
        let Writer { mut json, reserved, .. } = out;
        let length = json.len() as u64;
        let mut held = lock(&self.held).split(reserved);
        // Without an answer, an error takes little room.
        let taken = if written.is_ok() { length + ENVELOPE } else { 0 };
        self.room.left.fetch_add(reserved.saturating_sub(taken), Ordering::Relaxed);
        written?;
        json.shrink_to_fit();
        held.shrink_to(length);
        Ok(Written { json, held })
    }
}

/// Writes JSON within the limits of a call.
struct Writer<'a> {
    call: &'a Call,
    json: Vec<u8>,
    /// Bytes that are reserved in the budget and in the room for the answer.
    reserved: u64,
    failed: Option<Refusal>,
}

impl Writer<'_> {
    fn value(&mut self, value: &(impl Serialize + ?Sized)) -> Result<(), Refusal> {
        match serde_json::to_writer(&mut *self, value) {
            Ok(()) => Ok(()),
            Err(_) => Err(self.failed.take().unwrap_or(Refusal::Internal)),
        }
    }

    fn bytes(&mut self, bytes: &[u8]) -> Result<(), Refusal> {
        let needed = (self.json.len() + bytes.len()) as u64 + ENVELOPE;
        if needed > self.reserved {
            self.reserve(needed)?;
        }
        self.json.extend_from_slice(bytes);
        Ok(())
    }

    /// Reserves at least `needed` bytes, and more if there is room, because most answers are written in
    /// many small pieces.
    #[cold]
    fn reserve(&mut self, needed: u64) -> Result<(), Refusal> {
        let least = needed - self.reserved;
        let step = least.max(self.reserved.clamp(1024, STEP));
        let room = &self.call.room.left;
        let mut more = step;
        let take = |room: u64| {
            more = step.min(room);
            (more >= least).then(|| room - more)
        };
        if let Err(room) = room.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take) {
            let limit = u64::from(self.call.limits.max_answer);
            let found = (limit - room.min(limit)).saturating_add(least);
            return Err(Refusal::Limit { what: "bytes of the answer", found, limit });
        }
        let grown = self.call.hold(more);
        if grown.is_err() {
            room.fetch_add(more, Ordering::Relaxed);
        } else {
            self.reserved += more;
        }
        grown
    }
}

impl io::Write for Writer<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes(bytes).map(|()| bytes.len()).map_err(|refusal| {
            self.failed = Some(refusal);
            io::Error::from(io::ErrorKind::StorageFull)
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
