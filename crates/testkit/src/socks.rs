//! A SOCKS5 proxy (RFC 1928) that requires a user name and a password (RFC 1929). Tor uses the user
//! name and the password to isolate streams from each other.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// A requested stream: the user name, and the destination.
pub type Asked = (String, SocketAddr);

/// A SOCKS proxy that runs until the process ends.
#[derive(Debug)]
pub struct SocksProxy {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
}

impl SocksProxy {
    pub fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = listener.local_addr().expect("a port");
        let asked = Arc::new(Mutex::new(Vec::new()));
        let all = Arc::clone(&asked);
        thread::spawn(move || {
            for client in listener.incoming() {
                let (client, all) = (client.expect("a connection"), Arc::clone(&all));
                thread::spawn(move || serve(client, &all));
            }
        });
        Self { address, asked }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the streams that were requested so far.
    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().expect("no thread has failed").clone()
    }
}

/// Serves one client. Returns an error if either connection fails.
fn serve(mut client: TcpStream, all: &Mutex<Vec<Asked>>) -> io::Result<()> {
    let [version, methods] = read(&mut client)?;
    let mut offered = vec![0; methods.into()];
    client.read_exact(&mut offered)?;
    assert!(version == 5 && offered.contains(&2), "the client offers no password: {offered:?}");
    client.write_all(&[5, 2])?;
    let [1] = read(&mut client)? else { panic!("RFC 1929 is version 1") };
    let user = word(&mut client)?;
    assert_eq!(user, word(&mut client)?, "the password is the user name");
    client.write_all(&[1, 0])?;
    let [5, 1, 0, 1] = read(&mut client)? else { panic!("CONNECT to an IPv4 address") };
    let ip: [u8; 4] = read(&mut client)?;
    let target = SocketAddr::from((ip, u16::from_be_bytes(read(&mut client)?)));
    all.lock().expect("no thread has failed").push((user, target));
    let Ok(mut peer) = TcpStream::connect(target) else {
        return client.write_all(&[5, 5, 0, 1, 0, 0, 0, 0, 0, 0]);
    };
    client.write_all(&[5, 0, 0, 1, 127, 0, 0, 1, 0, 0])?;
    let (mut from_peer, mut to_client) = (peer.try_clone()?, client.try_clone()?);
    thread::spawn(move || {
        drop(io::copy(&mut from_peer, &mut to_client));
        drop(to_client.shutdown(std::net::Shutdown::Both));
    });
    drop(io::copy(&mut client, &mut peer));
    peer.shutdown(std::net::Shutdown::Both)
}

fn word(client: &mut TcpStream) -> io::Result<String> {
    let [length] = read(client)?;
    let mut bytes = vec![0; length.into()];
    client.read_exact(&mut bytes)?;
    Ok(String::from_utf8(bytes).expect("text"))
}

fn read<const N: usize>(client: &mut TcpStream) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    client.read_exact(&mut bytes)?;
    Ok(bytes)
}
