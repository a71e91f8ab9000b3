//! Sends HTTP requests, with limits on the time and size of the answers, and with retries.

use std::io::Read;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ureq::http::{HeaderMap, Response};
use ureq::{Agent, Error};

use super::bounded::{BoundedReader, Bounds, Large, Permit};
use super::endpoint::Endpoint;
use super::error::RpcError;
use super::limit::Limit;
use super::pacing::{Retry, Spending};
use super::{Note, Options};
use crate::stop::lock;

/// Default for the maximum size of an answer in bytes, after decompression.
const MAX_BODY: u64 = 256 << 20;
/// Maximum number of bytes that are read from the body of an HTTP error.
const MAX_ERROR_BODY: u64 = 64 << 10;
/// Maximum size of the HTTP headers of an answer in bytes.
const MAX_HEADERS: usize = 64 << 10;
/// Maximum number of idle connections that are kept open for later requests.
const MAX_IDLE: usize = 64;
/// Maximum timeout of opening a connection.
const LONGEST_CONNECT: Duration = Duration::from_secs(15);

/// Minimum length of a wait that is reported in a note.
/// An estimate: a user needs no explanation of a shorter wait.
const LONG: Duration = Duration::from_secs(5);

/// Sends requests to one node. Clones share the node's connections and budget.
#[derive(Debug, Clone)]
pub(crate) struct Transport {
    agent: Agent,
    endpoint: Endpoint,
    pub(super) options: Options,
    pub(super) max_body: u64,
    spending: Option<Arc<Mutex<Spending>>>,
    /// The instant from which the budget counts time.
    started: Instant,
    pub(super) sent: Arc<AtomicU64>,
    rest: Arc<Rest>,
    /// Permits for long answers; `None` for no limit.
    pub(super) large: Option<Arc<Large>>,
}

/// The body of an answer, with its HTTP status and the wait that the node asks for.
#[derive(Debug)]
pub(super) struct Body {
    pub(super) text: String,
    pub(super) status: u16,
    pub(super) retry_after: Option<Duration>,
    /// Permit that is held until a long text is parsed.
    _permit: Option<Permit>,
}

/// Maximum lengths in bytes, after decompression, of an answer that is read while it arrives.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lengths {
    pub(super) answer: u64,
    /// Maximum length of a string in the answer, which is held in memory while it is read.
    pub(super) string: u64,
}

/// An answer that was read while it arrived, or the text of an HTTP error.
#[derive(Debug)]
pub(super) enum Streamed<T> {
    /// The value that was read, and the HTTP status without a text.
    Read(T, Body),
    Failed(Body),
}

/// An answer as it was received, after decompression.
#[derive(Debug)]
pub(crate) struct Bytes {
    pub(crate) body: Vec<u8>,
    status: u16,
    headers: HeaderMap,
    permit: Option<Permit>,
}

#[cfg(feature = "beacon")]
impl Bytes {
    /// Returns an HTTP header of the answer, if it is printable ASCII.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

const fn is_success(status: u16) -> bool {
    matches!(status, 200..=299)
}

/// Returns the time since the Unix epoch by the system's clock.
pub(crate) fn unix_time() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

impl Transport {
    pub(crate) fn new(endpoint: Endpoint, options: Options) -> Self {
        let timeout = options.timeout;
        let mut config = Agent::config_builder()
            .http_status_as_error(false)
            // Redirects are not followed: a redirect would send the key in the URL or in a header
            // to another host.
            .max_redirects(0)
            .timeout_global(Some(timeout))
            .timeout_connect(Some(timeout.min(LONGEST_CONNECT)))
            .max_response_header_size(MAX_HEADERS)
            .max_idle_connections(MAX_IDLE)
            .max_idle_connections_per_host(MAX_IDLE)
            .user_agent(concat!("chainsieve/", env!("CARGO_PKG_VERSION")));
        if endpoint.is_of_this_machine() {
            // A proxy is not used for a node on this machine: the proxy could not reach the node,
            // and would see the key.
            config = config.proxy(None);
        }
        let agent = Agent::new_with_config(config.build());
        if agent.config().proxy().is_some_and(|proxy| endpoint.is_open_to(proxy)) {
            options.note(&endpoint, &Note::OpenToProxy);
        }
        let spending = options.budget.clone().map(|it| Arc::new(Mutex::new(Spending::new(it))));
        let (sent, rest) = (Arc::default(), Arc::default());
        let (max_body, large, started) = (MAX_BODY, None, Instant::now());
        Self { agent, endpoint, options, max_body, spending, started, sent, rest, large }
    }

    pub(crate) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Returns the reason why the last request got no answer, if this request was recent.
    pub(super) fn rests(&self) -> Option<RpcError> {
        self.rest.why(Instant::now())
    }

    /// Makes the node rest although it answered: the answer shows that the node cannot be used.
    pub(super) fn rest(&self, why: &RpcError) {
        self.rest.failed(Instant::now(), why);
    }

    /// Posts `json` once, as soon as the budget allows. `methods` are the methods of the calls in
    /// `json`. They determine the cost of the request.
    pub(super) fn post(&self, methods: &[&str], json: &str) -> Result<Body, RpcError> {
        let send = || self.send_post(json);
        let Bytes { body, status, headers, permit } =
            self.exchange(methods, self.max_body, send)?;
        let retry_after = retry_after(&headers);
        let text = match String::from_utf8(body) {
            Ok(text) => text,
            // The text of an HTTP error is only used for messages, so it may be invalid UTF-8.
            Err(_) if is_success(status) => {
                return Err(RpcError::Malformed("the answer is not UTF-8".into()));
            }
            Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
        };
        Ok(Body { text, status, retry_after, _permit: permit })
    }

    fn send_post(&self, json: &str) -> Result<Response<ureq::Body>, Error> {
        let mut request =
            self.agent.post(self.endpoint.url()).header("Content-Type", "application/json");
        for (name, value) in self.endpoint.headers() {
            request = request.header(name, value);
        }
        request.send(json)
    }

    /// Posts `json` once, as soon as the budget allows, and passes the answer to `read` while it arrives,
    /// within these lengths.
    pub(super) fn post_and_stream<T>(
        &self,
        method: &str,
        json: &str,
        lengths: Lengths,
        read: impl FnOnce(&mut dyn Read) -> Result<T, serde_json::Error>,
    ) -> Result<Streamed<T>, RpcError> {
        let response = self.request(&[method], || self.send_post(json))?;
        let (head, mut body) = response.into_parts();
        let (status, retry_after) = (head.status.as_u16(), retry_after(&head.headers));
        if !is_success(status) {
            let mut bytes = Vec::new();
            let _ = body.as_reader().take(MAX_ERROR_BODY).read_to_end(&mut bytes);
            let text = String::from_utf8_lossy(&bytes).into_owned();
            return Ok(Streamed::Failed(Body { text, status, retry_after, _permit: None }));
        }
        let Lengths { answer: limit, string } = lengths;
        let bounds = Bounds { string: Some(string), ..self.bounds(limit) };
        let mut reader = BoundedReader::new(body.as_reader(), bounds);
        let answer = read(&mut reader);
        if reader.is_too_large {
            return Err(RpcError::TooLarge { limit });
        }
        if let (Err(_), Some(kind)) = (&answer, reader.failed) {
            let is_stopped = self.options.stop.is_set();
            let failed = || self.failed(&Error::from(std::io::Error::from(kind)));
            return Err(if is_stopped { RpcError::Stopped } else { failed() });
        }
        let answer = answer.map_err(|error| {
            if error.is_io() {
                self.failed(&Error::from(std::io::Error::from(error)))
            } else {
                RpcError::Malformed(error.to_string())
            }
        })?;
        let body = Body { text: String::new(), status, retry_after, _permit: None };
        Ok(Streamed::Read(answer, body))
    }

    fn bounds(&self, bytes: u64) -> Bounds {
        let Options { timeout, stop, .. } = &self.options;
        let large = self.large.clone();
        Bounds { bytes, string: None, large, timeout: *timeout, stop: stop.clone() }
    }

    /// Gets a path of the server once, as soon as the budget allows. `accept` lists the media types
    /// that the caller can read. The answer has at most `limit` bytes. An HTTP status other than
    /// success is an error.
    #[cfg(feature = "beacon")]
    pub(crate) fn get(&self, path: &str, limit: u64, accept: &str) -> Result<Bytes, RpcError> {
        let send = || {
            let mut request = self.agent.get(self.endpoint.url_of(path)).header("Accept", accept);
            for (name, value) in self.endpoint.headers() {
                request = request.header(name, value);
            }
            request.call()
        };
        let answer = self.exchange(&[path], limit, send)?;
        if is_success(answer.status) {
            return Ok(answer);
        }
        Err(of_status(answer.status, retry_after(&answer.headers)))
    }

    /// Sends a request as soon as the budget allows.
    fn request(
        &self,
        methods: &[&str],
        send: impl FnOnce() -> Result<Response<ureq::Body>, Error>,
    ) -> Result<Response<ureq::Body>, RpcError> {
        if let Some(spending) = &self.spending {
            let mut spending = lock(spending);
            let now = self.started.elapsed();
            let waits = methods.iter().map(|method| spending.spend(method, 1, now));
            let wait = waits.max().unwrap_or_default();
            drop(spending);
            self.options.stop.wait_timeout(wait);
        }
        if self.options.stop.is_set() {
            return Err(RpcError::Stopped);
        }
        self.sent.fetch_add(methods.len() as u64, Ordering::Relaxed);
        send().map_err(|error| self.failed(&error))
    }

    /// Sends a request as soon as the budget allows, and reads the answer.
    fn exchange(
        &self,
        methods: &[&str],
        limit: u64,
        send: impl FnOnce() -> Result<Response<ureq::Body>, Error>,
    ) -> Result<Bytes, RpcError> {
        let (head, mut body) = self.request(methods, send)?.into_parts();
        let (status, headers) = (head.status.as_u16(), head.headers);
        let mut bytes = Vec::new();
        if !is_success(status) {
            let _ = body.as_reader().take(MAX_ERROR_BODY + 1).read_to_end(&mut bytes);
            return Ok(Bytes { body: bytes, status, headers, permit: None });
        }
        // The limit applies after decompression, because a small body can expand to any size.
        let mut reader = BoundedReader::new(body.as_reader(), self.bounds(limit));
        let read = reader.read_to_end(&mut bytes);
        if reader.is_too_large {
            return Err(RpcError::TooLarge { limit });
        }
        read.map_err(|error| self.failed(&Error::from(error)))?;
        Ok(Bytes { body: bytes, status, headers, permit: reader.into_permit() })
    }

    /// Runs `once` until it succeeds or fails permanently. After a transient error, `once` is
    /// repeated with growing back-off.
    pub(crate) fn retried<T>(
        &self,
        once: impl FnMut() -> Result<T, RpcError>,
    ) -> Result<T, RpcError> {
        self.retried_while(RpcError::is_transient, once)
    }

    /// The same as [`retried`](Self::retried), but the callback `may_pass` decides which errors are
    /// transient.
    pub(super) fn retried_while<T>(
        &self,
        may_pass: impl Fn(&RpcError) -> bool,
        mut once: impl FnMut() -> Result<T, RpcError>,
    ) -> Result<T, RpcError> {
        let mut retry = Retry::new(self.options.retries);
        loop {
            let error = match once() {
                Err(error) if may_pass(&error) => error,
                Err(RpcError::Stopped) => return Err(RpcError::Stopped),
                Err(error) if error.is_transient() => {
                    self.rest.failed(Instant::now(), &error);
                    return Err(error);
                }
                result => {
                    self.rest.answered();
                    return result;
                }
            };
            let random = getrandom::u32().unwrap_or(u32::MAX);
            let Some(wait) = retry.failed(error.retry_after(), random) else {
                // A node that answers that it lacks a block is awake.
                if error.is_transient() {
                    self.rest.failed(Instant::now(), &error);
                } else {
                    self.rest.answered();
                }
                if retry.tries() == 1 {
                    return Err(error);
                }
                let last = Box::new(error);
                return Err(RpcError::GaveUp { tries: retry.tries(), last });
            };
            self.wait(wait, &error)?;
        }
    }

    /// Waits before the next attempt.
    fn wait(&self, wait: Duration, error: &RpcError) -> Result<(), RpcError> {
        // A user has waited for a whole timeout already.
        let has_waited = matches!(error.origin(), RpcError::Timeout { .. });
        if has_waited || wait >= LONG {
            self.note(&Note::Waits { error: error.clone(), wait });
        }
        if self.options.stop.wait_timeout(wait) { Err(RpcError::Stopped) } else { Ok(()) }
    }

    pub(crate) fn note(&self, note: &Note) {
        self.options.note(&self.endpoint, note);
    }

    /// Converts an error of the HTTP client. The text cannot contain the URL.
    fn failed(&self, error: &Error) -> RpcError {
        let words = match error {
            Error::Timeout(_) => return RpcError::Timeout { limit: self.options.timeout },
            Error::HostNotFound => "the host's name is not known".to_owned(),
            Error::ConnectionFailed => "no connection".to_owned(),
            Error::Io(error) => match error.kind() {
                std::io::ErrorKind::TimedOut | std::io::ErrorKind::WouldBlock => {
                    return RpcError::Timeout { limit: self.options.timeout };
                }
                std::io::ErrorKind::UnexpectedEof => "the connection ended too early".to_owned(),
                _ => format!("the connection failed: {}", self.endpoint.scrub(&error.to_string())),
            },
            Error::Rustls(error) => format!("TLS: {}", self.endpoint.scrub(&error.to_string())),
            Error::Tls(words) => format!("TLS: {words}"),
            Error::Protocol(error) => {
                format!("not HTTP: {}", self.endpoint.scrub(&error.to_string()))
            }
            Error::LargeResponseHeader(..) => "the answer's HTTP headers are too large".to_owned(),
            Error::Decompress(..) => {
                return RpcError::Malformed("the answer's compression is broken".into());
            }
            Error::ConnectProxyFailed(_) | Error::InvalidProxyUrl => {
                "the proxy of the environment did not connect".to_owned()
            }
            // The texts of all other errors may quote the URL.
            _ => "the request failed".to_owned(),
        };
        RpcError::Transport(words)
    }
}

/// Reads the header `Retry-After` if it is a number of seconds. A date is ignored.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let seconds = headers.get("retry-after")?.to_str().ok()?.trim().parse().ok()?;
    Some(Duration::from_secs(seconds))
}

/// Returns the error for an HTTP status without a JSON-RPC answer in the body.
pub(super) fn of_status(status: u16, retry_after: Option<Duration>) -> RpcError {
    let limit = match status {
        429 => Limit::RateLimited { retry_after },
        // An overloaded server that asks for a wait is treated like a rate limit.
        503 if retry_after.is_some() => Limit::RateLimited { retry_after },
        413 => Limit::ResponseBytes,
        status => return RpcError::Http { status },
    };
    RpcError::LimitExceeded { limit, message: format!("HTTP status {status}") }
}

/// Time for which a node rests after its first failure. The time doubles with each further failure.
const SHORTEST: Duration = Duration::from_secs(30);
const LONGEST: Duration = Duration::from_secs(600);

/// Records if a node fails to answer, so that other nodes can be asked before it.
#[derive(Debug, Default)]
pub(super) struct Rest(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    until: Option<Instant>,
    length: Duration,
    /// The last failure.
    why: Option<RpcError>,
}

impl Rest {
    /// Records an answer of any kind: the node no longer rests.
    pub(super) fn answered(&self) {
        *lock(&self.0) = State::default();
    }

    /// Records that a request got no answer, although it was repeated.
    pub(super) fn failed(&self, now: Instant, why: &RpcError) {
        let mut state = lock(&self.0);
        state.why = Some(why.origin().clone());
        // The pause that the node asks for.
        if let Some(asked) = why.retry_after() {
            state.until = state.until.max(Some(now + asked.min(LONGEST)));
            return;
        }
        // Requests that were sent together fail together, which counts once.
        if state.until.is_none_or(|until| until <= now) {
            state.length = (state.length * 2).clamp(SHORTEST, LONGEST);
            state.until = Some(now + state.length);
        }
    }

    /// Returns the reason why the node rests; `None` if it does not rest.
    pub(super) fn why(&self, now: Instant) -> Option<RpcError> {
        let state = lock(&self.0);
        state.why.clone().filter(|_| state.until.is_some_and(|until| now < until))
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    /// Posts a request to a server that sends this answer, and returns the result.
    fn answered(head: &'static str, body: Vec<u8>, max_body: u64) -> Result<Body, RpcError> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/key-key-key", listener.local_addr().unwrap());
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            assert!(stream.read(&mut [0; 4096]).unwrap() > 0);
            let head = format!("HTTP/1.1 {head}Content-Length: {}\r\n\r\n", body.len());
            // Errors are ignored: the client may close the connection before the end.
            drop(stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body)));
        });
        let endpoint = Endpoint::new(&url).unwrap();
        let options = Options { timeout: Duration::from_secs(2 * 60), ..Options::default() };
        let mut transport = Transport::new(endpoint, options);
        transport.max_body = max_body;
        let body = transport.post(&["eth_chainId"], "{}");
        server.join().unwrap();
        body
    }

    /// Returns zeros compressed by gzip: a literal zero (deflate, RFC 1951), and then copies of 258
    /// bytes from a distance of one byte.
    fn gzip_of_zeros(copies: usize) -> Vec<u8> {
        let mut bits: Vec<bool> = vec![true, true, false]; // the last block, fixed codes
        let code = |bits: &mut Vec<bool>, code: u32, length: u32| {
            bits.extend((0..length).rev().map(|bit| code >> bit & 1 == 1));
        };
        code(&mut bits, 0b0011_0000, 8); // the literal 0
        for _ in 0..copies {
            code(&mut bits, 0b1100_0101, 8); // a length of 258
            code(&mut bits, 0, 5); // a distance of 1
        }
        code(&mut bits, 0, 7); // the end
        let mut file = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
        file.extend(
            bits.chunks(8)
                .map(|byte| byte.iter().rev().fold(0, |byte, &bit| byte << 1 | u8::from(bit))),
        );
        file.extend([0; 8]); // a wrong checksum, which is never reached
        file
    }

    #[test]
    fn no_more_is_read_than_the_limit_whatever_it_is_compressed_to() {
        let whole = answered("200 x\r\n", b" {} ".to_vec(), 4).unwrap();
        assert_eq!((whole.text.as_str(), whole.status), (" {} ", 200));
        let error = answered("200 x\r\n", b" {}  ".to_vec(), 4).err();
        assert_eq!(error, Some(RpcError::TooLarge { limit: 4 }));
        let bomb = gzip_of_zeros(100_000);
        assert!(bomb.len() < 200_000);
        let error = answered("200 x\r\nContent-Encoding: gzip\r\n", bomb, 1 << 20).err();
        assert_eq!(error, Some(RpcError::TooLarge { limit: 1 << 20 }));
        // The body of an HTTP error is cut off at a smaller limit, which is not reported as
        // [`RpcError::TooLarge`].
        let long = answered("500 x\r\n", vec![b'x'; 1 << 20], 4).unwrap();
        assert_eq!((long.text.len() as u64, long.status), (MAX_ERROR_BODY + 1, 500));
    }

    #[test]
    fn waits_end_when_it_is_stopped() {
        let endpoint = Endpoint::new("http://127.0.0.1:1/").unwrap();
        let options = Options::default();
        options.stop.set();
        let transport = Transport::new(endpoint, options);
        let wait = transport.wait(Duration::from_secs(10 * 60), &RpcError::Http { status: 500 });
        assert_eq!(wait, Err(RpcError::Stopped));
        assert_eq!(transport.post(&["eth_chainId"], "{}").err(), Some(RpcError::Stopped));
    }

    const SILENT: RpcError = RpcError::Timeout { limit: Duration::ZERO };

    #[test]
    fn a_rest_doubles_until_an_answer() {
        let (rest, mut now) = (Rest::default(), Instant::now());
        let is_over = |now| rest.why(now).is_none();
        assert!(is_over(now));
        let mut length = SHORTEST;
        for _ in 0..8 {
            rest.failed(now, &SILENT);
            rest.failed(now, &SILENT);
            assert_eq!(rest.why(now + length / 2), Some(SILENT));
            now += length;
            assert!(is_over(now));
            length = (length * 2).min(LONGEST);
        }
        assert_eq!(length, LONGEST);
        rest.failed(now, &SILENT);
        rest.answered();
        assert!(is_over(now));
        rest.failed(now, &SILENT);
        assert!(is_over(now + SHORTEST));
        rest.answered();
        let asked = SHORTEST / 10;
        let limit = Limit::RateLimited { retry_after: Some(asked) };
        rest.failed(now, &RpcError::LimitExceeded { limit, message: String::new() });
        assert!(!is_over(now + asked / 2) && is_over(now + asked));
    }
}
