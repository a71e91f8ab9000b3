//! Files of headers from untrusted sources: cut, damaged, and with false lengths.

use std::io::Cursor;

use chainsieve::eth::files::{
    FileError, FileFormat, FileProblem, HeaderReader, Input, JsonValues, MAX_HEADER, Position,
};

use crate::survives;
use testkit::Rng;
use testkit::eth::header_files::{forms, linked, list};
use testkit::mutated;

/// Memory for the buffer and for the decoder of framed Snappy.
const FIXED: usize = 1 << 20;
/// Bytes of memory for each byte of a file, including memory that is released again.
const FACTOR: usize = 60;

/// Returns the headers before the end or the first error, and the error.
fn read(format: FileFormat, bytes: &[u8]) -> (Vec<Vec<u8>>, Option<FileError>) {
    let mut headers = Vec::new();
    let mut wrong = None;
    let reader = HeaderReader::with_format(Input::new(bytes), format).expect("the format");
    for header in reader {
        match header {
            Ok(header) => headers.push(header.rlp().to_vec()),
            Err(error) => wrong = Some(error),
        }
    }
    (headers, wrong)
}

#[test]
fn truncated_at_every_byte() {
    let headers = &linked()[..2];
    for form in forms(headers) {
        let (all, wrong) = read(form.format, &form.bytes);
        assert_eq!(wrong, None, "{}", form.name);
        for end in 0..form.bytes.len() {
            let cut = &form.bytes[..end];
            let (found, wrong) = survives(form.name, cut, FACTOR, FIXED, || read(form.format, cut));
            assert!(all.starts_with(&found), "{} of {end} bytes", form.name);
            match form.cuts.iter().find(|(whole, _)| *whole == end) {
                Some((_, count)) => {
                    assert_eq!((found.len(), wrong), (*count, None), "{} of {end}", form.name);
                }
                None => assert!(wrong.is_some(), "{} of {end} bytes", form.name),
            }
            // A file of known length gives the same headers.
            let input = Input::seekable(Cursor::new(cut)).expect("a cursor seeks");
            let reader = HeaderReader::with_format(input, form.format).expect("the format");
            assert!(reader.filter_map(Result::ok).map(|header| header.rlp().to_vec()).eq(found));
        }
    }
}

#[test]
fn damaged_files() {
    let mut rng = Rng::new(0xe2);
    for form in forms(&linked()[..3]) {
        for _ in 0..300 {
            let bytes = mutated(&mut rng, &form.bytes);
            survives(form.name, &bytes, FACTOR, FIXED, || {
                let Ok(mut reader) = HeaderReader::new(Input::new(&bytes[..])) else { return };
                while let Ok(Some(batch)) = reader.next_batch() {
                    assert_eq!(batch.headers().count(), batch.len());
                }
            });
        }
    }
}

/// RLP lengths that exceed the rest of the file or the limit.
#[test]
fn lengths_of_rlp_are_not_believed() {
    let header = &linked()[0].rlp;
    let limit = MAX_HEADER;
    let header_of = |length| FileProblem::TooLong { part: "header", length, limit };
    let long = [&[0xfb][..], &u32::MAX.to_be_bytes(), &[0; 64]].concat();
    let longest = [&[0xff; 9][..], &[0; 64]].concat();
    let just = [&[0xfa, 1, 0, 1][..], &[0; 64]].concat();
    let cut = |part, expected, found| FileProblem::Truncated { part, expected, found };
    // A block with a false length, which contains a header.
    let block = [&[0xff; 9][..], header].concat();
    let found = header.len() as u64;
    for (bytes, problem) in [
        (long, header_of(u32::MAX.into())),
        (longest, header_of(u64::MAX)),
        (just, header_of(0x1_0001)),
        (block, cut("block", u64::MAX, found)),
        (vec![0xfb, 1, 2], cut("length of the list", 4, 2)),
        (vec![0xf9, 2, 17, 0], cut("header", 0x211, 1)),
        (vec![0x80], FileProblem::NotAList { first: 0x80 }),
    ] {
        let read = || read(FileFormat::Rlp, &bytes);
        let (found, wrong) = survives("RLP", &bytes, FACTOR, FIXED, read);
        let wrong = wrong.expect("an error");
        assert_eq!((found.len(), wrong.position), (0, Position::Byte(0)), "{bytes:02x?}");
        assert_eq!(wrong.problem, problem, "{bytes:02x?}");
    }
    // The second of two headers is invalid.
    let two = [&header[..], &[0x7f]].concat();
    let (found, wrong) = read(FileFormat::Rlp, &two);
    let wrong = wrong.expect("an error");
    assert_eq!((found.len(), wrong.position), (1, Position::Byte(header.len() as u64)));
}

#[test]
fn texts_without_end() {
    let endless = [
        (FileFormat::Hex, vec![b'0'; 1 << 20]),
        (FileFormat::Json, "[".repeat(1 << 20).into_bytes()),
        (FileFormat::Json, "{\"result\":".repeat(1 << 17).into_bytes()),
        (FileFormat::Json, vec![b'"'; 1 << 20]),
        (FileFormat::Json, [&b"\""[..], &vec![b'0'; 1 << 20], b"\""].concat()),
    ];
    for (format, bytes) in endless {
        let (found, wrong) = survives("text", &bytes, FACTOR, FIXED, || read(format, &bytes));
        assert_eq!(found.len(), 0);
        let wrong = wrong.expect("an error");
        assert_eq!(wrong.position, Position::Line(1), "{wrong}");
        assert!(wrong.to_string().len() < 200, "{wrong}");
    }
    let text = [&b"[1, "[..], &[b'7'; 100]].concat();
    let mut values = JsonValues::new(Input::new(&text[..]), 99);
    assert_eq!(values.next_value().expect("a value").expect("one").text, "1");
    let error = values.next_value().expect_err("too long");
    assert_eq!(error.problem, FileProblem::OverLimit { part: "JSON value", limit: 99 });
}

#[test]
fn json_errors_name_line_and_column() {
    let header = &linked()[0];
    let hex = alloy_primitives::hex::encode_prefixed(&header.rlp);
    let read = |text: &str| read(FileFormat::Json, text.as_bytes()).1.expect("an error");
    let column = |line, column| Position::Column { line, column };
    // The value starts in line 2, and its `result` in line 3.
    let error = read("[\n {\"jsonrpc\": \"2.0\",\n  \"result\": {\"number\": 1}}]");
    assert_eq!(error.position, column(3, 25), "{error}");
    let error = read("\n{\"header\": 1, \"header\": 2}");
    assert_eq!(error.position, column(2, 22), "{error}");
    let other = alloy_primitives::B256::ZERO;
    let error = read(&format!("{{\"hash\": \"{other}\",\n\"header\": \"{hex}\"}}"));
    let problem = FileProblem::HashMismatch { claimed: other, computed: header.hash };
    assert_eq!((error.position, error.problem), (Position::Line(1), problem));
    let error = read("{\"jsonrpc\": \"2.0\", \"id\": 1, \"result\": null}");
    assert_eq!(error.problem, FileProblem::NoResult);
    let error = read("{\"error\": {\"code\": -32000}}");
    assert_eq!(error.problem, FileProblem::NodeError("{\"code\": -32000}".into()));
    assert_eq!(read("7").problem, FileProblem::NotAHeader);
    let deep = format!("{}{hex:?}{}", "[".repeat(7), "]".repeat(7));
    assert_eq!(read(&deep).problem, FileProblem::TooDeep { limit: 4 });
}

mod archives {
    use chainsieve::eth::files::Archive;

    use super::*;
    use testkit::eth::header_files::era::{entry, era1, ere, snappy};

    fn file(entries: &[Vec<u8>]) -> Vec<u8> {
        [&entry(0x3265, &[])[..], &entries.concat()].concat()
    }

    fn problem(bytes: &[u8]) -> (Position, FileProblem) {
        let read = || read(FileFormat::Era, bytes);
        let error = survives("an archive", bytes, FACTOR, FIXED, read).1.expect("an error");
        (error.position, error.problem)
    }

    #[test]
    fn entries_that_lie() {
        let header = &linked()[0].rlp;
        let at = Position::Byte(8);
        let mut huge = entry(3, &[0; 16]);
        huge[2..6].copy_from_slice(&u32::MAX.to_le_bytes());
        let huge = file(&[huge]);
        // 64 KiB for a header, an eighth more for data that does not compress, and the frames.
        let (length, limit) = (u32::MAX.into(), (64 << 10) + (8 << 10) + 64);
        let long = FileProblem::TooLong { part: "entry", length, limit };
        assert_eq!(problem(&huge), (at, long));
        let known = Input::seekable(Cursor::new(&huge[..])).expect("a cursor seeks");
        let error = HeaderReader::new(known).expect("an archive").next_batch().expect_err("cut");
        let cut = FileProblem::Truncated { part: "entry", expected: length, found: 16 };
        assert_eq!((error.position, error.problem), (at, cut));
        let mut reserved = entry(3, &[]);
        reserved[6..8].copy_from_slice(&[2, 1]);
        assert_eq!(problem(&file(&[reserved])), (at, FileProblem::Reserved { found: 0x102 }));
        let (found, plain) = problem(&file(&[entry(3, header)]));
        assert!(found == at && matches!(plain, FileProblem::Snappy(_)), "{plain}");
        let bomb = snappy(&vec![0; 8 << 20]);
        assert!(bomb.len() < 640 << 10);
        let bomb = FileProblem::TooLong { part: "entry", length: bomb.len() as u64, limit };
        assert_eq!(problem(&file(&[entry(3, &snappy(&vec![0; 8 << 20]))])), (at, bomb));
        let small = entry(3, &snappy(&vec![0; 1 << 20]));
        let over = FileProblem::OverLimit { part: "uncompressed entry", limit: MAX_HEADER };
        assert_eq!(problem(&file(&[small])), (at, over));
        let beacon = entry(1, &snappy(b"a signed beacon block"));
        assert_eq!(problem(&file(&[beacon])), (at, FileProblem::ConsensusArchive));
        let (_, malformed) = problem(&file(&[entry(3, &snappy(&list(&[1, 2])))]));
        assert!(matches!(malformed, FileProblem::Header(_)), "{malformed}");
    }

    /// The rest of an entry that is too long is not read as part of the next entry.
    #[test]
    fn an_entry_above_the_limit_leaves_nothing_for_the_next() {
        let bytes = file(&[entry(4, &snappy(&[9; 200])), entry(4, &snappy(b"the next"))]);
        let mut archive = Archive::new(Input::new(&bytes[..]));
        archive.next_entry().expect("an entry").expect("the version");
        let long = archive.next_entry().expect("an entry").expect("the first");
        let error = long.decompress(100).expect_err("above the limit");
        let over = FileProblem::OverLimit { part: "uncompressed entry", limit: 100 };
        assert_eq!((error.position, error.problem), (Position::Byte(8), over));
        let next = archive.next_entry().expect("an entry").expect("the second");
        assert_eq!(next.decompress(100).expect("in the limit"), b"the next");
        assert!(archive.next_entry().expect("the end").is_none());
        // The largest limit causes no overflow.
        let mut archive = Archive::new(Input::new(&bytes[8..]));
        let entry = archive.next_entry().expect("an entry").expect("the first");
        assert_eq!(entry.decompress(u64::MAX).expect("no limit"), [9; 200]);
    }

    #[test]
    fn indexes_that_lie() {
        let headers = &linked()[..2];
        let whole = era1(headers);
        let end = whole.len();
        let index = Position::Byte(end as u64 - 8 - 4 * 8);
        let altered = |back: usize, by: u8| {
            let mut bytes = whole.clone();
            bytes[end - back] ^= by;
            problem(&bytes)
        };
        let said = |problem| (index, problem);
        assert_eq!(altered(8, 1), said(FileProblem::IndexCount { counted: 3, read: 2 }));
        let first = FileProblem::IndexFirst { indexed: 10_234_000, read: 10_234_001 };
        assert_eq!(altered(32, 1), said(first));
        let (found, offset) = altered(16, 1);
        assert_eq!(found, index);
        let offset_of = |problem| match problem {
            FileProblem::IndexOffset { header, indexed, read } => (header, indexed.abs_diff(read)),
            other => panic!("{other}"),
        };
        assert_eq!(offset_of(offset), (1, 1));
        let cut = &whole[..end - 8 - 4 * 8];
        let missing = FileProblem::NoIndex { headers: 2 };
        assert_eq!(problem(cut), (Position::Byte(cut.len() as u64), missing));
        for (length, expected) in [(0, 0), (7, 7), (8, 8), (17, 17)] {
            let bytes = [cut, &entry(0x3266, &vec![0; length])].concat();
            assert_eq!(problem(&bytes).1, FileProblem::IndexLength { length: expected });
        }
        let ere = ere(headers);
        let end = ere.len();
        for components in [0, 1, 2, 4, 6, u64::MAX] {
            let mut bytes = ere.clone();
            bytes[end - 16..end - 8].copy_from_slice(&components.to_le_bytes());
            let offsets = FileProblem::IndexOffsets { offsets: 6, blocks: 2, components };
            assert_eq!(problem(&bytes).1, offsets);
        }
    }

    #[test]
    fn archives_have_at_most_8192_headers() {
        let header = entry(3, &snappy(&linked()[0].rlp));
        let bytes = file(&[header.repeat(8193)]);
        let mut reader = HeaderReader::new(Input::new(&bytes[..])).expect("an archive");
        assert_eq!(reader.by_ref().flatten().count(), 8192);
        let error = reader.next_batch().expect_err("one too many");
        assert_eq!(error.problem, FileProblem::TooManyHeaders { limit: 8192 });
    }
}
