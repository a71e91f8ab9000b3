//! A small HTTP server that simulates a provider: honest, slow, broken or lying.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::*;

/// A timeout longer than any test runs.
const PATIENCE: Duration = Duration::from_mins(2);

/// One HTTP request.
pub(super) struct Post {
    /// The request line and the headers.
    pub(super) head: String,
    pub(super) body: Value,
}

/// Response to a request.
pub(super) enum Sent {
    Json(Value),
    /// A status, headers (each with its line break), and a body.
    Status(u16, &'static str, String),
    /// The raw bytes of a response with its headers; the connection closes afterwards.
    Bytes(Vec<u8>),
    /// No response; the connection stays open until the client closes it.
    Nothing,
}

/// A server on loopback, which stops at the end of its test.
pub(crate) struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    serve: Box<dyn Fn(&Post) -> Sent + Send + Sync>,
    posts: Mutex<Vec<Value>>,
    ended: AtomicBool,
}

impl Server {
    pub(super) fn start(serve: impl Fn(&Post) -> Sent + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        let shared = Arc::new(Shared {
            serve: Box::new(serve),
            posts: Mutex::new(Vec::new()),
            ended: AtomicBool::new(false),
        });
        let of_thread = Arc::clone(&shared);
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if of_thread.ended.load(Ordering::SeqCst) {
                    return;
                }
                let shared = Arc::clone(&of_thread);
                // A client that disconnects is not an error of the server.
                std::thread::spawn(move || drop(stream.map(|stream| shared.answer(stream))));
            }
        });
        Self { address, shared, thread: Some(thread) }
    }

    /// Returns a URL with secrets in every part that can contain one.
    pub(crate) fn url(&self) -> String {
        format!("http://user:{SECRET}1@{}/v3/{SECRET}2?apikey={SECRET}3", self.address)
    }

    /// Returns the part of the URL that may be printed.
    pub(super) fn host(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the bodies of all requests so far.
    pub(super) fn posts(&self) -> Vec<Value> {
        self.shared.posts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns all calls so far, with batches split into calls.
    pub(super) fn calls(&self) -> Vec<Value> {
        let calls = |post| match post {
            Value::Array(calls) => calls,
            call => vec![call],
        };
        self.posts().into_iter().flat_map(calls).collect()
    }

    /// Returns the parameters of all calls of a method.
    pub(super) fn params(&self, method: &str) -> Vec<Value> {
        let calls = self.calls().into_iter().filter(|call| call["method"] == method);
        calls.map(|call| call["params"].clone()).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::SeqCst);
        drop(TcpStream::connect(self.address));
        drop(self.thread.take().map(JoinHandle::join));
    }
}

impl Shared {
    fn answer(&self, mut stream: TcpStream) -> std::io::Result<()> {
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut bytes = Vec::new();
        let head = loop {
            let mut part = [0; 4096];
            let read = stream.read(&mut part)?;
            if read == 0 {
                return Ok(());
            }
            bytes.extend(&part[..read]);
            if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
                break end + 4;
            }
        };
        let body = bytes.split_off(head);
        let head = String::from_utf8_lossy(&bytes).into_owned();
        let length = head.to_ascii_lowercase().lines().find_map(|line| {
            line.strip_prefix("content-length: ").and_then(|length| length.trim().parse().ok())
        });
        let mut body = body;
        let mut left = vec![0; length.unwrap_or(0_usize).saturating_sub(body.len())];
        stream.read_exact(&mut left)?;
        body.extend(left);
        let body: Value = serde_json::from_slice(&body).expect("requests are JSON");
        self.posts.lock().unwrap_or_else(PoisonError::into_inner).push(body.clone());
        match (self.serve)(&Post { head, body }) {
            Sent::Json(json) => stream.write_all(&http(200, "", json.to_string().as_bytes())),
            Sent::Status(status, headers, body) => {
                stream.write_all(&http(status, headers, body.as_bytes()))
            }
            Sent::Bytes(bytes) => stream.write_all(&bytes),
            Sent::Nothing => stream.read(&mut [0]).map(drop),
        }
    }
}

/// Returns an HTTP response.
pub(super) fn http(status: u16, headers: &str, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 {status} x\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
         Connection: close\r\n{headers}\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

/// The answer to one call.
pub(crate) type Answer = Result<Value, Value>;

/// Returns an error object of a node.
pub(crate) fn error(code: i64, message: &str) -> Value {
    json!({ "code": code, "message": message })
}

/// Returns the replies to a request, call by call.
pub(super) fn replies(body: &Value, answer: impl Fn(&str, &Value) -> Answer) -> Value {
    let reply = |call: &Value| {
        let mut reply = json!({ "jsonrpc": "2.0", "id": call["id"] });
        match answer(text(&call["method"]), &call["params"]) {
            Ok(result) => reply["result"] = result,
            Err(error) => reply["error"] = error,
        }
        reply
    };
    match body {
        Value::Array(calls) => calls.iter().map(reply).collect(),
        call => reply(call),
    }
}
