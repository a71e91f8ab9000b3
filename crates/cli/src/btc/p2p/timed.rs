//! A socket that is read and written up to a point in time: a limit on each call alone would let a
//! peer take a byte's time for as many bytes as it likes.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// A stream whose reads and writes fail with [`io::ErrorKind::TimedOut`] from `until` on.
///
/// The stream keeps the limits that the last call has set.
#[derive(Debug)]
pub(crate) struct Timed<'a> {
    stream: &'a TcpStream,
    until: Instant,
}

impl<'a> Timed<'a> {
    pub(crate) fn new(stream: &'a TcpStream, until: Instant) -> Self {
        Self { stream, until }
    }

    /// What is left; zero is no limit that a socket takes.
    fn left(&self) -> io::Result<Duration> {
        match self.until.saturating_duration_since(Instant::now()) {
            Duration::ZERO => Err(io::ErrorKind::TimedOut.into()),
            left => Ok(left),
        }
    }
}

/// Unix says "would block" where the time is up.
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
