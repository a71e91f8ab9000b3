//! Accepts connections of clients, and ends connections whose clients read or write too slowly.

use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, Sleep, sleep_until};

use super::clients::Open;
use super::http::Front;
use super::operator::Metrics;
use super::websocket::Input;

/// Time in which a client must read [`LEAST`] bytes, unless fewer bytes wait for it.
const PACE: Duration = Duration::from_secs(30);
/// Minimum number of bytes that a client must read in this time. The system reports progress in steps of about
/// a third of the buffer, whose size it doubles. So this number is smaller than 8 KiB a second in this time.
const LEAST: u64 = 64 << 10;
const SEND_BUFFER: usize = 256 << 10;
/// Number of bytes by which an incomplete message may be longer than a request, for the headers of
/// its frames.
const HEADS: u64 = 64 << 10;
/// Size of the buffers of a connection.
const BUFFER: usize = 64 << 10;
/// Maximum number of HTTP headers of a request.
const MOST_HEADERS: usize = 64;
/// Pause after a connection could not be accepted, for example without a free file descriptor.
const PAUSE: Duration = Duration::from_millis(50);
/// The answer to a client that has too many connections.
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

fn begin(stream: TcpStream, address: SocketAddr, front: &Arc<Front>) {
    let proven = &front.proven;
    let client = proven.clients.of(address.ip());
    let limits = &proven.limits;
    let open = match Open::new(&client, &proven.connections, limits) {
        Ok(open) => Arc::new(open),
        Err(limit) => {
            proven.metrics.limit_reached(limit);
            // The buffer of a new connection is hardly ever full. If it is, only this hint is lost.
            if let Ok(mut stream) = stream.into_std() {
                let _ = stream.write(TOO_MANY);
            }
            return;
        }
    };
    let _ = stream.set_nodelay(true);
    // In a larger buffer, a slow reader's progress would not show for long.
    let _ = SockRef::from(&stream).set_send_buffer_size(SEND_BUFFER);
    let input = Arc::new(Input::new(u64::from(limits.max_request) + HEADS));
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

/// A connection whose client must read at a minimum pace.
struct Paced {
    stream: TcpStream,
    input: Arc<Input>,
    /// The deadline since the client last blocked the connection, and the number of bytes that it
    /// has read since then.
    blocked: Option<(Pin<Box<Sleep>>, u64)>,
    metrics: Arc<Metrics>,
}

impl Paced {
    /// Records how many of `length` bytes were read. Returns an error if the client has read too slowly
    /// for too long.
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
