//! A small HTTP/1.1 server for POST requests of limited size.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Time that a thread waits for bytes before it checks if it should stop.
const TICK: Duration = Duration::from_millis(50);
/// Time in which a client must read something of a response, so that a client that reads nothing
/// does not keep its connection for ever.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// Largest body of a request in bytes: larger than geth's limit, 5 MiB.
const MAX_BODY: usize = 16 << 20;
/// Largest request line or header line in bytes.
const MAX_LINE: u64 = 16 << 10;
/// Maximum number of header lines of a request.
const MAX_LINES: usize = 100;
/// Maximum number of simultaneous connections. Further ones get HTTP status 503.
const MAX_CONNECTIONS: usize = 256;
/// Number of refused connections that are kept open, so that their clients can read the refusal:
/// the system drops it if a connection closes before the client has sent its request.
const MAX_REFUSED: usize = 64;

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
    /// The connection closes after this time, or once the client has closed it.
    Silent(Duration),
}

type Respond = dyn Fn(&[u8]) -> Response + Send + Sync;

/// The running server; dropping the server closes its connections.
pub(super) struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

struct Shared {
    respond: Box<Respond>,
    stop: AtomicBool,
    /// The open connections by their numbers.
    streams: Mutex<BTreeMap<u64, Arc<TcpStream>>>,
}

impl Shared {
    fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn streams(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<TcpStream>>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Server {
    /// Starts a server. `respond` gets the body of each request.
    pub(super) fn start(
        listen: SocketAddr,
        respond: impl Fn(&[u8]) -> Response + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(listen)?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            respond: Box::new(respond),
            stop: AtomicBool::new(false),
            streams: Mutex::default(),
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
        /// Time for a connection to this machine, which needs next to none.
        const CONNECT: Duration = Duration::from_secs(1);
        self.shared.stop.store(true, Ordering::Relaxed);
        // Connect once, so that the acceptor wakes up and sees the stop flag.
        let mut address = self.address;
        match address {
            SocketAddr::V4(_) if address.ip().is_unspecified() => {
                address.set_ip(Ipv4Addr::LOCALHOST.into());
            }
            SocketAddr::V6(_) if address.ip().is_unspecified() => {
                address.set_ip(Ipv6Addr::LOCALHOST.into());
            }
            _ => {}
        }
        let woken = TcpStream::connect_timeout(&address, CONNECT);
        if woken.is_ok() {
            drop(self.acceptor.take().map(JoinHandle::join));
        }
        // The threads of the connections end as soon as they use them again. They are not waited
        // for, because one of them may wait for the node behind a proxy, which may not answer.
        for stream in std::mem::take(&mut *self.shared.streams()).into_values() {
            drop(stream.shutdown(Shutdown::Both));
        }
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    let mut refused = VecDeque::new();
    for (number, stream) in (0..).zip(listener.incoming()) {
        if shared.is_stopping() {
            return;
        }
        let Ok(stream) = stream else {
            // For example, no file descriptor is free: they become free when clients disconnect.
            thread::sleep(TICK);
            continue;
        };
        let mut streams = shared.streams();
        if streams.len() >= MAX_CONNECTIONS {
            drop(streams);
            refuse(stream, &mut refused);
            continue;
        }
        let stream = Arc::new(stream);
        streams.insert(number, Arc::clone(&stream));
        drop(streams);
        let place = Place { number, shared: Arc::clone(shared) };
        let serve = move || {
            let place = place;
            // A client that disconnects is not an error of the server.
            drop(serve(&stream, &place.shared));
        };
        // If no thread can be started, the place is free again.
        drop(thread::Builder::new().name("json-rpc".into()).spawn(serve));
    }
}

/// The place of an open connection, which is free again when this value is dropped.
struct Place {
    number: u64,
    shared: Arc<Shared>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.shared.streams().remove(&self.number);
    }
}

/// Tells a client that there are too many others, without waiting for it.
fn refuse(stream: TcpStream, refused: &mut VecDeque<TcpStream>) {
    drop(stream.set_write_timeout(Some(TICK)));
    drop(write_response(&mut &stream, 503, "too many connections", "close"));
    drop(stream.shutdown(Shutdown::Write));
    if refused.len() >= MAX_REFUSED {
        refused.pop_front();
    }
    refused.push_back(stream);
}

/// Sends nothing until the time is over, the client closes the connection, or the server stops.
/// What the client sends meanwhile is dropped.
fn stay_silent(reader: &mut BufReader<&TcpStream>, time: Duration, shared: &Shared) {
    let start = Instant::now();
    let mut dropped = [0; 4_096];
    while !shared.is_stopping() && start.elapsed() < time {
        match reader.read(&mut dropped) {
            Ok(0) => return,
            Err(error) if !is_timeout(&error) => return,
            _ => {}
        }
    }
}

/// A request, or the reason why it is refused.
enum Request {
    Body(Vec<u8>),
    Refused(u16),
}

/// Answers requests on a connection until it closes.
fn serve(stream: &TcpStream, shared: &Shared) -> io::Result<()> {
    stream.set_read_timeout(Some(TICK))?;
    stream.set_write_timeout(Some(WRITE_TIMEOUT))?;
    stream.set_nodelay(true)?;
    let (mut writer, mut reader) = (stream, BufReader::new(stream));
    loop {
        let body = match read_request(&mut reader, &mut writer, shared)? {
            Some(Request::Body(body)) => body,
            // The rest of a refused request is unknown, so the connection cannot be used further.
            Some(Request::Refused(status)) => {
                return write_response(&mut writer, status, "", "close");
            }
            None => return Ok(()),
        };
        match (shared.respond)(&body) {
            Response::Json(text) if text.is_empty() => {
                write_response(&mut writer, 204, "", "keep-alive")?;
            }
            Response::Json(text) => write_response(&mut writer, 200, &text, "keep-alive")?,
            Response::Status(status) => {
                write_response(&mut writer, status, "no answer", "keep-alive")?;
            }
            Response::Bytes(bytes) => return writer.write_all(&bytes),
            Response::Closed => return Ok(()),
            Response::Silent(time) => {
                stay_silent(&mut reader, time, shared);
                return Ok(());
            }
        }
    }
}

fn write_response(to: &mut &TcpStream, status: u16, text: &str, then: &str) -> io::Result<()> {
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
    reader: &mut BufReader<&TcpStream>,
    writer: &mut &TcpStream,
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
fn read_line(reader: &mut BufReader<&TcpStream>, shared: &Shared) -> io::Result<Option<String>> {
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
    reader: &mut BufReader<&TcpStream>,
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
