//! Checks each part of the format against bytes laid out by hand from its table, and checks that
//! changing any byte is detected.

use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use alloc::{format, vec};

use alloy_primitives::B256;

use super::Manifest;
use super::segment::{Coding, RowEntry, SectionRecord, SegmentHeader, entry_len};
use super::tail::{Slot, SlotPlace, TailHeader, TailRow};
use super::{MANIFEST_LEN, Settings, segment, tail};
use crate::eth::index::IndexError;

/// CRC-32C computed bit by bit, as RFC 3720 B.4 defines it.
fn crc(bytes: &[u8]) -> [u8; 4] {
    let mut crc = u32::MAX;
    for &byte in bytes {
        crc ^= u32::from(byte);
        for _ in 0..8 {
            crc = crc >> 1 ^ if crc & 1 == 0 { 0 } else { 0x82f6_3b78 };
        }
    }
    (!crc).to_le_bytes()
}

fn label() -> [u8; 32] {
    let mut label = [0; 32];
    label[..7].copy_from_slice(b"mainnet");
    label
}

fn settings() -> Settings {
    Settings::new("mainnet").unwrap()
}

/// Asserts that a change of any single byte makes `read` fail.
fn every_byte_counts<T>(bytes: &[u8], read: impl Fn(&[u8]) -> Option<T>) {
    assert!(read(bytes).is_some());
    for at in 0..bytes.len() {
        for changed in [bytes[at] ^ 1, bytes[at] ^ 0x80, !bytes[at]] {
            let mut bytes = bytes.to_vec();
            bytes[at] = changed;
            assert!(read(&bytes).is_none(), "byte {at} is {changed}");
        }
    }
}

#[test]
fn the_manifest_is_laid_out_as_its_table_says() {
    let mut bytes = vec![0x89, b'E', b'B', b'M', 0x0d, 0x0a, 0x1a, 0x0a, 1, 0, 1, 0];
    bytes.extend(69_u32.to_le_bytes());
    bytes.extend(1_000_u64.to_le_bytes());
    bytes.extend(0x45_u64.to_le_bytes());
    bytes.extend(label());
    bytes.extend(crc(&bytes));
    assert_eq!(bytes.len(), MANIFEST_LEN);
    let settings = settings().with_block_hashes();
    let manifest = Manifest { settings, sections: 69, first: 1_000, generation: 0x45 };
    assert_eq!(manifest.to_bytes()[..], bytes);
    assert_eq!(Manifest::from_bytes(&bytes), Ok(manifest.clone()));
    assert_eq!(manifest.tail(), "0000000000000045.tail");
    assert_eq!(manifest.unsealed(), 1_000 + 69 * 8_192);
    every_byte_counts(&bytes, |bytes| Manifest::from_bytes(bytes).ok());
    for length in 0..bytes.len() {
        Manifest::from_bytes(&bytes[..length]).unwrap_err();
    }
    let longer = [&bytes[..], &[0]].concat();
    Manifest::from_bytes(&longer).unwrap_err();
}

#[test]
fn what_is_not_known_is_refused_by_name() {
    let manifest = Manifest { settings: settings(), sections: 0, first: 0, generation: 0 };
    let with = |at: usize, value: u8| {
        let mut bytes = manifest.to_bytes();
        bytes[at] = value;
        let checksum = crc(&bytes[..64]);
        bytes[64..].copy_from_slice(&checksum);
        Manifest::from_bytes(&bytes).unwrap_err()
    };
    assert_eq!(with(8, 2), IndexError::Version { file: "manifest".into(), found: 2, known: 1 });
    assert_eq!(with(8, 0), IndexError::Version { file: "manifest".into(), found: 0, known: 1 });
    let flags = IndexError::Flags { file: "manifest".into(), flags: 6, unknown: 6 };
    assert_eq!(with(10, 6), flags);
    assert!(matches!(with(0, 0x88), IndexError::NotOfAnIndex { .. }));
    // These labels are invalid: they contain a zero byte or a control character, are not UTF-8, or
    // are empty.
    for (at, value) in [(33, 0), (33, 7), (33, 0xff), (32, 0)] {
        let error = with(at, value).to_string();
        assert!(error.contains("label"), "{error}");
    }
    let all = Manifest { first: u64::MAX, ..manifest };
    let error = Manifest::from_bytes(&all.to_bytes()).unwrap_err().to_string();
    assert!(error.contains("64 bits"), "{error}");
}

#[test]
fn labels_are_text_of_1_to_32_bytes() {
    for label in ["", "with\nbreak", "thirty-three bytes are one too many"] {
        Settings::new(label).unwrap_err();
    }
    for label in ["x", "op-sepolia", "a chain of thirty-two bytes here"] {
        let settings = Settings::new(label).unwrap();
        let manifest = Manifest { settings, sections: 1, first: 2, generation: 3 };
        assert_eq!(Manifest::from_bytes(&manifest.to_bytes()), Ok(manifest));
    }
}

#[test]
fn the_header_of_a_segment_is_laid_out_as_its_table_says() {
    let mut bytes = vec![0x89, b'E', b'B', b'S', 0x0d, 0x0a, 0x1a, 0x0a, 1, 0, 0, 0];
    bytes.extend(4_u32.to_le_bytes());
    bytes.extend(1_000_u64.to_le_bytes());
    bytes.extend(label());
    bytes.extend(77_u32.to_le_bytes());
    bytes.extend(crc(&bytes));
    let mut header =
        SegmentHeader { settings: settings(), sections: 4, first: 1_000, data_units: 77 };
    assert_eq!(header.to_bytes()[..], bytes);
    let read = |bytes: &[u8]| SegmentHeader::from_bytes("s", bytes.try_into().unwrap());
    assert_eq!(read(&bytes), Ok(header.clone()));
    every_byte_counts(&bytes, |bytes| read(bytes).ok());

    let entry = 8 + 6 * 4;
    assert_eq!(entry_len(4), entry);
    assert_eq!(header.record_at(3), 64 + 3 * 4_496);
    let entries = 64 + 4 * 4_496;
    assert_eq!(header.entry_at(2_047), entries + 2_047 * entry as u64);
    let end = entries + 2_048 * entry as u64;
    assert_eq!(end, 83_584);
    assert_eq!((header.data_at(), header.file_len()), (86_016, 86_016 + 77 * 64));
    header.settings = header.settings.with_block_hashes();
    assert_eq!(header.hashes_at(1), end + 262_144);
    assert_eq!(header.data_at(), (end + 4 * 262_144).next_multiple_of(4_096));

    for (sections, data_units) in [(0, 0), (3, 0), (64, 0), (1, 32_769), (32, 1 << 20 | 1)] {
        header.sections = sections;
        header.data_units = data_units;
        let error = read(&header.to_bytes()).unwrap_err().to_string();
        assert!(error.contains("sections"), "{error}");
    }
    header.sections = 1;
    header.data_units = 32_768;
    read(&header.to_bytes()).unwrap();
}

#[test]
fn the_record_of_a_section_is_laid_out_as_its_table_says() {
    let hash = |byte| B256::repeat_byte(byte);
    let mut bytes = Vec::new();
    for byte in 1..=3 {
        bytes.extend([byte; 32]);
    }
    let numbers = |from: u64| (from..from + 17).map(|number| number << 40 | 0x77);
    bytes.extend(
        [4_u64, 5].into_iter().chain(numbers(6)).chain(numbers(30)).flat_map(u64::to_le_bytes),
    );
    assert_eq!(bytes.len(), 384);
    let mut fills = vec![0_u16; 2_049];
    (fills[0], fills[1], fills[700], fills[2_048]) = (8_000, 90, 100, 2);
    bytes.extend(fills.iter().flat_map(|filters| filters.to_le_bytes()));
    assert_eq!(bytes.len(), 4_482);
    bytes.extend([0; 6]);
    bytes.extend(0x1234_5678_u32.to_le_bytes());
    bytes.extend(crc(&bytes));
    assert_eq!(bytes.len(), segment::RECORD);
    let record = SectionRecord {
        parent_hash: hash(1),
        first_hash: hash(2),
        last_hash: hash(3),
        first_time: 4,
        last_time: 5,
        gas: core::array::from_fn(|class| (6 + class as u64) << 40 | 0x77),
        most_gas: core::array::from_fn(|class| (30 + class as u64) << 40 | 0x77),
        fills: fills.try_into().unwrap(),
        hashes_crc: 0x1234_5678,
    };
    assert_eq!(record.to_bytes()[..], bytes);
    let read = |bytes: &[u8]| SectionRecord::from_bytes("s", 64, 0, bytes.try_into().unwrap());
    assert_eq!(read(&bytes), Ok(record));
    every_byte_counts(&bytes, |bytes| read(bytes).ok());

    // The record has a valid checksum, but its histogram contains one filter too many.
    bytes[384] += 1;
    let checksum = crc(&bytes[..4_492]);
    bytes[4_492..].copy_from_slice(&checksum);
    let error = read(&bytes).unwrap_err().to_string();
    assert!(error.contains("8193 filters"), "{error}");
}

#[test]
fn fills_fall_into_classes_of_128() {
    let classes = [0, 127, 128, 2_047, 2_048].map(segment::fill_class);
    assert_eq!(classes, [0, 0, 1, 15, 16]);
}

/// Returns a row entry with these numbers of set bits in its sections.
fn entry(start: u32, ones: &[u16]) -> RowEntry {
    let mut entry = RowEntry { start, ones: [0; 32], crcs: [0; 32] };
    entry.ones[..ones.len()].copy_from_slice(ones);
    for (section, crc) in (0..).zip(&mut entry.crcs[..ones.len()]) {
        *crc = 0x0101_0101 * section;
    }
    entry
}

#[test]
fn the_entry_of_a_row_is_laid_out_as_its_table_says() {
    let mut bytes = Vec::new();
    bytes.extend(9_u32.to_le_bytes());
    bytes.extend([0_u16, 8_192, 256, 257].into_iter().flat_map(u16::to_le_bytes));
    bytes.extend((0..4_u32).flat_map(|section| (0x0101_0101 * section).to_le_bytes()));
    bytes.extend(crc(&[&2_047_u16.to_le_bytes()[..], &bytes].concat()));
    let written = entry(9, &[0, 8_192, 256, 257]);
    let mut out = vec![1, 2, 3];
    written.write(2_047, 4, &mut out);
    assert_eq!(out[3..], bytes);
    // 512 bytes of a list and 1,024 bytes of a raw row fill 24 units; nine units precede them.
    let mut header = SegmentHeader { settings: settings(), sections: 4, first: 0, data_units: 33 };
    let read =
        |header: &SegmentHeader, bytes: &[u8]| RowEntry::from_bytes("s", header, 2_047, bytes);
    assert_eq!(read(&header, &bytes), Ok(written));
    every_byte_counts(&bytes, |bytes| read(&header, bytes).ok());
    RowEntry::from_bytes("s", &header, 2_046, &bytes).unwrap_err();
    header.data_units = 32;
    let error = read(&header, &bytes).unwrap_err().to_string();
    assert!(error.contains("its 24 units of data start at unit 9"), "{error}");

    let mut out = Vec::new();
    entry(0, &[8_193]).write(0, 1, &mut out);
    header.sections = 1;
    let error = RowEntry::from_bytes("s", &header, 0, &out).unwrap_err().to_string();
    assert!(error.contains("8193 bits"), "{error}");
}

#[test]
fn raw_rows_come_first_and_lists_behind() {
    use Coding::{List, Ones, Raw, Zeros};
    let codings = [0, 1, 255, 256, 257, 8_191, 8_192].map(Coding::of);
    assert_eq!(codings, [Zeros, List(1), List(255), List(256), Raw, Raw, Ones]);
    let ones = [3, 257, 0, 256, 8_192, 4_000, 8_191, 1];
    let entry = entry(0, &ones);
    assert_eq!(entry.data_len(), 3 * 1_024 + 2 * (3 + 256 + 1));
    // By hand: sections 1, 5 and 6 are raw; sections 0, 3 and 7 are lists.
    for (section, place) in [(1, 0), (5, 1_024), (6, 2_048), (0, 3_072), (3, 3_078), (7, 3_590)] {
        assert_eq!(entry.place(section), place, "section {section}");
    }
}

#[test]
fn the_tail_is_laid_out_as_its_tables_say() {
    let settings = settings();
    let mut bytes = vec![0x89, b'E', b'B', b'T', 0x0d, 0x0a, 0x1a, 0x0a, 1, 0, 0, 0];
    bytes.extend(7_u32.to_le_bytes());
    bytes.extend(0x45_u64.to_le_bytes());
    bytes.extend(9_000_u64.to_le_bytes());
    bytes.extend([6; 32]);
    bytes.extend([0; 28]);
    bytes.extend(crc(&[&bytes[..], &label()].concat()));
    assert_eq!(bytes.len(), tail::HEADER);
    let parent_hash = B256::repeat_byte(6);
    let header = TailHeader { generation: 0x45, durable: 7, first: 9_000, parent_hash };
    assert_eq!(header.to_bytes(&settings)[..], bytes);
    let read = |bytes: &[u8]| TailHeader::from_bytes("t", &settings, bytes.try_into().unwrap());
    assert_eq!(read(&bytes), Ok(header));
    every_byte_counts(&bytes, |bytes| read(bytes).ok());
    // The header belongs to another chain, or to an index with block hashes.
    for other in [Settings::new("sepolia").unwrap(), settings.clone().with_block_hashes()] {
        let bytes = bytes.as_slice().try_into().unwrap();
        TailHeader::from_bytes("t", &other, bytes).unwrap_err();
    }
}

#[test]
fn slots_are_laid_out_as_their_table_says() {
    let hash = B256::repeat_byte(8);
    let bloom = core::array::from_fn(|byte| u8::try_from(byte).unwrap());
    let row = TailRow { number: 9_001, hash, time: 11, gas_used: 12, bloom };
    let slots = [
        (1_u32, [9_001_u64, 11, 12], hash, bloom, Slot::Row(row)),
        (2, [9_000, 0, 0], hash, [0; 256], Slot::RollBack { number: 9_000, hash }),
        (3, [0; 3], B256::ZERO, [0; 256], Slot::Synced),
    ];
    let place = SlotPlace { generation: 0x45, slot: 5, durable: 4 };
    assert_eq!(SlotPlace::offset(5), 96 + 5 * 328);
    for (kind, numbers, hash, bloom, slot) in slots {
        let words = [kind, 5, 4].into_iter().flat_map(u32::to_le_bytes);
        let front: Vec<u8> = words.collect();
        let mut back: Vec<u8> = numbers.into_iter().flat_map(u64::to_le_bytes).collect();
        back.extend(hash.as_slice());
        back.extend(bloom);
        let checksum = crc(&[&0x45_u64.to_le_bytes()[..], &front, &back].concat());
        let bytes = [&front[..], &checksum, &back].concat();
        assert_eq!(slot.to_bytes(place)[..], bytes);
        let read = |bytes: &[u8]| Slot::from_bytes(0x45, 5, bytes.try_into().unwrap());
        assert_eq!(read(&bytes), Some((slot, 4)));
        every_byte_counts(&bytes, read);
        let bytes: &[u8; tail::SLOT] = bytes.as_slice().try_into().unwrap();
        assert_eq!(Slot::from_bytes(0x46, 5, bytes), None, "of another generation");
        assert_eq!(Slot::from_bytes(0x45, 6, bytes), None, "in another place");
    }
    let later = SlotPlace { durable: 6, ..place };
    assert_eq!(Slot::from_bytes(0x45, 5, &Slot::Synced.to_bytes(later)), None);
}

#[test]
fn errors_name_file_place_and_part() {
    let manifest = Manifest { settings: settings(), sections: 0, first: 0, generation: 0 };
    let mut bytes = manifest.to_bytes();
    bytes[20] ^= 1;
    let checksum = |bytes: &[u8]| u32::from_le_bytes(crc(bytes));
    let expected = format!(
        "manifest is damaged at byte 0, the manifest: its checksum is {:08x}, but {:08x} is stored",
        checksum(&bytes[..64]),
        u32::from_le_bytes(bytes[64..].try_into().unwrap()),
    );
    let error: String = Manifest::from_bytes(&bytes).unwrap_err().to_string();
    assert_eq!(error, expected);
}
