//! Files of headers and archives: read whole and in small pieces, they give the same headers and
//! values, with memory in proportion to the file. The bytes are read as a file, and as the contents
//! of a well-formed archive, with a kind u8, a length u16 and the data for each entry.
#![no_main]

use std::io::{Cursor, Read, Write as _};

use chainsieve::eth::files::{
    Archive, BlockEntries, EntryKind, FileError, FileFormat, HeaderReader, Input, JsonValues,
    body_transactions,
};
use chainsieve::eth::receipts::BlockReceipts;
use libfuzzer_sys::fuzz_target;
use testkit::allocation::{Counting, requested_by};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Bytes of memory for each byte read, including memory that is released again, and for buffers in
/// addition.
const FACTOR: usize = 60;
const FIXED: usize = 2 << 20;
/// Bytes of memory for each byte of receipts or bodies.
const CONTENTS: usize = 400;
/// Limit of an entry and of a JSON value, in bytes.
const LIMIT: u64 = 3_000;

/// A reader that gives at most this many bytes at a time.
struct Pieces<'a>(&'a [u8], usize);

impl Read for Pieces<'_> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        let length = out.len().min(self.1);
        self.0.read(&mut out[..length])
    }
}

fn bounded<T>(length: usize, factor: usize, f: impl FnOnce() -> T) -> T {
    let (result, requested) = requested_by(f);
    assert!(requested <= factor * length + FIXED, "{requested} bytes for {length}");
    result
}

fn headers<R: Read>(input: Input<R>, format: FileFormat) -> (Vec<Vec<u8>>, Option<FileError>) {
    let mut headers = Vec::new();
    for header in HeaderReader::with_format(input, format).expect("every format is read") {
        match header {
            Ok(header) => headers.push(header.rlp().to_vec()),
            Err(error) => return (headers, Some(error)),
        }
    }
    (headers, None)
}

fn read_headers(bytes: &[u8], format: FileFormat) {
    let read = || headers(Input::new(bytes), format);
    let (whole, wrong) = bounded(bytes.len(), FACTOR, read);
    let pieces = Pieces(bytes, 1 + bytes.len() % 7);
    assert_eq!(headers(Input::new(pieces), format), (whole.clone(), wrong.clone()));
    let input = Input::seekable(Cursor::new(bytes)).expect("a cursor seeks");
    let (seeking, wrong_then) = headers(input, format);
    assert_eq!((&seeking, wrong_then.is_some()), (&whole, wrong.is_some()));
    let mut reader = HeaderReader::with_format(Input::new(bytes), format).expect("a reader");
    let mut batches = Vec::new();
    loop {
        match reader.next_batch() {
            Ok(Some(batch)) => {
                assert_eq!(batch.headers().count(), batch.len());
                batches.extend_from_slice(batch.rlp());
            }
            // A batch checks less. Linking the batch, or reading its headers, finds the other
            // errors.
            Ok(None) => {
                let whole = whole.concat();
                assert!(batches.starts_with(&whole));
                assert!(wrong.is_some() || batches == whole);
                break;
            }
            Err(error) => {
                assert!(wrong.is_some(), "{error}");
                break;
            }
        }
    }
}

fn read_values(bytes: &[u8]) {
    let read = |input: Input<Pieces<'_>>| {
        let mut values = JsonValues::new(input, LIMIT);
        let mut read = Vec::new();
        let wrong = loop {
            match values.next_value() {
                Ok(Some(value)) => read.push(value),
                Ok(None) => break None,
                Err(error) => break Some(error),
            }
        };
        (read, wrong)
    };
    let (values, wrong) = bounded(bytes.len(), FACTOR, || {
        // Even a value of one byte takes a string and a position.
        read(Input::new(Pieces(bytes, usize::MAX)))
    });
    assert_eq!(read(Input::new(Pieces(bytes, 1 + bytes.len() % 5))), (values.clone(), wrong));
    let text = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    for value in values {
        assert!(value.text.len() as u64 <= LIMIT);
        let mut lines = text.split_inclusive(|&byte| byte == b'\n');
        let before: usize = lines.by_ref().take(value.line as usize - 1).map(<[u8]>::len).sum();
        let at = before + value.column as usize - 1;
        assert!(text[at..].starts_with(value.text.as_bytes()), "{value:?}");
        let message = serde_json::from_str::<serde_json::Value>(&value.text);
        if let Err(error) = message {
            let _ = value.locate(&error.to_string());
        }
    }
}

fn read_archive(bytes: &[u8]) {
    let heads = |uses_data: bool| {
        let mut archive = Archive::new(Input::new(bytes));
        let mut heads = Vec::new();
        while let Ok(Some(entry)) = archive.next_entry() {
            let head = (entry.kind(), entry.offset(), entry.data_length());
            heads.push(head);
            let data = match (uses_data, heads.len() % 3) {
                (true, 0) => entry.read(LIMIT),
                (true, 1) => entry.decompress(LIMIT),
                _ => continue,
            };
            assert!(data.is_err() || data.is_ok_and(|data| data.len() as u64 <= LIMIT));
        }
        heads
    };
    assert_eq!(bounded(bytes.len(), FACTOR, || heads(true)), heads(false));
    for mut entries in
        [BlockEntries::bodies(Input::new(bytes)), BlockEntries::receipts(Input::new(bytes))]
    {
        while let Ok(Some((_, entry))) = entries.next_entry() {
            let kind = entry.kind();
            let Ok(data) = entry.decompress(LIMIT) else { continue };
            bounded(data.len(), CONTENTS, || match kind {
                EntryKind::Body => drop(body_transactions(&data)),
                EntryKind::Receipts => drop(BlockReceipts::from_rlp_list(&data)),
                EntryKind::SlimReceipts => drop(BlockReceipts::from_slim_list(&data)),
                other => panic!("not asked for: {other:?}"),
            });
        }
    }
}

/// Returns an archive whose entries contain parts of the bytes, compressed where the format
/// requires it.
fn archive_of(mut bytes: &[u8]) -> Vec<u8> {
    let mut archive = b"e2\0\0\0\0\0\0".to_vec();
    while let Some((&[kind, low, high], rest)) = bytes.split_first_chunk::<3>() {
        let length = usize::from(u16::from_le_bytes([low, high])).min(rest.len());
        let (data, rest) = rest.split_at(length);
        bytes = rest;
        let data = match kind % 16 {
            3..=5 | 10 | 11 => {
                let mut encoder = snap::write::FrameEncoder::new(Vec::new());
                encoder.write_all(data).expect("memory");
                encoder.into_inner().expect("memory")
            }
            _ => data.to_vec(),
        };
        // The codes of the version and of the indexes have two bytes.
        let code: u16 = match kind % 16 {
            13 => 0x3265,
            14 => 0x3266,
            15 => 0x3267,
            kind => kind.into(),
        };
        archive.extend(code.to_le_bytes());
        archive.extend((data.len() as u32).to_le_bytes());
        archive.extend([0, 0]);
        archive.extend(data);
    }
    archive
}

fuzz_target!(|bytes: &[u8]| {
    let shown = Input::new(bytes).format();
    for format in [FileFormat::Rlp, FileFormat::Json, FileFormat::Hex, FileFormat::Era] {
        // Formats that the bytes do not show usually fail at the first byte, so they are read
        // rarely.
        if shown.as_ref().is_ok_and(|shown| *shown == format) || bytes.len() % 16 == 0 {
            read_headers(bytes, format);
        }
    }
    read_values(bytes);
    read_archive(bytes);
    let archive = archive_of(bytes);
    read_headers(&archive, FileFormat::Era);
    read_archive(&archive);
});
