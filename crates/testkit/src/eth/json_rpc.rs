//! A JSON-RPC server over HTTP, for simulated nodes.

use std::cell::Cell;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

/// Response of a simulated node to a call.
pub enum Sent {
    Result(Value),
    /// A result as JSON text, which costs the node nothing to write.
    Text(Arc<str>),
    /// An error of the node: code and message.
    Error(i64, &'static str),
    /// An error of the node, whole.
    ErrorObject(Value),
    /// Only an HTTP status, in place of the whole response.
    Status(u16),
    /// HTTP status 429 with `Retry-After`, in seconds, in place of the whole response.
    Limited(u64),
}

/// HTTP status and further headers of a response without calls.
struct Refused(u16, String);

/// Error for a method that the node does not have.
const NO_METHOD: Sent = Sent::Error(-32601, "the method does not exist/is not available");

/// Serves calls on a free port of this machine. `result` gets a method and its parameters, and
/// returns `None` for a method that the node does not have. The threads end with the process.
pub fn serve(result: impl Fn(&str, &Value) -> Option<Value> + Send + Sync + 'static) -> SocketAddr {
    serve_any(move |method, params| result(method, params).map_or(NO_METHOD, Sent::Result))
}

/// Serves calls like [`serve`]; the callback can also return errors.
pub fn serve_any(sent: impl Fn(&str, &Value) -> Sent + Send + Sync + 'static) -> SocketAddr {
    serve_counted(Arc::default(), sent)
}

thread_local! {
    static IN_BATCH: Cell<bool> = const { Cell::new(false) };
}

/// Returns `true` in the callback of a server if the call is part of a batch.
pub fn is_in_batch() -> bool {
    IN_BATCH.get()
}

/// Serves calls like [`serve_any`], and counts the requests. A batch of calls is one request.
pub fn serve_counted(
    requests: Arc<AtomicU64>,
    sent: impl Fn(&str, &Value) -> Sent + Send + Sync + 'static,
) -> SocketAddr {
    serve_from(Duration::ZERO, requests, sent)
}

/// Serves calls like [`serve_any`], from this far away: each request is answered after this time.
pub fn serve_after(
    latency: Duration,
    sent: impl Fn(&str, &Value) -> Sent + Send + Sync + 'static,
) -> SocketAddr {
    serve_from(latency, Arc::default(), sent)
}

fn serve_from(
    latency: Duration,
    requests: Arc<AtomicU64>,
    sent: impl Fn(&str, &Value) -> Sent + Send + Sync + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    let sent = Arc::new(sent);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let (sent, requests) = (Arc::clone(&sent), Arc::clone(&requests));
            // A client that disconnects is not an error of the node.
            std::thread::spawn(move || drop(answer(stream, latency, &requests, &*sent)));
        }
    });
    address
}

/// Answers requests until the connection closes.
fn answer(
    stream: TcpStream,
    latency: Duration,
    requests: &AtomicU64,
    sent: &impl Fn(&str, &Value) -> Sent,
) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut writer = stream.try_clone()?;
    let mut reader = BufReader::new(stream);
    loop {
        let mut length = 0;
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line)? == 0 {
                return Ok(());
            }
            let line = line.trim().to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(value) = line.strip_prefix("content-length:") {
                length = value.trim().parse().expect("a length");
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        requests.fetch_add(1, Ordering::SeqCst);
        let request: Value = serde_json::from_slice(&body).expect("JSON");
        IN_BATCH.set(request.is_array());
        let reply = match &request {
            Value::Array(calls) => {
                let replies: Result<Vec<_>, _> =
                    calls.iter().map(|call| reply(call, sent)).collect();
                replies.map(|replies| format!("[{}]", replies.join(",")))
            }
            call => reply(call, sent),
        };
        let (status, headers, body) = match reply {
            Ok(reply) => (200, String::new(), reply),
            Err(Refused(status, headers)) => (status, headers, String::new()),
        };
        if !latency.is_zero() {
            std::thread::sleep(latency);
        }
        let head = format!("HTTP/1.1 {status} x\r\nContent-Type: application/json{headers}");
        write!(writer, "{head}\r\nContent-Length: {}\r\n\r\n{body}", body.len())?;
    }
}

/// Returns the reply to a call as JSON text, or the refusal that replaces all replies.
fn reply(call: &Value, sent: &impl Fn(&str, &Value) -> Sent) -> Result<String, Refused> {
    let method = call["method"].as_str().expect("a method");
    let (member, value) = match sent(method, &call["params"]) {
        Sent::Result(result) => ("result", result.to_string().into()),
        Sent::Text(result) => ("result", result),
        Sent::Error(code, message) => {
            ("error", json!({ "code": code, "message": message }).to_string().into())
        }
        Sent::ErrorObject(error) => ("error", error.to_string().into()),
        Sent::Status(status) => return Err(Refused(status, String::new())),
        Sent::Limited(seconds) => {
            return Err(Refused(429, format!("\r\nRetry-After: {seconds}")));
        }
    };
    Ok(format!(r#"{{"jsonrpc":"2.0","id":{},"{member}":{value}}}"#, call["id"]))
}
