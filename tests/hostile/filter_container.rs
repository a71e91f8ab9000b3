//! Container files of filters: cut, damaged and made up.

use std::io::{self, Read, Write};

use chainsieve::bitcoin::BlockHash;
use chainsieve::bitcoin::bip158::FilterHeader;
use chainsieve::bitcoin::hashes::Hash as _;
use chainsieve::btc::bip158::container::{
    BatchReader, ContainerError, Header, Intact, MAX_FILTER_LENGTH, RecordPlace, Records, Writer,
};

use crate::survives;
use testkit::Rng;

/// Height of the first filter.
const START: u32 = 700_000;

fn header() -> Header {
    Header {
        network_magic: [0xf9, 0xbe, 0xb4, 0xd9],
        start_height: START,
        previous_filter_header: FilterHeader::from_byte_array([0x2a; 32]),
    }
}

/// Hash and filter of a block.
type Record = (BlockHash, Vec<u8>);

fn records(count: usize) -> Vec<Record> {
    let mut rng = Rng::new(158);
    let mut record = |length| (BlockHash::from_byte_array(rng.array()), rng.bytes(length));
    (0..count).map(|number| record(number * 7 % 60)).collect()
}

fn file(header: Header, records: &[Record]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer = Writer::create(&mut bytes, header).expect("memory");
    for (hash, content) in records {
        writer.append(hash, content).expect("short");
    }
    bytes
}

/// The records before the end or the damage, the intact part, and the damage.
type Outcome = (Vec<(u32, Record)>, Intact, Option<ContainerError>);

/// Reads a file from memory and as a stream, and checks that both give the same.
fn read(file: &[u8]) -> Result<Outcome, ContainerError> {
    let from_memory = survives("Records", file, 2, 20_000, || from_memory(file));
    for enough in [0, 100, 1 << 20] {
        let streamed = survives("BatchReader", file, 16, 40_000, || streamed(file, enough));
        assert_eq!(streamed, from_memory, "batches of {enough}");
    }
    let recovered = BatchReader::new(file).and_then(BatchReader::recover);
    let expected = from_memory.clone().map(|(_, intact, damage)| (intact, damage));
    assert_eq!(recovered, expected);
    from_memory
}

fn from_memory(file: &[u8]) -> Result<Outcome, ContainerError> {
    let mut records = Records::new(file)?;
    let (mut good, mut damage) = (Vec::new(), None);
    for item in records.by_ref() {
        assert_eq!(damage, None, "nothing comes after damage");
        match item {
            Ok(item) => good.push((item.height, (item.block_hash, item.content.to_vec()))),
            Err(error) => damage = Some(error),
        }
    }
    Ok((good, *records.intact(), damage))
}

fn streamed(file: &[u8], enough: usize) -> Result<Outcome, ContainerError> {
    let mut reader = BatchReader::new(file)?;
    let mut good = Vec::new();
    loop {
        let end = reader.read(enough);
        let items = reader.items();
        good.extend(items.map(|item| (item.height, (item.block_hash, item.content.to_vec()))));
        if reader.items().len() == 0 {
            assert_eq!(reader.read(enough), end, "once more");
            return Ok((good, *reader.intact(), end.err()));
        }
        assert_eq!(end, Ok(()));
    }
}

/// Returns the end offset of each record.
fn ends(records: &[Record]) -> Vec<usize> {
    let mut end = Header::LEN;
    let ends = records.iter().map(|(_, content)| {
        end += content.len() + 40;
        end
    });
    ends.collect()
}

fn check_good(good: &[(u32, Record)], records: &[Record]) {
    for ((height, record), (number, expected)) in good.iter().zip((0..).zip(records)) {
        assert_eq!((*height, record), (START + number, expected));
    }
}

#[test]
fn a_file_cut_at_any_byte_gives_what_is_whole_and_can_be_gone_on_with() {
    let records = records(40);
    let whole = file(header(), &records);
    let ends = ends(&records);
    for cut in 0..whole.len() {
        let mut bytes = whole[..cut].to_vec();
        let outcome = read(&bytes);
        if cut < Header::LEN {
            assert_eq!(outcome, Err(ContainerError::HeaderTruncated { length: cut }));
            continue;
        }
        let (good, intact, damage) = outcome.expect("a header");
        let count = ends.iter().filter(|&&end| end <= cut).count();
        assert_eq!((good.len(), intact.records as usize), (count, count));
        check_good(&good, &records);
        let start = if count == 0 { Header::LEN } else { ends[count - 1] };
        assert_eq!(intact.bytes, start as u64);
        assert_eq!(intact.last_block, count.checked_sub(1).map(|last| records[last].0));
        match damage {
            None => assert_eq!(cut, start),
            Some(ContainerError::RecordTruncated { place, needed, left }) => {
                let record = u32::try_from(count).expect("few");
                let height = START + record;
                assert_eq!(place, RecordPlace { record, height, offset: start as u64 });
                assert_eq!(left, (cut - start) as u64);
                let whole = (ends[count] - start) as u64;
                assert_eq!(needed, if left < 36 { 40 } else { whole });
                assert!(left < needed);
            }
            Some(other) => panic!("{other} at {cut}"),
        }
        // Appending the missing records to the intact part gives the whole file.
        bytes.truncate(usize::try_from(intact.bytes).expect("a length"));
        let mut writer = Writer::resume(&mut bytes, intact);
        for (hash, content) in &records[count..] {
            writer.append(hash, content).expect("memory");
        }
        assert_eq!(writer.intact().bytes, whole.len() as u64);
        assert!(bytes == whole);
    }
}

#[test]
fn a_file_with_any_bit_flipped_gives_what_is_before() {
    let records = records(20);
    let whole = file(header(), &records);
    let ends = ends(&records);
    let mut kinds = [0; 3];
    for at in 0..whole.len() {
        for bit in 0..8 {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << bit;
            let outcome = read(&bytes);
            if at < Header::LEN {
                let error = outcome.expect_err("a damaged header");
                let expected = match at {
                    0..8 => matches!(error, ContainerError::NotAContainer(_)),
                    8..10 => matches!(error, ContainerError::Version(_)),
                    _ => matches!(error, ContainerError::HeaderChecksum { .. }),
                };
                assert!(expected, "{error} at {at}");
                continue;
            }
            let (good, intact, damage) = outcome.expect("a header");
            let count = ends.iter().filter(|&&end| end <= at).count();
            assert_eq!((good.len(), intact.records as usize), (count, count));
            check_good(&good, &records);
            let is_at = |place: RecordPlace| place.record as usize == count;
            match damage.expect("damage") {
                ContainerError::RecordChecksum { place, stored, computed } => {
                    assert!(is_at(place) && stored != computed);
                    kinds[0] += 1;
                }
                ContainerError::RecordTruncated { place, .. } => {
                    assert!(is_at(place));
                    kinds[1] += 1;
                }
                ContainerError::FilterTooLong { place, length } => {
                    assert!(is_at(place) && length > u64::from(MAX_FILTER_LENGTH));
                    kinds[2] += 1;
                }
                other => panic!("{other} at {at}"),
            }
        }
    }
    assert!(kinds.iter().all(|&count| count > 100), "{kinds:?}");
}

#[test]
fn records_out_of_their_place_are_damage() {
    let records = records(9);
    let (whole, ends) = (file(header(), &records), ends(&records));
    // Intact records in the wrong place: 3 and 4 swapped, 3 left out, and 3 repeated.
    let part = |record: usize| &whole[ends[record - 1]..ends[record]];
    let before = &whole[..ends[2]];
    let made = [[before, part(4), part(3), part(5)].concat(), [before, part(4), part(5)].concat()];
    for bytes in made {
        let (good, _, damage) = read(&bytes).expect("a header");
        assert_eq!(good.len(), 3);
        assert!(matches!(damage, Some(ContainerError::RecordChecksum { .. })), "{damage:?}");
    }
    let (good, _, damage) = read(&[before, part(3), part(3)].concat()).expect("a header");
    assert_eq!(good.len(), 4);
    assert!(matches!(damage, Some(ContainerError::RecordChecksum { .. })), "{damage:?}");
}

#[test]
fn lengths_up_to_the_limit_take_memory_only_for_what_is_there() {
    let limit = MAX_FILTER_LENGTH as usize;
    let largest = (BlockHash::all_zeros(), vec![7; limit]);
    let bytes = file(header(), std::slice::from_ref(&largest));
    let (good, _, damage) = read(&bytes).expect("a header");
    assert_eq!((good, damage), (vec![(START, largest)], None));

    let mut refused = Vec::new();
    let mut writer = Writer::create(&mut refused, header()).expect("memory");
    let place = RecordPlace { record: 0, height: START, offset: 56 };
    let length = u64::from(MAX_FILTER_LENGTH) + 1;
    let too_long = ContainerError::FilterTooLong { place, length };
    assert_eq!(writer.append(&BlockHash::all_zeros(), &vec![0; limit + 1]), Err(too_long));
    assert_eq!((writer.intact().records, refused.len()), (0, 56));

    for (length, is_over) in
        [(limit - 1, false), (limit, false), (limit + 1, true), (u32::MAX as usize, true)]
    {
        for behind in [0, 1, 4, 5_000] {
            let mut bytes = header().to_bytes().to_vec();
            bytes.extend(u32::try_from(length).expect("32 bits").to_le_bytes());
            bytes.extend(vec![0; 32 + behind]);
            // `read` limits the memory.
            let (good, _, damage) = read(&bytes).expect("a header");
            let (needed, left) = (length as u64 + 40, 36 + behind as u64);
            let expected = if is_over {
                ContainerError::FilterTooLong { place, length: length as u64 }
            } else {
                ContainerError::RecordTruncated { place, needed, left }
            };
            assert_eq!((good.len(), damage), (0, Some(expected)));
        }
    }
}

#[test]
fn no_record_is_past_the_last_height() {
    let last = Header { start_height: u32::MAX - 1, ..header() };
    let mut bytes = file(last, &records(1));
    let (good, intact, damage) = read(&bytes).expect("a header");
    assert_eq!((good.len(), damage), (1, None));
    assert_eq!(intact.next_height(), u32::MAX);
    let over = ContainerError::TooManyRecords { record: 1, offset: intact.bytes };
    let mut writer = Writer::resume(&mut bytes, intact);
    assert_eq!(writer.append(&BlockHash::all_zeros(), &[0]), Err(over));
    bytes.push(0);
    assert_eq!(read(&bytes).expect("a header").2, Some(over));
}

/// A reader that fails after its bytes.
struct Failing<'a> {
    rest: &'a [u8],
    kind: io::ErrorKind,
}

impl Read for Failing<'_> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        match self.rest.read(to)? {
            0 => Err(self.kind.into()),
            read => Ok(read),
        }
    }
}

/// A writer that accepts this many bytes.
struct Full(usize);

impl Write for Full {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = bytes.len().min(self.0);
        self.0 -= written;
        if written == 0 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(written) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn failing_streams_are_errors_behind_what_is_intact() {
    let records = records(12);
    let whole = file(header(), &records);
    let ends = ends(&records);
    let kind = io::ErrorKind::TimedOut;
    for at in 0..whole.len() {
        let count = ends.iter().filter(|&&end| end <= at).count();
        let offset = match count.checked_sub(1) {
            Some(last) => ends[last] as u64,
            None if at < Header::LEN => 0,
            None => Header::LEN as u64,
        };
        let failed = ContainerError::Io { kind, offset };
        match BatchReader::new(Failing { rest: &whole[..at], kind }) {
            Err(error) => assert_eq!((error, at < Header::LEN), (failed, true)),
            Ok(mut reader) => {
                if count > 0 {
                    assert_eq!(reader.read(usize::MAX), Ok(()));
                    assert_eq!(reader.items().len(), count);
                }
                assert_eq!(reader.read(usize::MAX), Err(failed));
                assert_eq!(reader.intact().records as usize, count);
                assert_eq!(reader.recover(), Err(failed));
            }
        }

        let full = ContainerError::Io { kind: io::ErrorKind::StorageFull, offset };
        match Writer::create(Full(at), header()) {
            Err(error) => assert_eq!((error, at < Header::LEN), (full, true)),
            Ok(mut writer) => {
                let written = records.iter().map(|(hash, content)| writer.append(hash, content));
                let written: Vec<_> = written.take_while(Result::is_ok).collect();
                assert_eq!(written.len(), count);
                assert_eq!(
                    (writer.intact().records as usize, writer.intact().bytes),
                    (count, offset)
                );
            }
        }
    }
}
