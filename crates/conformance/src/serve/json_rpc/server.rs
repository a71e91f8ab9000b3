//! A small HTTP/1.1 server for POST requests of limited size.

use std::io::{self, BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Time that a thread waits for bytes before it checks if it should stop.
const TICK: Duration = Duration::from_millis(50);
/// Largest body of a request in bytes: larger than geth's limit, 5 MiB.
const MAX_BODY: usize = 16 << 20;
/// Largest request line or header line in bytes.
const MAX_LINE: u64 = 16 << 10;
/// Maximum number of header lines of a request.
const MAX_LINES: usize = 100;
/// Maximum number of simultaneous connections. Further ones are closed.
const MAX_CONNECTIONS: usize = 256;

/// What is sent in return for a request.
#[derive(Debug)]
pub(super) enum Response {
    /// A body of JSON; an empty one without content.
    Json(String),
    /// A status without JSON.
    Status(u16),
    /// The bytes as they are, without HTTP; the connection closes afterwards.
    Bytes(Vec<u8>),
    /// The connection closes.
    Closed,
}

type Respond = dyn Fn(&[u8], &Shared) -> Response + Send + Sync;

/// The running server; dropping the server ends its threads.
pub(super) struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

pub(super) struct Shared {
    respond: Box<Respond>,
    stop: AtomicBool,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Shared {
    pub(super) fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Waits for a while, or until the server stops.
    pub(super) fn wait(&self, time: Duration) {
        let start = Instant::now();
        while !self.is_stopping() && start.elapsed() < time {
            thread::sleep(TICK.min(time));
        }
    }

    fn threads(&self) -> std::sync::MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Server {
    /// Starts a server. `respond` gets the body of each request.
    pub(super) fn start(
        listen: SocketAddr,
        respond: impl Fn(&[u8], &Shared) -> Response + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(listen)?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            respond: Box::new(respond),
            stop: AtomicBool::new(false),
            threads: Mutex::default(),
        });
        let own = Arc::clone(&shared);
        let accept = move || accept(&listener, &own);
        let acceptor = thread::Builder::new().name("json-rpc".into()).spawn(accept)?;
        Ok(Self { address, shared, acceptor: Some(acceptor) })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        // Connect once, so that the acceptor wakes up and sees the stop flag.
        drop(TcpStream::connect(self.address));
        drop(self.acceptor.take().map(JoinHandle::join));
        let threads = std::mem::take(&mut *self.shared.threads());
        for thread in threads {
            drop(thread.join());
        }
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for stream in listener.incoming() {
        if shared.is_stopping() {
            return;
        }
        let Ok(stream) = stream else {
            // For example, no file descriptor is free: they become free when clients disconnect.
            thread::sleep(TICK);
            continue;
        };
        let mut threads = shared.threads();
        threads.retain(|thread| !thread.is_finished());
        if threads.len() >= MAX_CONNECTIONS {
            continue;
        }
        let own = Arc::clone(shared);
        // A client that disconnects is not an error of the server.
        let serve = move || drop(serve(stream, &own));
        threads.extend(thread::Builder::new().name("json-rpc".into()).spawn(serve));
    }
}

/// A request, or the reason why it is refused.
enum Request {
    Body(Vec<u8>),
    Refused(u16),
}

/// Answers requests on a connection until it closes.
fn serve(stream: TcpStream, shared: &Shared) -> io::Result<()> {
    stream.set_read_timeout(Some(TICK))?;
    stream.set_nodelay(true)?;
    let mut writer = stream.try_clone()?;
    let mut reader = BufReader::new(stream);
    loop {
        let body = match read_request(&mut reader, &mut writer, shared)? {
            Some(Request::Body(body)) => body,
            // The rest of a refused request is unknown, so the connection cannot be used further.
            Some(Request::Refused(status)) => {
                return write_response(&mut writer, status, "", "close");
            }
            None => return Ok(()),
        };
        match (shared.respond)(&body, shared) {
            Response::Json(text) if text.is_empty() => {
                write_response(&mut writer, 204, "", "keep-alive")?;
            }
            Response::Json(text) => write_response(&mut writer, 200, &text, "keep-alive")?,
            Response::Status(status) => {
                write_response(&mut writer, status, "no answer", "keep-alive")?;
            }
            Response::Bytes(bytes) => return writer.write_all(&bytes),
            Response::Closed => return Ok(()),
        }
    }
}

fn write_response(to: &mut TcpStream, status: u16, text: &str, then: &str) -> io::Result<()> {
    let head = format!(
        "HTTP/1.1 {status} {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
         Connection: {then}\r\n\r\n",
        if status < 400 { "OK" } else { "Refused" },
        text.len()
    );
    to.write_all(&[head.as_bytes(), text.as_bytes()].concat())
}

/// Reads the body of the next request. Returns `None` if the connection closes or the server stops.
fn read_request(
    reader: &mut BufReader<TcpStream>,
    writer: &mut TcpStream,
    shared: &Shared,
) -> io::Result<Option<Request>> {
    let Some(first) = read_line(reader, shared)? else { return Ok(None) };
    if !first.starts_with("post ") {
        return Ok(Some(Request::Refused(405)));
    }
    let (mut length, mut expects) = (None, false);
    for _ in 0..MAX_LINES {
        let Some(line) = read_line(reader, shared)? else { return Ok(None) };
        let (name, value) = match line.split_once(':') {
            Some((name, value)) => (name, value.trim()),
            None if line.is_empty() => {
                let Some(length) = length else { return Ok(Some(Request::Refused(411))) };
                if length > MAX_BODY {
                    return Ok(Some(Request::Refused(413)));
                }
                if expects {
                    writer.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
                }
                return Ok(read_body(reader, shared, length)?.map(Request::Body));
            }
            None => return Ok(Some(Request::Refused(400))),
        };
        match name {
            "content-length" => match value.parse() {
                Ok(value) => length = Some(value),
                Err(_) => return Ok(Some(Request::Refused(400))),
            },
            // Clients of JSON-RPC know the length of their requests.
            "transfer-encoding" => return Ok(Some(Request::Refused(411))),
            "expect" => expects = value == "100-continue",
            _ => {}
        }
    }
    Ok(Some(Request::Refused(431)))
}

/// Reads a line in lower case, without its end. Returns `None` if the connection closes, if the
/// server stops, or if the line is too long.
fn read_line(reader: &mut BufReader<TcpStream>, shared: &Shared) -> io::Result<Option<String>> {
    let mut line = Vec::new();
    loop {
        let left = MAX_LINE.saturating_sub(line.len() as u64);
        match reader.by_ref().take(left).read_until(b'\n', &mut line) {
            Ok(_) if line.ends_with(b"\n") => {
                return Ok(Some(String::from_utf8_lossy(&line).trim().to_ascii_lowercase()));
            }
            Ok(0) => return Ok(None),
            Ok(_) => {}
            Err(error) if is_timeout(&error) && !shared.is_stopping() => {}
            Err(error) => return Err(error),
        }
    }
}

fn read_body(
    reader: &mut BufReader<TcpStream>,
    shared: &Shared,
    length: usize,
) -> io::Result<Option<Vec<u8>>> {
    // Memory grows with the bytes received, not with the length that the client claims.
    let mut body = Vec::new();
    while body.len() < length {
        let left = (length - body.len()) as u64;
        match reader.by_ref().take(left).read_to_end(&mut body) {
            Ok(0) => return Ok(None),
            Ok(_) => {}
            // What arrived before the timeout is in the body already.
            Err(error) if is_timeout(&error) && !shared.is_stopping() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Some(body))
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}
