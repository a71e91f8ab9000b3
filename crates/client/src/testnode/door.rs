//! Takes connections, each on a thread of its own.

use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::{self, JoinHandle};

use super::connection::{self, Ended};
use super::{Note, Shared};

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

    /// Lets in whoever waits.
    pub(super) fn open(&mut self) {
        let (gone, here) =
            self.guests.drain(..).partition(|guest: &Guest| guest.thread.is_finished());
        self.guests = here;
        leave(gone);
        loop {
            match self.listener.accept() {
                Ok((stream, address)) => self.admit(stream, address),
                Err(error) => {
                    // Gone before it was let in, or no descriptors are left: others will leave.
                    if error.kind() != io::ErrorKind::WouldBlock {
                        self.shared.note(&Note::Lost(error));
                    }
                    return;
                }
            }
        }
    }

    fn admit(&mut self, stream: TcpStream, address: SocketAddr) {
        if self.guests.len() >= self.limit {
            self.shared.note(&Note::Refused(address, self.limit));
            return;
        }
        let peer = self.shared.count.fetch_add(1, Ordering::AcqRel) + 1;
        let shared = Arc::clone(&self.shared);
        let stream = Arc::new(stream);
        let own = Arc::clone(&stream);
        let talk = move || {
            shared.note(&Note::Connected(peer, address));
            let met = |met: &_| shared.note(&Note::Ready(peer, met));
            let ended = match prepare(&own) {
                Ok(()) => connection::talk(&own, &shared, nonce(), met),
                Err(error) => Ended::Frame(error.into()),
            };
            // The other side may be gone already.
            drop(own.shutdown(Shutdown::Both));
            shared.note(&Note::Disconnected(peer, &ended));
        };
        match thread::Builder::new().name(format!("peer {peer}")).spawn(talk) {
            Ok(thread) => self.guests.push(Guest { stream, thread }),
            Err(error) => self.shared.note(&Note::Lost(error)),
        }
    }

    /// Ends every connection, and waits for its thread.
    pub(super) fn close(&mut self) {
        for guest in &self.guests {
            // A thread may be in the middle of a message.
            drop(guest.stream.shutdown(Shutdown::Both));
        }
        leave(std::mem::take(&mut self.guests));
    }
}

/// A thread that panicked has said so.
fn leave(guests: Vec<Guest>) {
    for guest in guests {
        drop(guest.thread.join());
    }
}

fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)
}

/// A number that nobody can guess, if the system has one; nothing depends on it.
fn nonce() -> u64 {
    getrandom::u64().unwrap_or(1)
}
