//! Fills of an index compared with those of headers, and detection of false indexes.

use std::ops::RangeInclusive;

use alloy_primitives::{B256, Bloom, BloomInput};

use super::format::segment::{Coding, HEADER, RECORD, ROW, RowEntry, SectionRecord, SegmentHeader};
use super::format::segment::{UNIT, entry_len};
use super::format::tail::{SLOT, Slot, SlotPlace};
use super::{Damage, IndexError, Part};
use super::{Folder, Index, Settings, Writer};
use crate::eth::bloom::BITS;
use crate::eth::bloom::FillHistogram;
use crate::eth::header::LinkedHeaders;
use testkit::TestFolder;

const FIRST: u64 = 77;
const SECTION: u64 = 8192;
const SECTIONS: u64 = 2;
const TAIL: u64 = 300;

/// Returns the value that every `period`th block contains.
fn value(period: u64) -> [u8; 8] {
    period.to_be_bytes()
}

/// Returns synthetic linked headers: most have few values, some have many, and some filters are
/// full.
fn headers(salt: u64) -> Vec<Vec<u8>> {
    let mut parent_hash = B256::repeat_byte(1);
    let mut headers = Vec::new();
    for number in FIRST..FIRST + SECTIONS * SECTION + TAIL {
        let mut logs_bloom = Bloom::ZERO;
        let others = if number % 11 == 3 { 900 } else { 20 + number % 90 };
        for period in [2, 3, 50, 700, 5_000].into_iter().filter(|period| number % period == 0) {
            logs_bloom.accrue(BloomInput::Raw(&value(period)));
        }
        for other in 0..others {
            let mix = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ other << 32 ^ salt;
            logs_bloom.accrue(BloomInput::Raw(&mix.to_be_bytes()));
        }
        if number % 1000 == 999 {
            logs_bloom = Bloom::repeat_byte(0xff);
        }
        let gas_used = 21_000 * (others + number * 31 % 200);
        let timestamp = 1_600_000_000 + number * 12 + salt;
        let header = alloy_consensus::Header {
            parent_hash,
            number,
            logs_bloom,
            gas_used,
            timestamp,
            ..Default::default()
        };
        headers.push(alloy_rlp::encode(&header));
        parent_hash = header.hash_slow();
    }
    headers
}

fn chain_of(headers: &[Vec<u8>]) -> LinkedHeaders {
    let mut chain = LinkedHeaders::new();
    chain.extend_from_rlp(&headers.concat()).unwrap();
    chain
}

/// An index in a folder that is removed on drop.
struct Built(TestFolder);

impl Built {
    fn new(name: &str, headers: &[Vec<u8>], block_hashes: bool) -> Self {
        let folder = TestFolder::new(name);
        let mut settings = Settings::new("test").unwrap();
        if block_hashes {
            settings = settings.with_block_hashes();
        }
        let writer = Writer::open(Folder::new(folder.path()), &settings).unwrap();
        let mut writer = writer.with_confirmations(TAIL);
        writer.append(&chain_of(headers)).unwrap();
        writer.sync().unwrap();
        Self(folder)
    }

    fn index(&self) -> Index<Folder> {
        Index::open(Folder::new(self.0.path())).unwrap()
    }

    /// Changes the bytes of the only file whose name has this ending.
    fn patch(&self, ending: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let names = std::fs::read_dir(self.0.path()).unwrap().map(|entry| entry.unwrap().path());
        let path = names.into_iter().find(|path| path.to_str().unwrap().ends_with(ending)).unwrap();
        let mut bytes = std::fs::read(&path).unwrap();
        change(&mut bytes);
        std::fs::write(path, bytes).unwrap();
    }

    /// Returns the result of the check for damage, then the result of the comparison with headers.
    fn verdicts(&self, chain: &LinkedHeaders) -> [Result<(), IndexError>; 2] {
        let index = self.index();
        let checked = index.check(|_, _| {}).map(|_| ());
        [checked, verified(&index, chain).map(|_| ())]
    }
}

/// Returns the blocks and the number of whole sections that were compared with the headers of a chain.
fn verified(
    index: &Index<Folder>,
    chain: &LinkedHeaders,
) -> Result<(Option<RangeInclusive<u64>>, u64), IndexError> {
    let mut verifier = index.verifier();
    verifier.add(chain)?;
    verifier.finish()?;
    Ok((verifier.blocks, verifier.sections))
}

fn part_of(error: &IndexError) -> (Part, Option<u64>) {
    match error {
        IndexError::Damaged { part, .. } => (*part, None),
        IndexError::Differs { part, number, .. } => (*part, Some(*number)),
        other => panic!("{other}"),
    }
}

/// Returns a chain with the headers of a range.
fn slice(headers: &[Vec<u8>], first: u64, last: u64) -> LinkedHeaders {
    let index = |number: u64| usize::try_from(number - FIRST).unwrap();
    chain_of(&headers[index(first)..=index(last)])
}

#[test]
fn a_missing_folder_is_named() {
    let folder = TestFolder::absent("missing");
    let settings = Settings::new("test").unwrap();
    let error = Writer::open(Folder::new(folder.path()), &settings).err();
    assert_eq!(error, Some(IndexError::NoFolder));
}

#[test]
fn fills_are_those_of_the_headers() {
    let headers = headers(0);
    let built = Built::new("fills", &headers, false);
    let index = built.index();
    let end = FIRST + SECTIONS * SECTION + TAIL - 1;
    let sealed = FIRST + SECTIONS * SECTION;
    for (first, last) in [
        (FIRST, end),
        (FIRST, FIRST + SECTION - 1),
        (FIRST + SECTION, sealed - 1),
        (FIRST + 100, FIRST + 300),
        (FIRST + 8_000, FIRST + 9_000),
        (FIRST + 12_000, end),
        (sealed, end),
        (sealed + 3, sealed + 3),
    ] {
        let mut expected = FillHistogram::default();
        expected.add(slice(&headers, first, last).blooms());
        assert_eq!(index.fills(first..=last), Ok(expected), "{first} to {last}");
    }
    assert!(matches!(index.fills(FIRST..=end + 1), Err(IndexError::Range { .. })));
}

#[test]
fn an_index_that_is_true_passes_in_any_pieces() {
    let headers = headers(0);
    for hashes in [false, true] {
        let built = Built::new(&format!("true-{hashes}"), &headers, hashes);
        let index = built.index();
        let mut told = Vec::new();
        let checked = index.check(|done, total| told.push((done, total))).unwrap();
        assert!(told.is_sorted() && told.len() > BITS, "{}", told.len());
        let (done, total) = *told.last().unwrap();
        assert_eq!((done, total), (checked, checked));
        assert_eq!(index.sealed(), SECTIONS * SECTION);
        for size in [headers.len(), 8192, 8191, 5000, 777] {
            let mut verifier = index.verifier();
            for piece in headers.chunks(size) {
                verifier.add(&chain_of(piece)).unwrap();
            }
            verifier.finish().unwrap();
            assert_eq!(verifier.blocks, index.numbers());
            assert_eq!(verifier.sections, SECTIONS, "{size}");
        }
        let end = FIRST + SECTIONS * SECTION + TAIL - 1;
        for (first, last, whole) in [
            (FIRST + 1, end, 1),
            (FIRST, end - TAIL - 1, 1),
            (FIRST + 8_191, FIRST + 8_192, 0),
            (FIRST + 5, FIRST + 5, 0),
            (end, end, 0),
        ] {
            let chain = slice(&headers, first, last);
            assert_eq!(verified(&index, &chain), Ok((Some(first..=last), whole)));
        }
        // The verifier rejects chains that leave a gap, repeat blocks, or belong to a different
        // branch.
        let mut verifier = index.verifier();
        verifier.add(&slice(&headers, FIRST, FIRST + 9)).unwrap();
        let gap = verifier.add(&slice(&headers, FIRST + 11, FIRST + 12));
        assert_eq!(gap, Err(IndexError::Gap { last: FIRST + 9, found: FIRST + 11 }));
        let again = verifier.add(&slice(&headers, FIRST + 5, FIRST + 12));
        let again = again.unwrap_err().to_string();
        assert!(again.contains("block 82") && again.contains("block 86"), "{again}");
        let other = headers_of_another(&headers);
        let unlinked = verifier.add(&slice(&other, FIRST + 10, FIRST + 12));
        assert!(matches!(unlinked, Err(IndexError::Parent { number, .. }) if number == FIRST + 10));
    }
}

/// If an index is replaced by an index of another branch, the reader keeps nothing of the old
/// index.
#[test]
fn a_reader_of_an_index_that_is_built_anew_of_another_branch() {
    let headers = [0, 1].map(headers);
    let [old, new] = [0, 1].map(|at| Built::new(&format!("anew-{at}"), &headers[at], false));
    let mut reader = old.index();
    // After an interrupted write, a sync writes a new generation.
    new.patch(".tail", |bytes| bytes.push(0));
    let writer = Writer::open(Folder::new(new.0.path()), new.index().settings());
    writer.unwrap().sync().unwrap();
    for (from, to) in [(&old, None), (&new, Some(&old))] {
        for entry in std::fs::read_dir(from.0.path()).unwrap().map(Result::unwrap) {
            match to {
                None => std::fs::remove_file(entry.path()).unwrap(),
                Some(to) => {
                    std::fs::copy(entry.path(), to.0.path().join(entry.file_name()))
                        .map(drop)
                        .unwrap();
                }
            }
        }
    }
    assert_eq!(reader.refresh(), Ok(true));
    let (blocks, _) = verified(&reader, &chain_of(&headers[1])).unwrap();
    assert_eq!(blocks, reader.numbers());
}

fn headers_of_another(headers: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let other = self::headers(1);
    assert_eq!(other.len(), headers.len());
    other
}

/// Replaces the entry of a row.
fn put_entry(bytes: &mut [u8], header: &SegmentHeader, row: u16, entry: &RowEntry) {
    let mut new = Vec::new();
    entry.write(row, header.sections, &mut new);
    let at = usize::try_from(header.entry_at(row)).unwrap();
    bytes[at..at + entry_len(header.sections)].copy_from_slice(&new);
}

fn header_of(bytes: &[u8]) -> SegmentHeader {
    SegmentHeader::from_bytes("", bytes[..HEADER].try_into().unwrap()).unwrap()
}

fn entry_of(bytes: &[u8], header: &SegmentHeader, row: u16) -> RowEntry {
    let at = usize::try_from(header.entry_at(row)).unwrap();
    RowEntry::from_bytes("", header, row, &bytes[at..at + entry_len(header.sections)]).unwrap()
}

/// Moves a bit of a raw row of section 1 from one header to another, and updates all checksums.
/// Returns the row, and the block number of the first of the two headers.
fn move_a_bit(bytes: &mut [u8]) -> (u16, u64) {
    let header = header_of(bytes);
    for row in 0..2048 {
        let mut entry = entry_of(bytes, &header, row);
        if Coding::of(entry.ones[1]) != Coding::Raw {
            continue;
        }
        let at = usize::try_from(header.data_at()).unwrap()
            + entry.start as usize * UNIT
            + entry.place(1);
        let data = &mut bytes[at..at + ROW];
        let bit = |data: &[u8], header: usize| data[header / 8] >> (header % 8) & 1;
        let set = (500..8192).find(|&header| bit(data, header) == 1).unwrap();
        let clear = (set..8192).find(|&header| bit(data, header) == 0).unwrap();
        data[set / 8] ^= 1 << (set % 8);
        data[clear / 8] ^= 1 << (clear % 8);
        entry.crcs[1] = crc32c::crc32c(data);
        put_entry(bytes, &header, row, &entry);
        return (row, FIRST + SECTION + set as u64);
    }
    panic!("no raw row");
}

/// Replaces the record of a section.
fn change_record(bytes: &mut [u8], section: u32, change: impl FnOnce(&mut SectionRecord)) {
    let at = usize::try_from(header_of(bytes).record_at(section)).unwrap();
    let old: &[u8; RECORD] = bytes[at..at + RECORD].try_into().unwrap();
    let mut record = SectionRecord::from_bytes("", 0, section, old).unwrap();
    change(&mut record);
    bytes[at..at + RECORD].copy_from_slice(&record.to_bytes()[..]);
}

/// The checksums of a false index can be valid; only a check of its content detects it.
#[test]
fn an_index_that_is_false_is_found_out() {
    let headers = headers(0);
    let chain = chain_of(&headers);
    let built = Built::new("false", &headers, true);
    let segment = std::fs::read(built.0.path().join("00000000-02.segment")).unwrap();
    let restore = || std::fs::write(built.0.path().join("00000000-02.segment"), &segment).unwrap();
    assert_eq!(built.verdicts(&chain), [Ok(()), Ok(())]);

    // In this index, a bit was moved to another block.
    let mut moved = (0, 0);
    built.patch(".segment", |bytes| moved = move_a_bit(bytes));
    let [alone, compared] = built.verdicts(&chain);
    assert_eq!(part_of(&alone.unwrap_err()).0, Part::Section { section: 1 });
    let (row, number) = moved;
    let error = compared.unwrap_err();
    assert_eq!(part_of(&error), (Part::Row { row, section: 1 }, Some(number)));
    let what = format!(
        "00000000-02.segment differs from the headers at block {number}, row {row} in section 1: \
         bit {row} is set in its filter, but not set in the index"
    );
    assert_eq!(error.to_string(), what);
    // A comparison with only the header of block `number` finds the difference; a comparison with
    // only the preceding header does not.
    let index = built.index();
    let one = |number: u64| verified(&index, &slice(&headers, number, number));
    assert_eq!(one(number).map(|_| ()), Err(error));
    assert!(one(number - 1).is_ok());
    restore();

    // In these indexes, the gas, the timestamps or the hashes differ from the headers.
    built.patch(".segment", |bytes| change_record(bytes, 0, |record| record.gas[0] += 1));
    let [alone, compared] = built.verdicts(&chain);
    assert_eq!(alone, Ok(()), "the changed gas contradicts nothing in the index");
    let found = (Part::Section { section: 0 }, Some(FIRST + SECTION - 1));
    assert_eq!(part_of(&compared.unwrap_err()), found);
    restore();
    built.patch(".segment", |bytes| change_record(bytes, 1, |record| record.first_time += 1));
    let [alone, compared] = built.verdicts(&chain);
    assert_eq!(alone, Ok(()));
    let found = (Part::Section { section: 1 }, Some(FIRST + 2 * SECTION - 1));
    assert_eq!(part_of(&compared.unwrap_err()), found);
    restore();
    built.patch(".segment", |bytes| {
        change_record(bytes, 1, |record| record.parent_hash = B256::repeat_byte(3));
    });
    let [alone, compared] = built.verdicts(&chain);
    assert_eq!(part_of(&alone.unwrap_err()).0, Part::Section { section: 1 });
    let found = (Part::Section { section: 1 }, Some(FIRST + SECTION));
    assert_eq!(part_of(&compared.unwrap_err()), found);
    restore();
    for (place, known) in [(0, true), (4_000, false), (8_191, true)] {
        built.patch(".segment", |bytes| {
            let at = usize::try_from(header_of(bytes).hashes_at(1)).unwrap();
            bytes[at + place * 32] ^= 1;
            let crc = crc32c::crc32c(&bytes[at..at + 8192 * 32]);
            change_record(bytes, 1, |record| record.hashes_crc = crc);
        });
        let [alone, compared] = built.verdicts(&chain);
        assert_eq!(alone.is_err(), known, "{place}");
        let found = (Part::BlockHashes { section: 1 }, Some(FIRST + SECTION + place as u64));
        assert_eq!(part_of(&compared.unwrap_err()), found);
        restore();
    }

    // Padding without a checksum must be zero, and no data may be missing or misplaced.
    let header = header_of(&segment);
    let last = segment.len() - 1;
    let at = usize::try_from(header.data_at()).unwrap();
    let entries: Vec<_> = (0..2048).map(|row| entry_of(&segment, &header, row)).collect();
    let padded =
        (0..2048_u16).find(|&row| !entries[usize::from(row)].data_len().is_multiple_of(UNIT));
    let mut places = vec![(at - 1, Part::SegmentHeader)];
    if let Some(row) = padded {
        let entry = &entries[usize::from(row)];
        let end = at + entry.start as usize * UNIT + entry.data_len();
        places.push((end, Part::Row { row, section: 1 }));
    }
    for (place, part) in places {
        assert_eq!(segment[place], 0, "{place} of {last}");
        built.patch(".segment", |bytes| bytes[place] = 5);
        let [alone, _] = built.verdicts(&chain);
        let error = alone.unwrap_err();
        assert_eq!(part_of(&error).0, part);
        assert!(matches!(error, IndexError::Damaged { offset, .. } if offset == place as u64));
        restore();
    }
    built.patch(".segment", |bytes| {
        let mut entry = entries[7];
        entry.start = entries[6].start;
        put_entry(bytes, &header, 7, &entry);
    });
    let [alone, _] = built.verdicts(&chain);
    let part = part_of(&alone.unwrap_err()).0;
    assert!(matches!(part, Part::RowEntry { row: 7 } | Part::Row { row: 7, .. }), "{part}");
    restore();
}

#[test]
fn unsealed_blocks_are_compared_one_by_one() {
    let headers = headers(0);
    let chain = chain_of(&headers);
    let built = Built::new("unsealed", &headers, false);
    let names = std::fs::read_dir(built.0.path()).unwrap().map(|entry| entry.unwrap().path());
    let tail =
        names.into_iter().find(|path| path.extension().is_some_and(|e| e == "tail")).unwrap();
    let whole = std::fs::read(&tail).unwrap();
    let generation = u64::from_str_radix(tail.file_stem().unwrap().to_str().unwrap(), 16).unwrap();
    for field in 0..4 {
        let mut number = 0;
        built.patch(".tail", |bytes| {
            // Slot 9 contains the tenth unsealed block.
            let slot = 9;
            let at = usize::try_from(SlotPlace::offset(slot)).unwrap();
            let bytes = &mut bytes[at..at + SLOT];
            let old: &[u8; SLOT] = (&*bytes).try_into().unwrap();
            let (slot_of, durable) = Slot::from_bytes(generation, slot, old).unwrap();
            let Slot::Row(mut row) = slot_of else { panic!("a block") };
            match field {
                0 => row.time += 1,
                1 => row.gas_used += 1,
                2 => row.hash.0[0] ^= 1,
                _ => row.bloom[255 - 77 / 8] ^= 1 << (77 % 8),
            }
            number = row.number;
            let place = SlotPlace { generation, slot, durable };
            bytes.copy_from_slice(&Slot::Row(row).to_bytes(place));
        });
        assert_eq!(number, FIRST + SECTIONS * SECTION + 9);
        let [alone, compared] = built.verdicts(&chain);
        assert_eq!(alone, Ok(()), "{field}");
        let error = compared.unwrap_err();
        assert_eq!(part_of(&error), (Part::Unsealed, Some(number)));
        let what = ["its time is", "gas, but the index has", "its hash is", "bit 77 is"][field];
        assert!(error.to_string().contains(what), "{error}");
        std::fs::write(&tail, &whole).unwrap();
    }
    // In this index, the parent of the tail is not the last sealed block.
    let error = IndexError::Damaged {
        file: String::new(),
        offset: 0,
        part: Part::TailHeader,
        damage: Damage::Contradiction(String::new()),
    };
    built.patch(".segment", |bytes| {
        change_record(bytes, 1, |record| record.last_hash = B256::repeat_byte(4));
    });
    let [alone, _] = built.verdicts(&chain);
    assert_eq!(part_of(&alone.unwrap_err()).0, part_of(&error).0);
}
