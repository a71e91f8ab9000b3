//! A client of JSON-RPC made of plain sockets: it may have any address of this machine, read nothing, or send
//! half a request.

use std::io::{Error, ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};
use socket2::{Domain, Socket, Type};

/// Connects from an address of this machine, with a small buffer for what is received.
pub fn connect_from(address: Ipv4Addr, to: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.set_recv_buffer_size(4096).expect("a size");
    socket.bind(&SocketAddr::from((address, 0)).into()).expect("a free port");
    socket.connect(&to.into()).expect("it listens");
    socket.into()
}

/// Returns the text of a call.
pub fn call(method: &str, params: &Value) -> String {
    json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }).to_string()
}

/// Posts a call, and reads nothing.
pub fn post(stream: &mut TcpStream, text: &str) -> Result<(), Error> {
    let request = format!(
        "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{text}",
        text.len()
    );
    stream.write_all(request.as_bytes())
}

/// Asks as the client with this address. Returns the answer.
pub fn ask_from(
    address: Ipv4Addr,
    server: SocketAddr,
    method: &str,
    params: &Value,
) -> Result<Value, Error> {
    let mut stream = connect_from(address, server);
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    post(&mut stream, &call(method, params))?;
    let head = head(&mut stream)?.to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let length = length.and_then(|length| length.parse().ok());
    let mut body = vec![0; length.ok_or_else(|| Error::other(head.clone()))?];
    stream.read_exact(&mut body)?;
    serde_json::from_slice(&body).map_err(|_| Error::other(head))
}

/// Reads the head of an answer over HTTP.
fn head(stream: &mut TcpStream) -> Result<String, Error> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        head.extend(byte);
    }
    String::from_utf8(head).map_err(Error::other)
}

/// A WebSocket.
#[derive(Debug)]
pub struct WebSocket(pub TcpStream);

impl WebSocket {
    /// Opens a WebSocket for a page of this origin. Returns the status if it is refused.
    pub fn open(address: SocketAddr, origin: &str) -> Result<Self, String> {
        Self::over(TcpStream::connect(address).expect("it listens"), origin)
    }

    /// The same over an open connection.
    pub fn over(mut stream: TcpStream, origin: &str) -> Result<Self, String> {
        let request = format!(
            "GET / HTTP/1.1\r\nHost: localhost\r\nOrigin: {origin}\r\nConnection: Upgrade\r\n\
             Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).map_err(|error| error.to_string())?;
        let head = head(&mut stream).map_err(|error| error.to_string())?;
        let status = head.split(' ').nth(1).expect("a status").to_owned();
        // The answer to this key is the example of RFC 6455, section 1.3.
        let accepts = head.to_ascii_lowercase().contains("s3pplmbitxaq9kygzzhzrbk+xoo=");
        if status == "101" && accepts { Ok(Self(stream)) } else { Err(status) }
    }

    /// Sends a text in one frame, whose mask is zero.
    pub fn send(&mut self, text: &str) -> Result<(), Error> {
        let length = text.len();
        let mut frame = vec![0x81];
        if let Some(short) = u8::try_from(length).ok().filter(|length| *length < 126) {
            frame.push(0x80 | short);
        } else {
            frame.push(0x80 | 127);
            frame.extend((length as u64).to_be_bytes());
        }
        frame.extend([0; 4]);
        frame.extend(text.as_bytes());
        self.0.write_all(&frame)
    }

    /// Returns the next text; `None` if the other end closes the connection.
    pub fn receive(&mut self) -> Result<Option<Value>, Error> {
        let mut text = Vec::new();
        loop {
            let mut head = [0; 2];
            self.0.read_exact(&mut head)?;
            let length = match head[1] {
                126 => self.number::<2>()?,
                127 => self.number::<8>()?,
                length => length.into(),
            };
            let mut payload = vec![0; usize::try_from(length).expect("a length")];
            self.0.read_exact(&mut payload)?;
            match head[0] & 0xf {
                // A text, and what continues it. Pings may come in between.
                0 | 1 => text.extend(payload),
                8 => return Ok(None),
                // A sign of life, as a client gives it: the same payload, whose mask is zero.
                9 => {
                    let pong = [&[0x8a, 0x80 | head[1]][..], &[0; 4], &payload].concat();
                    self.0.write_all(&pong)?;
                    continue;
                }
                _ => continue,
            }
            if head[0] & 0x80 != 0 {
                return serde_json::from_slice(&text).map(Some).map_err(Error::other);
            }
        }
    }

    fn number<const N: usize>(&mut self) -> Result<u64, Error> {
        let mut bytes = [0; N];
        self.0.read_exact(&mut bytes)?;
        Ok(bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    /// Sends a call, and returns the answer.
    pub fn ask(&mut self, call: &Value) -> Value {
        self.send(&call.to_string()).expect("it listens");
        self.receive().expect("an answer").expect("the connection is open")
    }
}

/// Returns `true` if the other end closes a connection, whatever it sends before.
pub fn is_closed(stream: &mut TcpStream) -> bool {
    let mut buffer = vec![0; 1 << 16];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => {
                return !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
            }
        }
    }
}
