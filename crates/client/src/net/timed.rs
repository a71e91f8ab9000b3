//! A socket with a deadline for all its reads and writes.
//!
//! A separate timeout for each call would not be enough: a peer that sends one byte at a time could
//! delay the end of a message without limit.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// A stream whose reads and writes fail with [`io::ErrorKind::TimedOut`] after a deadline.
///
/// The socket keeps the timeouts that the last read or write has set.
#[derive(Debug)]
pub struct Timed<'a> {
    stream: &'a TcpStream,
    until: Instant,
}

impl<'a> Timed<'a> {
    /// Wraps `stream` with the deadline `until`.
    pub fn new(stream: &'a TcpStream, until: Instant) -> Self {
        Self { stream, until }
    }

    /// Returns the time left before the deadline. Zero is an error, because a socket does not
    /// accept a timeout of zero.
    fn left(&self) -> io::Result<Duration> {
        match self.until.saturating_duration_since(Instant::now()) {
            Duration::ZERO => Err(io::ErrorKind::TimedOut.into()),
            left => Ok(left),
        }
    }
}

/// Maps `WouldBlock` to `TimedOut`: Unix reports `WouldBlock` when a socket's timeout has passed.
fn timed_out(error: io::Error) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock => io::ErrorKind::TimedOut.into(),
        _ => error,
    }
}

impl Read for Timed<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(Some(self.left()?))?;
        self.stream.read(buffer).map_err(timed_out)
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(Some(self.left()?))?;
        self.stream.write(bytes).map_err(timed_out)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
