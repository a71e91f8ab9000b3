//! Files of headers: neither their format nor the way in which the bytes arrive changes the
//! headers.

use std::io::{Cursor, Read};

use chainsieve::eth::files::{
    FileError, FileFormat, FileProblem, HeaderBatch, HeaderReader, Input, Position,
};
use chainsieve::eth::header::{ChainError, LinkedHeaders};

use testkit::eth::header_files::{forms, linked, list};

/// A reader that gives one byte at a time, and is interrupted before each.
struct Trickle<'a>(&'a [u8], bool);

impl Read for Trickle<'_> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        self.1 = !self.1;
        if self.1 {
            return Err(std::io::ErrorKind::Interrupted.into());
        }
        let length = out.len().min(1);
        self.0.read(&mut out[..length])
    }
}

/// Returns the RLP of each header, read one at a time and read in batches.
fn each<R: Read>(read: impl Fn() -> HeaderReader<R>) -> [Vec<Vec<u8>>; 2] {
    let one = read().map(|header| header.expect("a header").rlp().to_vec()).collect();
    let mut batches = Vec::new();
    let mut reader = read();
    while let Some(batch) = reader.next_batch().expect("headers") {
        assert!(!batch.is_empty());
        batches.extend(batch.headers().map(|header| header.expect("a header").1.rlp().to_vec()));
        assert!(batch.rlp().ends_with(batches.last().expect("one")));
    }
    assert_eq!(reader.next_batch(), Ok(None));
    [one, batches]
}

#[test]
fn headers_are_the_same_in_every_form() {
    let headers = linked();
    let rlp: Vec<_> = headers.iter().map(|header| header.rlp.clone()).collect();
    let mut seen = Vec::new();
    for form in forms(&headers) {
        let twice = form.name == "two archives";
        let expected = if twice { [&rlp[..], &rlp].concat() } else { rlp.clone() };
        let bytes = &form.bytes[..];
        let memory = || HeaderReader::new(Input::new(bytes)).expect("detected");
        assert_eq!(memory().format(), form.format, "{}", form.name);
        assert_eq!(each(memory), [expected.clone(), expected.clone()], "{}", form.name);
        let trickle = || HeaderReader::new(Input::new(Trickle(bytes, false))).expect("detected");
        assert_eq!(each(trickle), [expected.clone(), expected.clone()], "{}", form.name);
        let file = || {
            let input = Input::seekable(Cursor::new(bytes)).expect("a cursor seeks");
            HeaderReader::with_format(input, form.format).expect("the format")
        };
        assert_eq!(each(file), [expected.clone(), expected], "{}", form.name);
        seen.push(form.format);
    }
    seen.dedup();
    let all = [FileFormat::Rlp, FileFormat::Hex, FileFormat::Json, FileFormat::Era];
    assert_eq!(seen, all);
}

#[test]
fn an_input_starts_where_its_reader_stands() {
    let rlp = linked()[0].rlp.clone();
    let mut file = Cursor::new([&[0; 10], &rlp[..]].concat());
    file.set_position(10);
    let mut input = Input::seekable(file).expect("a cursor seeks");
    assert_eq!((input.offset(), input.left()), (0, Some(rlp.len() as u64)));
    let mut first = [0];
    input.read_exact(&mut first).expect("a byte");
    assert_eq!((input.offset(), input.left()), (1, Some(rlp.len() as u64 - 1)));
    let mut rest = Vec::new();
    input.read_to_end(&mut rest).expect("memory");
    assert_eq!([&first[..], &rest].concat(), rlp);
    assert_eq!((input.offset(), input.left()), (rlp.len() as u64, Some(0)));
}

#[test]
fn formats_show_at_the_start_and_have_names() {
    for (start, format) in [
        (&b"e2\0\0\0\0\0\0"[..], Some(FileFormat::Era)),
        (b"e2", Some(FileFormat::Hex)),
        (b"\xf9\x02\x11", Some(FileFormat::Rlp)),
        (b"\xc0", Some(FileFormat::Rlp)),
        (b" \n\t{", Some(FileFormat::Json)),
        (b"\xef\xbb\xbf[", Some(FileFormat::Json)),
        (b"\"0x", Some(FileFormat::Json)),
        (b"0xf9", Some(FileFormat::Hex)),
        (b"# headers", Some(FileFormat::Hex)),
        (b"\x80", None),
        (b"what", None),
        (b" ", None),
        (b"", None),
    ] {
        assert_eq!(FileFormat::detect(start), format, "{start:?}");
        let found = Input::new(Trickle(start, false)).format();
        let expected = format.ok_or(match start {
            [] => FileProblem::Empty,
            [first, ..] => FileProblem::UnknownFormat { first: *first },
        });
        assert_eq!(found.map_err(|error| error.problem), expected, "{start:?}");
    }
    // White space longer than the buffer.
    let spaces = vec![b' '; 1 << 20];
    let error = Input::new(&spaces[..]).format().expect_err("nothing but white space");
    assert_eq!(error.problem, FileProblem::UnknownFormat { first: b' ' });
    for name in ["rlp", "json", "hex", "era"] {
        assert_eq!(name.parse::<FileFormat>().expect("a name").to_string(), name);
    }
    let error = "era1".parse::<FileFormat>().expect_err("no name");
    assert_eq!(error.to_string(), "\"era1\" is not a format: rlp, json, hex or era");
}

/// Returns a batch of all headers.
fn batch(rlp: &[u8]) -> HeaderBatch {
    let mut reader =
        HeaderReader::with_format(Input::new(rlp), FileFormat::Rlp).expect("RLP is always read");
    reader.next_batch().expect("headers").expect("one at least")
}

#[test]
fn trimmed_batches_hold_the_range() {
    let headers = linked();
    let all: Vec<_> = headers.iter().flat_map(|header| header.rlp.clone()).collect();
    let check = |range: &dyn Fn(&mut HeaderBatch), contains: &dyn Fn(u64) -> bool| {
        let mut trimmed = batch(&all);
        range(&mut trimmed);
        let kept = headers.iter().filter(|header| contains(header.number));
        let rlp: Vec<_> = kept.flat_map(|header| header.rlp.clone()).collect();
        assert_eq!(trimmed.rlp(), rlp);
        let found: Vec<_> =
            trimmed.headers().map(|header| header.expect("one").1.number()).collect();
        let numbers = headers.iter().map(|header| header.number);
        assert_eq!(found, numbers.filter(|number| contains(*number)).collect::<Vec<_>>());
        assert_eq!(trimmed.len(), found.len());
    };
    for from in 10_234_000..=10_234_008 {
        check(&|batch| batch.trim(from..), &|number| number >= from);
        check(&|batch| batch.trim(..from), &|number| number < from);
        for to in from..=10_234_008 {
            let range = from..=to;
            check(&|batch| batch.trim(range.clone()), &|number| range.contains(&number));
        }
    }
    check(&|batch| batch.trim(..), &|_| true);
    // Trimming drops headers at the two ends only, and drops no malformed header.
    let mut twice = batch(&[&all[..], &all].concat());
    twice.trim(10_234_002..10_234_007);
    assert_eq!(twice.len(), 12);
    let mut malformed = batch(&[&[0xc1, 0x80], &all[..]].concat());
    malformed.trim(10_234_007..);
    assert_eq!(malformed.len(), 8);
}

#[test]
fn batches_link_and_name_the_header_at_fault() {
    let headers = linked();
    let rlp: Vec<_> = headers.iter().map(|header| &header.rlp[..]).collect();
    let length = |headers: &[&[u8]]| headers.concat().len() as u64;
    let mut chain = LinkedHeaders::new();
    batch(&rlp[..3].concat()).link(&mut chain).expect("linked");
    batch(&rlp[3..].concat()).link_first(&mut chain).expect("linked");
    assert_eq!(chain.last_hash(), Some(headers[3].hash));
    let wrong = |rlp: &[&[u8]]| {
        let mut chain = LinkedHeaders::new();
        let error = batch(&rlp.concat()).link(&mut chain).expect_err("not linked");
        (error, chain.len())
    };
    let gap = FileProblem::Chain(ChainError::Gap { last: 10_234_002, found: 10_234_004 });
    let (error, linked) = wrong(&[rlp[0], rlp[1], rlp[3]]);
    let at = Position::Byte(length(&rlp[..2]));
    assert_eq!((&error.position, &error.problem, linked), (&at, &gap, 2));
    assert_eq!(
        error.to_string(),
        format!(
            "byte {}: block 10234004 comes after block 10234002: 1 are missing",
            length(&rlp[..2])
        )
    );
    let (FileError { position, problem, .. }, linked) = wrong(&[rlp[0], &[0xc1, 0x80], rlp[1]]);
    assert_eq!((position, linked), (Position::Byte(length(&rlp[..1])), 1));
    assert!(matches!(problem, FileProblem::Header(_)), "{problem:?}");
}

/// Errors of the reader keep their kind, and give the position at which reading stopped.
#[test]
fn errors_of_the_reader_keep_their_kind() {
    struct Broken<'a>(&'a [u8]);
    impl Read for Broken<'_> {
        fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
            if self.0.is_empty() {
                return Err(std::io::Error::new(std::io::ErrorKind::ConnectionReset, "cable"));
            }
            self.0.read(out)
        }
    }
    let headers = linked();
    let rlp = &headers[0].rlp;
    let bytes = [&rlp[..], &rlp[..9]].concat();
    let mut reader = HeaderReader::new(Input::new(Broken(&bytes))).expect("RLP");
    assert_eq!(reader.next().expect("one").expect("a header").hash(), headers[0].hash);
    let error = reader.next().expect("an error").expect_err("broken");
    let kind = std::io::ErrorKind::ConnectionReset;
    assert_eq!(error.problem, FileProblem::Io { kind, message: "cable".into() });
    assert!(error.to_string().ends_with(": cannot read: cable"), "{error}");
    // The iterator ends after an error. `next_batch` returns the error again.
    assert!(reader.next().is_none());
    assert_eq!(reader.next_batch(), Err(error));
}

mod archives {
    use chainsieve::eth::files::{Archive, BlockEntries, EntryKind, body_transactions};

    use super::*;
    use testkit::eth::header_files::era::{data, era1, ere};

    #[test]
    fn entries_of_blocks_come_with_their_numbers() {
        let headers = linked();
        let file = [era1(&headers), ere(&headers[2..]), era1(&headers[1..3])].concat();
        let blocks = |from: usize, to: usize, kind| {
            (from..to).map(move |at| (headers_number(at), data(kind, at - from)))
        };
        let expect = |kinds: [(u16, EntryKind); 3]| -> Vec<_> {
            let spans = [(0, 7), (2, 7), (1, 3)].into_iter().zip(kinds);
            spans
                .flat_map(|((from, to), (kind, name))| {
                    blocks(from, to, kind).map(move |(number, data)| (number, name, data))
                })
                .collect()
        };
        let read = |mut entries: BlockEntries<_>| {
            let mut found = Vec::new();
            while let Some((number, entry)) = entries.next_entry().expect("an entry") {
                let kind = entry.kind();
                found.push((number, kind, entry.decompress(100).expect("data")));
            }
            found
        };
        let body = (4, EntryKind::Body);
        let file = || Input::seekable(Cursor::new(&file[..])).expect("a cursor seeks");
        assert_eq!(read(BlockEntries::bodies(file())), expect([body; 3]));
        let receipts = (5, EntryKind::Receipts);
        let slim = (10, EntryKind::SlimReceipts);
        assert_eq!(read(BlockEntries::receipts(file())), expect([receipts, slim, receipts]));
    }

    fn headers_number(at: usize) -> u64 {
        10_234_001 + at as u64
    }

    #[test]
    fn entries_that_are_not_read_are_passed_over() {
        let headers = linked();
        let file = era1(&headers);
        let mut archive = Archive::new(Input::new(Trickle(&file, false)));
        let mut kinds = Vec::new();
        let mut difficulties = 0;
        while let Some(entry) = archive.next_entry().expect("an entry") {
            kinds.push(entry.kind());
            let [offset, length] = [entry.offset(), entry.data_length()]
                .map(|bytes| usize::try_from(bytes).expect("a small file"));
            if entry.kind() == EntryKind::TotalDifficulty {
                assert_eq!(entry.read(32).expect("data"), [7; 32]);
                assert_eq!(file[offset + 8..][..length], [7; 32]);
                difficulties += 1;
            }
        }
        assert_eq!((kinds.len(), difficulties), (1 + 4 * 7 + 2, 7));
        let ends = [kinds[0], kinds[1], kinds[29], kinds[30]];
        let expected =
            [EntryKind::Version, EntryKind::Header, EntryKind::Accumulator, EntryKind::Index];
        assert_eq!(ends, expected);
        assert_eq!(archive.offset(), file.len() as u64);
    }

    #[test]
    fn transactions_are_taken_out_of_bodies_as_they_are_in_their_trie() {
        let legacy = list(&[1, 2, 3]);
        let typed = [&[2], &list(&[4; 60])[..]].concat();
        let string = alloy_rlp::encode(&typed[..]);
        let transactions = list(&[&legacy[..], &string, &[0x05]].concat());
        let body = list(&[&transactions[..], &[0xc0, 0xc0]].concat());
        assert_eq!(body_transactions(&body).expect("a body"), [legacy, typed, vec![5]]);
        assert_eq!(body_transactions(&[0xc2, 0xc0, 0xc0]).expect("a body").len(), 0);
        for end in 0..body.len() {
            assert!(body_transactions(&body[..end]).is_err(), "{end}");
        }
    }
}
