//! Reads the body of an answer, up to a number of bytes.

use std::io::{self, Read};
use std::sync::Arc;
use std::time::Duration;

use super::large::{FREE, Large, Permit};
use crate::stop::Stop;

/// What an answer may take.
#[derive(Debug, Clone)]
pub(super) struct Bounds {
    /// Maximum number of bytes, after decompression.
    pub(super) bytes: u64,
    /// Maximum number of bytes between two quotes, so that no string fills the memory; `None` for an answer that
    /// is held as a whole anyway.
    pub(super) string: Option<u64>,
    /// Permits for long answers; `None` for no limit.
    pub(super) large: Option<Arc<Large>>,
    pub(super) timeout: Duration,
    pub(super) stop: Stop,
}

/// The body of an answer.
pub(super) struct BoundedReader<R> {
    body: R,
    bounds: Bounds,
    read: u64,
    /// Number of bytes since the last quote that no backslash precedes.
    string: u64,
    is_escaped: bool,
    /// `true` once a limit was exceeded.
    pub(super) is_too_large: bool,
    /// The error of the connection, if there was one. A parser makes an error of its own of it.
    pub(super) failed: Option<io::ErrorKind>,
    permit: Option<Permit>,
}

impl<R> BoundedReader<R> {
    pub(super) const fn new(body: R, bounds: Bounds) -> Self {
        let (read, string) = (0, 0);
        let (is_escaped, is_too_large, permit) = (false, false, None);
        Self { body, bounds, read, string, is_escaped, is_too_large, failed: None, permit }
    }

    /// Returns the permit, if the answer needed one.
    pub(super) fn into_permit(self) -> Option<Permit> {
        self.permit
    }

    fn count_string(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            match byte {
                b'"' if !self.is_escaped => self.string = 0,
                _ => self.string += 1,
            }
            self.is_escaped = byte == b'\\' && !self.is_escaped;
        }
    }
}

impl<R: Read> Read for BoundedReader<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        if self.read >= FREE
            && self.permit.is_none()
            && let Some(large) = &self.bounds.large
        {
            let permit = large.wait(self.bounds.timeout, &self.bounds.stop);
            let late = io::ErrorKind::TimedOut;
            self.permit = Some(permit.ok_or(late).inspect_err(|kind| self.failed = Some(*kind))?);
        }
        // Before the permit is there, no more is read than is free.
        let room = if self.permit.is_none() && self.bounds.large.is_some() {
            FREE.saturating_sub(self.read)
        } else {
            u64::MAX
        };
        let room = usize::try_from(room).unwrap_or(usize::MAX).min(out.len());
        let read = self.body.read(&mut out[..room]);
        let count = read.inspect_err(|error| self.failed = Some(error.kind()))?;
        self.read += count as u64;
        if let Some(longest) = self.bounds.string {
            self.count_string(&out[..count]);
            self.is_too_large |= self.string > longest;
        }
        self.is_too_large |= self.read > self.bounds.bytes;
        if self.is_too_large {
            return Err(io::Error::other("too large"));
        }
        Ok(count)
    }
}
