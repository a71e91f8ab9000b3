//! Tests of SOCKS5: exchanges byte for byte as in the RFCs, and malformed replies.

use super::*;

/// A scripted proxy: the bytes that it sends, and the bytes that it has received.
struct Scripted<'a> {
    says: &'a [u8],
    told: Vec<u8>,
}

impl Read for Scripted<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.says.read(buffer)
    }
}

impl Write for Scripted<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.told.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Connects through a scripted proxy. Returns the result, the bytes that the proxy received, and
/// the number of bytes of the proxy's answer that the client did not read.
fn ask(target: &str, says: &[u8]) -> (Result<(), SocksError>, Vec<u8>, usize) {
    let mut proxy = Scripted { says, told: Vec::new() };
    let result = connect(&mut proxy, &Target::parse(target, 8_333).unwrap(), 0x1f);
    let left = proxy.says.len();
    (result, proxy.told, left)
}

#[test]
fn without_a_password() {
    // The proxy connects from 1.2.3.4:5. The last two bytes are the first bytes that the peer
    // sends.
    let says = [5, 0, 5, 0, 0, 1, 1, 2, 3, 4, 0, 5, 0xf9, 0xbe];
    let (result, told, left) = ask("9.8.7.6", &says);
    result.unwrap();
    assert_eq!(told, [5, 2, 0, 2, 5, 1, 0, 1, 9, 8, 7, 6, 0x20, 0x8d]);
    assert_eq!(left, 2, "the client must not read the peer's bytes");
}

#[test]
fn with_a_password_and_a_name_that_the_proxy_resolves() {
    let says = [&[5, 2, 1, 0, 5, 0, 0, 3, 3][..], b"abc", &[0, 5, 7]].concat();
    let (result, told, left) = ask("seed.example:1", &says);
    result.unwrap();
    let word = b"000000000000001f";
    let expected =
        [&[5, 2, 0, 2, 1, 16][..], word, &[16], word, &[5, 1, 0, 3, 12], b"seed.example", &[0, 1]];
    assert_eq!(told, expected.concat());
    assert_eq!(left, 1);
}

#[test]
fn other_kinds_of_address() {
    let says = [&[5, 0, 5, 0, 0, 4][..], &[0; 18]].concat();
    let (result, told, left) = ask("[2a01::1]:2", &says);
    result.unwrap();
    assert_eq!(told[4..8], [5, 1, 0, 4]);
    assert_eq!(told[8..], [0x2a, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 2]);
    assert_eq!(left, 0);
    let onion = "pg6mmjiyjmcrsslvykfwnntlaru7p5svn6y2ymmju6nubxndf4pscryd.onion";
    let (result, told, _) = ask(onion, &says);
    result.unwrap();
    assert_eq!(told[7..9], [3, 62]);
    assert_eq!(&told[9..71], onion.as_bytes());
}

#[test]
fn replies_that_are_refused() {
    let error = |says: &[u8]| ask("9.8.7.6", says).0.unwrap_err();
    assert!(matches!(error(&[4, 0]), SocksError::Version { got: 4 }));
    assert!(matches!(error(b"HTTP/1.1 400"), SocksError::Version { got: b'H' }));
    assert!(matches!(error(&[5, 0xff]), SocksError::NoMethod));
    assert!(matches!(error(&[5, 1]), SocksError::Method { got: 1 }));
    assert!(matches!(error(&[5, 2, 5, 0]), SocksError::AuthVersion { got: 5 }));
    assert!(matches!(error(&[5, 2, 1, 7]), SocksError::AuthRefused { status: 7 }));
    assert!(matches!(error(&[5, 0, 1, 0, 0, 1]), SocksError::Version { got: 1 }));
    assert!(matches!(error(&[5, 0, 5, 0, 0, 2]), SocksError::AddressType { got: 2 }));
    for code in 1..=255 {
        let refused = error(&[5, 0, 5, code, 0, 1]);
        assert!(matches!(refused, SocksError::Refused { code: got } if got == code));
        assert_eq!(refused.is_about_the_peer(), matches!(code, 3..=6 | 0xf0..=0xf7), "{code}");
    }
    assert_eq!(error(&[5, 0, 5, 5, 0, 1]).to_string(), "connection refused (reply 5)");
    let long = format!("{}.example", "a".repeat(248));
    let (result, told, _) = ask(&long, &[5, 0]);
    assert!(matches!(result, Err(SocksError::NameTooLong { bytes: 256, limit: 255 })));
    assert!(told.is_empty(), "no proxy is asked for it");
}

#[test]
fn a_reply_cut_at_each_byte_is_an_end() {
    let says = [&[5, 2, 1, 0, 5, 0, 0, 3, 255][..], &[b'x'; 255], &[0, 5]].concat();
    assert!(ask("9.8.7.6", &says).0.is_ok());
    for end in 0..says.len() {
        let error = ask("9.8.7.6", &says[..end]).0.unwrap_err();
        let SocksError::Io(io) = error else { panic!("{end}: {error}") };
        assert_eq!(io.kind(), io::ErrorKind::UnexpectedEof, "{end}");
    }
}
