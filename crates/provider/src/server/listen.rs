//! Accepts connections of clients, and ends those that read or write too slowly.

use std::io::{self, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, Sleep, sleep_until};

use super::clients::{Counted, Held};
use super::http::Front;
use super::metrics::Metrics;

/// Time in which a client must take [`LEAST`] bytes of what is sent to it, unless it takes all of it.
const PACE: Duration = Duration::from_secs(30);
/// The system tells of progress in steps of about a third of the buffer, which it doubles. So this is less than
/// what 8 KiB a second are in the time.
const LEAST: u64 = 64 << 10;
const SEND_BUFFER: usize = 256 << 10;
/// Bytes by which an incomplete message may be longer than a request: the heads of its frames.
const HEADS: u64 = 64 << 10;
/// Size of the buffers of a connection.
const BUFFER: usize = 64 << 10;
/// Maximum number of HTTP headers of a request.
const MOST_HEADERS: usize = 64;
/// Pause after a connection could not be accepted, for example without a free file descriptor.
const PAUSE: Duration = Duration::from_millis(50);
/// What a client gets that has too many connections.
const TOO_MANY: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nConnection: close\r\n\
    Content-Length: 21\r\nContent-Type: text/plain\r\n\r\ntoo many connections\n";

/// Accepts connections until the task is dropped.
pub(super) async fn accept(listener: TcpListener, front: Arc<Front>) {
    loop {
        match listener.accept().await {
            Ok((stream, address)) => begin(stream, address, &front),
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

/// The connections that one is counted among.
#[derive(Debug)]
pub(super) struct Open {
    _of_client: Option<Counted>,
    _all: Counted,
}

fn begin(stream: TcpStream, address: SocketAddr, front: &Arc<Front>) {
    let proven = &front.proven;
    let client = proven.clients.of(address.ip());
    let limits = &proven.limits;
    // Behind a proxy, all connections have its address.
    let of_client = (!limits.behind_proxy)
        .then(|| Counted::new(&client.connections, limits.max_connections_of_client.into()));
    let all = Counted::new(&proven.connections, limits.max_connections.into());
    let open = match (of_client, all) {
        (Some(None), _) => Err("connections_of_client"),
        (_, None) => Err("connections"),
        (of_client, Some(all)) => Ok(Open { _of_client: of_client.flatten(), _all: all }),
    };
    let open = match open {
        Ok(open) => Arc::new(open),
        Err(limit) => {
            proven.metrics.limit_reached(limit);
            // A full buffer of a new connection is not to be expected, and loses only a hint.
            if let Ok(mut stream) = stream.into_std() {
                let _ = stream.write(TOO_MANY);
            }
            return;
        }
    };
    let _ = stream.set_nodelay(true);
    // In a larger buffer, a slow reader's progress would not show for long.
    let _ = SockRef::from(&stream).set_send_buffer_size(SEND_BUFFER);
    let input =
        Arc::new(Input { limit: u64::from(limits.max_request) + HEADS, reading: Mutex::default() });
    let timeout = limits.request_timeout;
    let service = front.of_connection(address.ip(), client, Arc::clone(&input), Arc::clone(&open));
    let metrics = Arc::clone(&proven.metrics);
    let stream = Paced { stream, input, blocked: None, metrics };
    tokio::spawn(async move {
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(timeout)
            .max_buf_size(BUFFER)
            .max_headers(MOST_HEADERS)
            .serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
        // An error is one of the client's, which has left.
        let _ = connection.with_upgrades().await;
        drop(open);
    });
}

/// What was read of a message over a WebSocket that is not complete yet.
#[derive(Debug)]
pub(super) struct Input {
    limit: u64,
    /// `None` before the WebSocket begins.
    reading: Mutex<Option<Reading>>,
}

#[derive(Debug)]
struct Reading {
    held: Held,
    /// When the first of these bytes was read.
    begun: Option<Instant>,
}

impl Input {
    fn reading(&self) -> MutexGuard<'_, Option<Reading>> {
        self.reading.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts what is read from now on.
    pub(super) fn begin(&self, held: Held) {
        *self.reading() = Some(Reading { held, begun: None });
    }

    /// Returns what was counted, for a message that is complete.
    pub(super) fn take(&self) -> Option<Held> {
        let mut reading = self.reading();
        let reading = reading.as_mut()?;
        reading.begun = None;
        let next = reading.held.of_same();
        Some(std::mem::replace(&mut reading.held, next))
    }

    /// Counts some bytes no longer, which belong to no message.
    pub(super) fn give_back(&self, bytes: u64) {
        if let Some(reading) = &mut *self.reading() {
            let left = reading.held.bytes().saturating_sub(bytes);
            reading.held.shrink_to(left);
            if left == 0 {
                reading.begun = None;
            }
        }
    }

    /// Returns `true` if a message is not complete after so long.
    pub(super) fn is_late(&self, limit: Duration) -> bool {
        let reading = self.reading();
        let begun = reading.as_ref().and_then(|reading| reading.begun);
        begun.is_some_and(|begun| begun.elapsed() > limit)
    }

    fn add(&self, bytes: usize) -> io::Result<()> {
        let mut reading = self.reading();
        let Some(Reading { held, begun }) = &mut *reading else { return Ok(()) };
        begun.get_or_insert_with(Instant::now);
        // The client is told nothing: it is in the middle of a message.
        let full = || io::Error::from(io::ErrorKind::OutOfMemory);
        if held.bytes() + bytes as u64 > self.limit {
            return Err(full());
        }
        held.grow(bytes as u64).map_err(|_| full())
    }
}

/// A connection whose other end must take what is sent to it.
struct Paced {
    stream: TcpStream,
    input: Arc<Input>,
    /// Since when the other end has taken only a part, and how many bytes it took since then.
    blocked: Option<(Pin<Box<Sleep>>, u64)>,
    metrics: Arc<Metrics>,
}

impl Paced {
    /// Notes how much of `length` bytes was taken. Returns an error if that is too little for too long.
    fn paced(
        &mut self,
        context: &mut Context<'_>,
        length: usize,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        match written {
            Poll::Ready(Ok(taken)) => {
                match &mut self.blocked {
                    Some((_, bytes)) if taken < length => *bytes += taken as u64,
                    blocked => *blocked = None,
                }
                Poll::Ready(Ok(taken))
            }
            Poll::Ready(error) => Poll::Ready(error),
            Poll::Pending => {
                let (sleep, bytes) = self
                    .blocked
                    .get_or_insert_with(|| (Box::pin(sleep_until(Instant::now() + PACE)), 0));
                loop {
                    ready!(sleep.as_mut().poll(context));
                    if *bytes < LEAST {
                        self.metrics.limit_reached("pace");
                        return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
                    }
                    *bytes = 0;
                    sleep.as_mut().reset(Instant::now() + PACE);
                }
            }
        }
    }
}

impl AsyncRead for Paced {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        Poll::Ready(self.input.add(buffer.filled().len() - before))
    }
}

impl AsyncWrite for Paced {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.paced(context, bytes.len(), written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, bytes);
        let length = bytes.iter().map(|slice| slice.len()).sum();
        self.paced(context, length, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// Returns the client's address that a proxy names: the last one, which it added itself.
pub(super) fn forwarded_for(value: &str) -> Option<IpAddr> {
    let last = value.rsplit(',').next()?.trim();
    last.parse().ok().or_else(|| last.parse::<SocketAddr>().ok().map(|address| address.ip()))
}
