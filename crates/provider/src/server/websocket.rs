//! A WebSocket of a client: its calls, and the messages of its subscriptions.

use std::future::Future;
use std::io;
use std::ops::ControlFlow;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream::FuturesUnordered;
use futures_util::{SinkExt as _, StreamExt as _};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{CloseCode, Data, OpCode};
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Message};

use super::call::Room;
use super::clients::Held;
use super::filters::{Messages, Unsent};
use super::rpc::{Caller, Reply};
use crate::stop::lock;

/// Maximum number of calls in progress on one connection. No further call is read meanwhile.
const MOST_CALLS: usize = 64;
/// Interval of pings.
const PING: Duration = Duration::from_secs(30);
/// Number of pings without any sign of life after which the connection ends.
const UNANSWERED: u32 = 2;
/// Maximum size of a frame that is sent. A longer text is sent in several frames, so that the buffer of
/// the connection stays small.
const FRAME: usize = 64 << 10;
/// Number of bytes of a client's control frame in addition to its payload.
const CONTROL: u64 = 6;
/// Time limit for the end of a connection.
const AT_THE_END: Duration = Duration::from_secs(2);
/// Size of the read buffer.
const READ: usize = 8 << 10;

/// The bytes that were read of an incomplete message over a WebSocket.
#[derive(Debug)]
pub(super) struct Input {
    limit: u64,
    /// `None` before the WebSocket begins.
    reading: Mutex<Option<Reading>>,
}

#[derive(Debug)]
struct Reading {
    held: Held,
    /// The time at which the first of these bytes was read.
    begun: Option<Instant>,
}

impl Input {
    /// `limit` is the maximum number of bytes of a message, including the headers of its frames.
    pub(super) fn new(limit: u64) -> Self {
        Self { limit, reading: Mutex::default() }
    }

    /// Counts the bytes that are read from now on.
    pub(super) fn begin(&self, held: Held) {
        *lock(&self.reading) = Some(Reading { held, begun: None });
    }

    /// Returns the counted bytes, for a message that is complete.
    pub(super) fn take(&self) -> Option<Held> {
        let mut reading = lock(&self.reading);
        let reading = reading.as_mut()?;
        reading.begun = None;
        let next = reading.held.of_same();
        Some(std::mem::replace(&mut reading.held, next))
    }

    /// Subtracts bytes that belong to no message.
    pub(super) fn give_back(&self, bytes: u64) {
        if let Some(reading) = &mut *lock(&self.reading) {
            let left = reading.held.bytes().saturating_sub(bytes);
            reading.held.shrink_to(left);
            if left == 0 {
                reading.begun = None;
            }
        }
    }

    /// Returns `true` if a message is still incomplete after this time.
    pub(super) fn is_late(&self, limit: Duration) -> bool {
        let reading = lock(&self.reading);
        let begun = reading.as_ref().and_then(|reading| reading.begun);
        begun.is_some_and(|begun| begun.elapsed() > limit)
    }

    pub(super) fn add(&self, bytes: usize) -> io::Result<()> {
        let mut reading = lock(&self.reading);
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

type Work<T> = FuturesUnordered<Pin<Box<dyn Future<Output = T> + Send>>>;

/// One connection.
struct Connection {
    socket: WebSocketStream<TokioIo<Upgraded>>,
    caller: Caller,
    input: Arc<Input>,
    calls: Work<Option<Reply>>,
    messages: Work<Result<Messages, Unsent>>,
    /// Pings since the last sign of life.
    unanswered: u32,
}

/// Serves a connection until the client or the endpoint closes it.
pub(super) async fn serve(upgraded: Upgraded, caller: Caller, input: Arc<Input>) {
    let most = Some(caller.proven.limits.max_request as usize);
    let config = WebSocketConfig::default()
        .read_buffer_size(READ)
        .write_buffer_size(0)
        // Room for pongs while the client reads nothing. Of further ones, only the newest is kept.
        .max_write_buffer_size(4 * FRAME)
        .max_message_size(most)
        .max_frame_size(most);
    let io = TokioIo::new(upgraded);
    let socket = WebSocketStream::from_raw_socket(io, Role::Server, Some(config)).await;
    let (calls, messages) = (Work::new(), Work::new());
    let mut connection = Connection { socket, caller, input, calls, messages, unanswered: 0 };
    // A client that was cut off gets no further message.
    let _ = connection.run().await;
}

impl Connection {
    async fn run(&mut self) -> Result<(), Error> {
        let proven = Arc::clone(&self.caller.proven);
        let subscriptions = self.caller.subscriptions.clone().unwrap_or_default();
        let mut changed = proven.journal.watch();
        let mut ping = interval(PING);
        ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ping.tick().await;
        loop {
            match subscriptions.work(&proven) {
                Ok(work) => {
                    for work in work {
                        let caller = self.caller.clone();
                        self.messages.push(Box::pin(async move {
                            let (call, mut waiting) = caller.begin(Room::new(u64::MAX));
                            let messages = work.messages(call).await;
                            waiting.is_over();
                            messages
                        }));
                    }
                }
                Err(_) => return self.end_with_gap().await,
            }
            tokio::select! {
                message = self.socket.next(), if self.calls.len() < MOST_CALLS => {
                    match message {
                        None => return Ok(()),
                        Some(Err(Error::Capacity(_))) => {
                            return self.end(CloseCode::Size, "the message is too large").await;
                        }
                        Some(message) => if self.received(message?).is_break() {
                            // The answer to a close waits to be sent.
                            let flushed = tokio::time::timeout(AT_THE_END, self.socket.flush());
                            let _ = flushed.await;
                            return Ok(());
                        }
                    }
                }
                Some(reply) = self.calls.next(), if !self.calls.is_empty() => {
                    if let Some(Reply { parts, subscribed, .. }) = reply {
                        self.send(&parts).await?;
                        subscriptions.begin(&subscribed);
                    }
                }
                Some(messages) = self.messages.next(), if !self.messages.is_empty() => match messages {
                    Ok(messages) => {
                        for text in &messages.texts {
                            // It may have ended meanwhile.
                            if subscriptions.has(&messages) {
                                self.send(std::slice::from_ref(text)).await?;
                            }
                        }
                        subscriptions.sent(&messages);
                    }
                    Err(Unsent::Later(id)) => {
                        let (subscriptions, retry) = (Arc::clone(&subscriptions), proven.limits.retry);
                        self.messages.push(Box::pin(async move {
                            tokio::time::sleep(retry).await;
                            subscriptions.again(&id);
                            Err(Unsent::Again)
                        }));
                    }
                    Err(Unsent::Again) => {}
                    Err(Unsent::Gap) => return self.end_with_gap().await,
                },
                woken = changed.changed(), if !subscriptions.is_empty() => {
                    if woken.is_err() {
                        return Ok(());
                    }
                }
                _ = ping.tick() => {
                    if self.unanswered >= UNANSWERED || self.input.is_late(proven.limits.request_timeout) {
                        return Ok(());
                    }
                    // While too many calls are open, no sign of life is read.
                    self.unanswered += u32::from(self.calls.len() < MOST_CALLS);
                    self.socket.send(Message::Ping(Bytes::new())).await?;
                }
                () = proven.stopped.notified() => {
                    return self.end(CloseCode::Away, "the endpoint ends").await;
                }
            }
        }
    }

    fn received(&mut self, message: Message) -> ControlFlow<()> {
        self.unanswered = 0;
        let text = match message {
            Message::Text(text) => Bytes::from(text),
            Message::Binary(bytes) => bytes,
            Message::Close(_) => return ControlFlow::Break(()),
            Message::Ping(payload) | Message::Pong(payload) => {
                self.input.give_back(payload.len() as u64 + CONTROL);
                return ControlFlow::Continue(());
            }
            Message::Frame(_) => return ControlFlow::Continue(()),
        };
        let (caller, held) = (self.caller.clone(), self.input.take());
        self.calls.push(Box::pin(async move {
            let reply = caller.answer(&text).await;
            drop((text, held));
            reply
        }));
        ControlFlow::Continue(())
    }

    /// Sends a text in frames. Each frame is written before the next frame is built.
    async fn send(&mut self, parts: &[Bytes]) -> Result<(), Error> {
        let mut left = parts.iter().map(Bytes::len).sum::<usize>();
        let mut kind = Data::Text;
        let mut frame = Vec::with_capacity(left.min(FRAME));
        for mut part in parts.iter().map(|part| &part[..]) {
            while !part.is_empty() {
                let (now, later) = part.split_at(part.len().min(FRAME - frame.len()));
                frame.extend_from_slice(now);
                part = later;
                left -= now.len();
                if frame.len() == FRAME || left == 0 {
                    let bytes = std::mem::take(&mut frame);
                    let sent = Frame::message(bytes, OpCode::Data(kind), left == 0);
                    self.socket.send(Message::Frame(sent)).await?;
                    kind = Data::Continue;
                }
            }
        }
        Ok(())
    }

    /// Ends the connection, because changes are lost: clients connect again, and read the missed blocks.
    async fn end_with_gap(&mut self) -> Result<(), Error> {
        self.end(
            CloseCode::Error,
            "some changes are lost: connect again, subscribe, and read the missed blocks",
        )
        .await
    }

    async fn end(&mut self, code: CloseCode, why: &'static str) -> Result<(), Error> {
        let frame = CloseFrame { code, reason: why.into() };
        self.socket.close(Some(frame)).await?;
        // The other end answers, and then nothing comes.
        let rest = async { while self.socket.next().await.is_some_and(|it| it.is_ok()) {} };
        let _ = tokio::time::timeout(AT_THE_END, rest).await;
        Ok(())
    }
}
