//! An HTTP proxy between the command and a node, which may alter the node's answers.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde_json::{Value, json};

use crate::eth::http_rpc::HttpRpc;

/// The action of the proxy on a request. Each call of the request has a fate. The request gets the
/// first fate that is not [`Fate::Answered`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Fate {
    /// The answer is sent, with the changes that the callback made.
    Answered,
    /// An HTTP status is sent without an answer.
    Status(u16),
    /// The connection is closed without an answer.
    Closed,
}

/// Callback that gets each call's method and parameters, and may change the whole answer:
/// `{"result": …}` or `{"error": …}`.
type Alter = dyn Fn(&str, &Value, &mut Value) -> Fate + Send + Sync;

/// Time that a thread waits for bytes before it checks if it should stop.
const TICK: Duration = Duration::from_millis(50);
/// Largest body of a request, in bytes.
const MAX_REQUEST: usize = 16 << 20;

/// The running proxy; dropping the proxy ends its threads.
#[derive(Debug)]
pub struct Proxy {
    port: u16,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

struct Shared {
    node: HttpRpc,
    alter: Box<Alter>,
    stop: AtomicBool,
    calls: Mutex<BTreeMap<String, usize>>,
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("node", &self.node).finish_non_exhaustive()
    }
}

impl Proxy {
    /// Starts a proxy in front of a node.
    pub fn start(
        node: &HttpRpc,
        alter: impl Fn(&str, &Value, &mut Value) -> Fate + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let port = listener.local_addr().expect("bound").port();
        let shared = Arc::new(Shared {
            node: node.clone(),
            alter: Box::new(alter),
            stop: AtomicBool::new(false),
            calls: Mutex::default(),
            threads: Mutex::default(),
        });
        let for_acceptor = Arc::clone(&shared);
        let acceptor = thread::spawn(move || accept(&listener, &for_acceptor));
        Self { port, shared, acceptor: Some(acceptor) }
    }

    /// Returns the address, for the arguments of the command.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Returns the number of calls of each method.
    pub fn calls(&self) -> BTreeMap<String, usize> {
        self.shared.calls.lock().expect("no panic holds it").clone()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        // Connect once, so that the acceptor wakes up and sees the stop flag.
        drop(TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)));
        drop(self.acceptor.take().map(JoinHandle::join));
        let threads = self.shared.threads.lock().map(|mut threads| std::mem::take(&mut *threads));
        for thread in threads.into_iter().flatten() {
            drop(thread.join());
        }
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for stream in listener.incoming() {
        if shared.stop.load(Ordering::Relaxed) {
            return;
        }
        let Ok(stream) = stream else { continue };
        let for_thread = Arc::clone(shared);
        let thread = thread::spawn(move || drop(serve(stream, &for_thread)));
        let mut threads = shared.threads.lock().expect("no panic holds it");
        threads.retain(|thread| !thread.is_finished());
        threads.push(thread);
    }
}

/// Answers requests on a connection until it closes.
fn serve(stream: TcpStream, shared: &Shared) -> std::io::Result<()> {
    stream.set_read_timeout(Some(TICK))?;
    stream.set_nodelay(true)?;
    let mut writer = stream.try_clone()?;
    let mut reader = BufReader::new(stream);
    while let Some(body) = read_request(&mut reader, shared)? {
        let (fate, answer) = answer(&body, shared);
        let status = match fate {
            Fate::Answered => 200,
            Fate::Status(status) => status,
            Fate::Closed => return Ok(()),
        };
        let text = if status == 200 { answer } else { String::from("no answer") };
        let head = format!(
            "HTTP/1.1 {status} said\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            text.len()
        );
        writer.write_all(head.as_bytes())?;
        writer.write_all(text.as_bytes())?;
    }
    Ok(())
}

/// Reads the body of the next request. Returns `None` if the connection closes or the proxy stops.
fn read_request(
    reader: &mut BufReader<TcpStream>,
    shared: &Shared,
) -> std::io::Result<Option<Vec<u8>>> {
    let mut length = 0;
    let mut line = Vec::new();
    loop {
        match reader.read_until(b'\n', &mut line) {
            Ok(0) => return Ok(None),
            Ok(_) if line.ends_with(b"\n") => {}
            Ok(_) => continue,
            Err(error) if is_timeout(&error) => {
                if shared.stop.load(Ordering::Relaxed) {
                    return Ok(None);
                }
                continue;
            }
            Err(error) => return Err(error),
        }
        let text = String::from_utf8_lossy(&line).trim().to_ascii_lowercase();
        if let Some(value) = text.strip_prefix("content-length:") {
            length = value.trim().parse().expect("a length");
        }
        assert!(!text.starts_with("transfer-encoding:"), "a request of known length");
        if text.is_empty() {
            break;
        }
        line.clear();
    }
    assert!(length <= MAX_REQUEST, "a request of {length} bytes");
    let mut body = vec![0; length];
    let mut filled = 0;
    while filled < length {
        match reader.read(&mut body[filled..]) {
            Ok(0) => return Ok(None),
            Ok(read) => filled += read,
            Err(error) if is_timeout(&error) && !shared.stop.load(Ordering::Relaxed) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(Some(body))
}

fn is_timeout(error: &std::io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

/// Sends the request to the node, and alters the answers.
fn answer(body: &[u8], shared: &Shared) -> (Fate, String) {
    let request: Value = serde_json::from_slice(body).expect("the command sends JSON");
    let Ok((_, text)) = shared.node.post(&request.to_string()) else {
        return (Fate::Status(502), String::new());
    };
    let mut answers: Value = serde_json::from_str(&text).expect("the node answers JSON");
    let none = json!({ "jsonrpc": "2.0" });
    let calls = request.as_array().cloned().unwrap_or_else(|| vec![request.clone()]);
    for call in &calls {
        let method = call["method"].as_str().expect("a method");
        *shared.calls.lock().expect("no panic holds it").entry(method.to_owned()).or_default() += 1;
        let answer = match &mut answers {
            Value::Array(list) => list.iter_mut().find(|answer| answer["id"] == call["id"]),
            one => Some(one),
        };
        let mut absent = none.clone();
        match (shared.alter)(method, &call["params"], answer.unwrap_or(&mut absent)) {
            Fate::Answered => {}
            other => return (other, String::new()),
        }
    }
    (Fate::Answered, answers.to_string())
}
