//! JSON-RPC over HTTP for nodes that tests make up.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

use serde_json::{Value, json};

/// Answers calls on a free port of this machine. `result` gets a method and its parameters, and
/// returns `None` for a method that the node does not have. The threads end with the process.
pub(crate) fn serve(
    result: impl Fn(&str, &Value) -> Option<Value> + Send + Sync + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("bound");
    let result = Arc::new(result);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let result = Arc::clone(&result);
            // A client that goes away is no error of the node.
            std::thread::spawn(move || drop(answer(stream, &*result)));
        }
    });
    address
}

/// Answers requests until the connection closes.
fn answer(
    stream: TcpStream,
    result: &impl Fn(&str, &Value) -> Option<Value>,
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
        let request: Value = serde_json::from_slice(&body).expect("JSON");
        let reply = match &request {
            Value::Array(calls) => calls.iter().map(|call| reply(call, result)).collect(),
            call => reply(call, result),
        };
        let reply = reply.to_string();
        let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length";
        write!(writer, "{head}: {}\r\n\r\n{reply}", reply.len())?;
    }
}

fn reply(call: &Value, result: &impl Fn(&str, &Value) -> Option<Value>) -> Value {
    let method = call["method"].as_str().expect("a method");
    if let Some(result) = result(method, &call["params"]) {
        return json!({ "jsonrpc": "2.0", "id": call["id"], "result": result });
    }
    let message = format!("the method {method} does not exist/is not available");
    json!({ "jsonrpc": "2.0", "id": call["id"], "error": { "code": -32601, "message": message } })
}
