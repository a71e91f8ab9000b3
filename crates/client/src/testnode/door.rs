//! Accepts connections, and starts a thread for each.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};

use super::connection::{self, Ended};
use super::{ConnectionNote, Shared};

struct Guest {
    stream: Arc<TcpStream>,
    thread: JoinHandle<()>,
}

pub(super) struct Door {
    listener: TcpListener,
    shared: Arc<Shared>,
    limit: usize,
    guests: Vec<Guest>,
}

impl Door {
    pub(super) fn new(listener: TcpListener, shared: Arc<Shared>, limit: usize) -> Self {
        Self { listener, shared, limit, guests: Vec::new() }
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.shared.is_stopping()
    }

    /// Accepts all waiting connections, and joins the threads of connections that have ended.
    pub(super) fn open(&mut self) {
        let (gone, here) =
            self.guests.drain(..).partition(|guest: &Guest| guest.thread.is_finished());
        self.guests = here;
        leave(gone);
        loop {
            match self.listener.accept() {
                Ok((stream, address)) => self.admit(stream, address),
                Err(error) => {
                    // The peer has already disconnected, or there is no free file descriptor. The
                    // node continues: descriptors become free when other peers disconnect.
                    if error.kind() != io::ErrorKind::WouldBlock {
                        self.shared.note(&ConnectionNote::Lost(error));
                    }
                    return;
                }
            }
        }
    }

    fn admit(&mut self, stream: TcpStream, address: SocketAddr) {
        if self.guests.len() >= self.limit {
            self.shared.note(&ConnectionNote::Refused(address, self.limit));
            return;
        }
        let peer = self.shared.count.fetch_add(1, Ordering::AcqRel) + 1;
        let shared = Arc::clone(&self.shared);
        let stream = Arc::new(stream);
        let own = Arc::clone(&stream);
        let talk = move || {
            shared.note(&ConnectionNote::Connected(peer, address));
            let met = |met: &_| shared.note(&ConnectionNote::Ready(peer, met));
            let ended = match prepare(&own) {
                Ok(()) => connection::talk(&own, &shared, nonce(), met),
                Err(error) => Ended::Frame(error.into()),
            };
            // The shutdown fails if the peer has already closed the connection.
            drop(own.shutdown(Shutdown::Both));
            shared.note(&ConnectionNote::Disconnected(peer, &ended));
        };
        match thread::Builder::new().name(format!("peer {peer}")).spawn(talk) {
            Ok(thread) => self.guests.push(Guest { stream, thread }),
            Err(error) => self.shared.note(&ConnectionNote::Lost(error)),
        }
    }

    /// Ends all connections, and waits for their threads.
    pub(super) fn close(&mut self) {
        for guest in &self.guests {
            // A thread may be blocked in a read or write, which the shutdown ends.
            drop(guest.stream.shutdown(Shutdown::Both));
        }
        leave(std::mem::take(&mut self.guests));
    }
}

/// Waits for the threads of connections. A panic is ignored: the panic hook has reported the panic.
fn leave(guests: Vec<Guest>) {
    for guest in guests {
        drop(guest.thread.join());
    }
}

fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)
}

/// Returns a random nonce, or 1 if the system provides no random numbers. The node works even if
/// the nonce is not random.
fn nonce() -> u64 {
    getrandom::u64().unwrap_or(1)
}
