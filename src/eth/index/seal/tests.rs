//! Compares segments with a slow, bit-by-bit reader written from the format's documentation.

#![expect(clippy::cast_possible_truncation, reason = "rows, sections and steps are few")]

use alloy_primitives::{B256, FixedBytesSliceExt as _};
use chainsieve_lanes::simd::Backend;

use super::{OldSegment, SectionSource, write_segment};
use crate::eth::bloom::{BITS, BYTES};
use crate::eth::index::format::{SECTION, SegmentId, Settings};
use crate::eth::index::rows::Rows;
use crate::eth::index::section::{Section, Turner};
use crate::eth::index::{Damage, IndexError, Part};
use testkit::Rng;

const FIRST: u64 = 1_000_000;

fn settings(block_hashes: bool) -> Settings {
    let settings = Settings::new("mainnet").unwrap();
    if block_hashes { settings.with_block_hashes() } else { settings }
}

/// Returns the number of headers of a section in which the bit at `position` is set. For positions
/// below 300, the result is close to a boundary of the encodings. For all other positions, it is
/// small, large or zero.
fn ones_of(section: usize, position: usize) -> usize {
    const BOUNDARIES: [usize; 14] =
        [0, 1, 2, 255, 256, 257, 258, 4096, 7935, 7936, 7937, 8190, 8191, 8192];
    match position {
        0..300 => BOUNDARIES[(position + section * position / 14) % 14],
        300..1000 => position % 40,
        1000..1900 => 500 + position,
        _ => 0,
    }
}

/// Returns the headers of several sections; all their fields differ.
fn headers(sections: usize) -> Rows {
    let mut rng = Rng::new(sections as u64);
    let hash = |number: u64| B256::from(alloy_primitives::U256::from(number * 977 + 5));
    let mut rows = Rows::new(FIRST, hash(FIRST - 1));
    for index in 0..sections * SECTION {
        rows.hashes.push(hash(FIRST + index as u64));
        rows.times.push(1_500_000_000 + 13 * index as u64);
        rows.gas.push(rng.u64() % 60_000_000);
        rows.blooms.push([0; BYTES]);
    }
    for (section, blooms) in rows.blooms.as_chunks_mut::<SECTION>().0.iter_mut().enumerate() {
        for position in 0..BITS {
            // Start at a random header and use an odd step, which visits every header before it
            // visits any header again.
            let (from, step) = (rng.u64() as usize, rng.u64() as usize | 1);
            for index in 0..ones_of(section, position) {
                let header = from.wrapping_add(index.wrapping_mul(step)) % SECTION;
                blooms[header][BYTES - 1 - position / 8] |= 1 << (position % 8);
            }
        }
    }
    rows
}

fn turned(backend: Backend, mut rows: Rows, settings: &Settings) -> Vec<Section> {
    let mut sections = Vec::new();
    while rows.len() > 0 {
        sections.push(Turner::new().turn(backend, &rows, settings));
        rows.remove_front(SECTION);
    }
    sections
}

fn id(section: usize, sections: usize) -> SegmentId {
    SegmentId { section: section as u32, sections: sections as u32 }
}

fn written(settings: &Settings, from: usize, sections: &[Section]) -> Vec<u8> {
    let sources: Vec<_> = sections.iter().map(SectionSource::Section).collect();
    let mut bytes = Vec::new();
    let first = FIRST + (from * SECTION) as u64;
    write_segment(settings, id(from, sections.len()), first, &sources, &mut bytes).unwrap();
    bytes
}

/// Reads a little-endian number of `len` bytes.
fn number(bytes: &[u8], at: usize, len: usize) -> usize {
    bytes[at..at + len].iter().rev().fold(0, |number, &byte| number << 8 | usize::from(byte))
}

/// CRC-32C computed from the polynomial of RFC 3720.
fn crc32c(bytes: &[u8]) -> usize {
    let table: Vec<u32> = (0..256_u32)
        .map(|byte| {
            (0..8).fold(byte, |c, _| if c & 1 == 1 { c >> 1 ^ 0x82f6_3b78 } else { c >> 1 })
        })
        .collect();
    let crc = bytes
        .iter()
        .fold(u32::MAX, |crc, &byte| crc >> 8 ^ table[((crc ^ u32::from(byte)) & 255) as usize]);
    !crc as usize
}

/// Reads a whole segment as the format documents it, and compares it with the headers.
fn check_against_headers(bytes: &[u8], rows: &Rows, block_hashes: bool) {
    let sections = rows.len() / SECTION;
    assert_eq!(bytes[..8], [0x89, 0x45, 0x42, 0x53, 0x0d, 0x0a, 0x1a, 0x0a]);
    assert_eq!(number(bytes, 8, 2), 1);
    assert_eq!(number(bytes, 10, 2), usize::from(block_hashes));
    assert_eq!(number(bytes, 12, 4), sections);
    assert_eq!(number(bytes, 16, 8) as u64, rows.first);
    assert_eq!(&bytes[24..56], b"mainnet\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0");
    assert_eq!(number(bytes, 60, 4), crc32c(&bytes[..60]));
    let mut at = 64;
    let entries_at = at + sections * 4496;
    let hashes_at = entries_at + 2048 * (8 + 6 * sections);
    let hashes = if block_hashes { sections * 262_144 } else { 0 };
    let data_at = (hashes_at + hashes).div_ceil(4096) * 4096;
    assert!(bytes[hashes_at + hashes..data_at].iter().all(|&byte| byte == 0));
    assert_eq!(bytes.len(), data_at + number(bytes, 56, 4) * 64);
    for section in 0..sections {
        let record = &bytes[at..][..4496];
        let range = section * 8192..(section + 1) * 8192;
        let parent = if section == 0 { rows.parent_hash } else { rows.hashes[range.start - 1] };
        assert_eq!(record[..32], parent[..]);
        assert_eq!(record[32..64], rows.hashes[range.start][..]);
        assert_eq!(record[64..96], rows.hashes[range.end - 1][..]);
        assert_eq!(number(record, 96, 8) as u64, rows.times[range.start]);
        assert_eq!(number(record, 104, 8) as u64, rows.times[range.end - 1]);
        let (mut gas, mut most, mut fills) = ([0; 17], [0; 17], vec![0; 2049]);
        for header in range.clone() {
            let bits = (0..2048).filter(|&position| bit(rows, header, position)).count();
            let class = if bits == 2048 { 16 } else { bits / 128 };
            gas[class] += rows.gas[header];
            most[class] = rows.gas[header].max(most[class]);
            fills[bits] += 1;
        }
        for class in 0..17 {
            assert_eq!(number(record, 112 + class * 8, 8) as u64, gas[class]);
            assert_eq!(number(record, 248 + class * 8, 8) as u64, most[class]);
        }
        for (bits, &filters) in fills.iter().enumerate() {
            assert_eq!(number(record, 384 + bits * 2, 2), filters);
        }
        assert_eq!(record[4482..4488], [0; 6]);
        let column = &bytes[hashes_at + section * 262_144..][..hashes / sections];
        assert_eq!(column, if block_hashes { rows.hashes[range].as_flattened() } else { &[] });
        assert_eq!(number(record, 4488, 4), if block_hashes { crc32c(column) } else { 0 });
        assert_eq!(number(record, 4492, 4), crc32c(&record[..4492]));
        at += 4496;
    }
    let mut next = 0;
    for position in 0..2048 {
        let entry = &bytes[entries_at + position * (8 + 6 * sections)..][..8 + 6 * sections];
        let mut checked = (position as u16).to_le_bytes().to_vec();
        checked.extend(&entry[..4 + 6 * sections]);
        assert_eq!(number(entry, 4 + 6 * sections, 4), crc32c(&checked));
        assert_eq!(number(entry, 0, 4) * 64, next);
        let data = &bytes[data_at + next..];
        let ones: Vec<usize> =
            (0..sections).map(|section| number(entry, 4 + section * 2, 2)).collect();
        let raw = |ones: usize| ones > 256 && ones < 8192;
        let mut raw_at = 0;
        let mut list_at = ones.iter().filter(|&&ones| raw(ones)).count() * 1024;
        for (section, &ones) in ones.iter().enumerate() {
            let set: Vec<usize> =
                (0..8192).filter(|&header| bit(rows, section * 8192 + header, position)).collect();
            assert_eq!(ones, set.len(), "row {position}, section {section}");
            let stored = if raw(ones) {
                let row = &data[raw_at..][..1024];
                raw_at += 1024;
                let read: Vec<usize> =
                    (0..8192).filter(|&header| row[header / 8] >> (header % 8) & 1 == 1).collect();
                assert_eq!(read, set, "row {position}, section {section}");
                row
            } else {
                let list = &data[list_at..][..if ones > 256 { 0 } else { ones * 2 }];
                list_at += list.len();
                if ones <= 256 {
                    let read: Vec<usize> =
                        (0..ones).map(|index| number(list, index * 2, 2)).collect();
                    assert_eq!(read, set, "row {position}, section {section}");
                }
                list
            };
            let crc = number(entry, 4 + sections * 2 + section * 4, 4);
            assert_eq!(crc, crc32c(stored), "row {position}, section {section}");
        }
        let len = list_at.div_ceil(64) * 64;
        assert!(data[list_at..len].iter().all(|&byte| byte == 0));
        next += len;
    }
    assert_eq!(bytes.len(), data_at + next);
}

/// Returns the bit of a header at a position. The positions are numbered as in the Yellow Paper.
fn bit(rows: &Rows, header: usize, position: usize) -> bool {
    rows.blooms[header][255 - position / 8] >> (position % 8) & 1 == 1
}

#[test]
fn a_segment_says_of_every_header_what_the_header_says() {
    for (sections, block_hashes) in [(1, false), (2, true), (4, false)] {
        let (rows, settings) = (headers(sections), settings(block_hashes));
        let turned = turned(Backend::best(), rows.clone(), &settings);
        check_against_headers(&written(&settings, 0, &turned), &rows, block_hashes);
    }
}

#[test]
fn every_backend_turns_alike() {
    let (rows, settings) = (headers(1), settings(true));
    let plain = Turner::new().turn(Backend::SCALAR, &rows, &settings);
    for backend in Backend::available() {
        assert_eq!(Turner::new().turn(backend, &rows, &settings), plain, "{backend:?}");
    }
}

#[test]
fn nothing_of_a_section_is_left_in_the_next_one() {
    let (hashed, plain) = (settings(true), settings(false));
    let mut rows = headers(2);
    let fresh = |rows: &Rows, settings| Turner::new().turn(Backend::best(), rows, settings);
    for backend in Backend::available() {
        let mut turner = Turner::new();
        let first = turner.turn(backend, &rows, &hashed);
        turner.give_back([first]);
        let mut second = rows.clone();
        second.remove_front(SECTION);
        assert_eq!(turner.turn(backend, &second, &plain), fresh(&second, &plain), "{backend:?}");
    }
    rows.blooms.fill([0; BYTES]);
    rows.gas.fill(u64::MAX);
    let empty = fresh(&rows, &plain);
    assert_eq!((empty.record.fills[0], empty.record.gas[0]), (8192, u64::MAX));
    assert!(empty.ones.iter().all(|&ones| ones == 0) && empty.crcs.iter().all(|&crc| crc == 0));
}

#[test]
fn segments_of_another_place_or_cut_off_are_not_copied() {
    let settings = settings(false);
    let sections = turned(Backend::best(), headers(2), &settings);
    let good = written(&settings, 0, &sections[..1]);
    let open = |settings, id, first, bytes: &[u8]| {
        OldSegment::open(settings, first, id, &bytes).map(drop).unwrap_err().to_string()
    };
    let elsewhere = open(&settings, id(0, 1), FIRST + 1, &good);
    assert!(elsewhere.contains("from block 1000000 on; expected"), "{elsewhere}");
    let other = Settings::new("sepolia").unwrap();
    let of_another = open(&other, id(0, 1), FIRST, &good);
    assert!(of_another.contains("of chain mainnet"), "{of_another}");
    let cut = open(&settings, id(0, 1), FIRST, &good[..good.len() - 1]);
    assert!(cut.contains(&format!("{} bytes, expected {}", good.len() - 1, good.len())), "{cut}");
    for len in [0, 63, 64, 5000, 30_000] {
        assert!(!open(&settings, id(0, 1), FIRST, &good[..len]).is_empty());
    }
    // A second copy follows the first section, so the parent hash of this copy is wrong.
    let old = OldSegment::open(&settings, FIRST, id(0, 1), &good).unwrap();
    let sources = [SectionSource::Section(&sections[0]), SectionSource::Segment(&old)];
    let error = write_segment(&settings, id(0, 2), FIRST, &sources, &mut Vec::new()).unwrap_err();
    let IndexError::Damaged { file, offset, part, damage: Damage::Contradiction(_) } = error else {
        panic!("{error}");
    };
    assert_eq!((file.as_str(), offset), ("00000000-01.segment", 64));
    assert_eq!(part, Part::Section { section: 0 });
}

/// Merges older segments of the given sizes, and the remaining sections, into one segment.
fn merged(settings: &Settings, sections: &[Section], sizes: &[usize]) -> Vec<u8> {
    let mut from = 0;
    let olds: Vec<_> = sizes
        .iter()
        .map(|&size| {
            from += size;
            written(settings, from - size, &sections[from - size..from])
        })
        .collect();
    from = 0;
    let opened: Vec<_> = olds
        .iter()
        .zip(sizes)
        .map(|(bytes, &size)| {
            let id = id(from, size);
            from += size;
            OldSegment::open(settings, FIRST, id, bytes).unwrap()
        })
        .collect();
    let mut sources: Vec<_> = opened.iter().map(SectionSource::Segment).collect();
    sources.extend(sections[from..].iter().map(SectionSource::Section));
    let mut bytes = Vec::new();
    write_segment(settings, id(0, sections.len()), FIRST, &sources, &mut bytes).unwrap();
    bytes
}

#[test]
fn segments_become_the_one_that_is_written_at_once() {
    for block_hashes in [false, true] {
        let settings = settings(block_hashes);
        let sections = turned(Backend::best(), headers(8), &settings);
        let at_once = written(&settings, 0, &sections);
        for sizes in [&[8][..], &[4, 4], &[4, 2, 1], &[4, 2, 1, 1], &[1; 8], &[2]] {
            assert!(merged(&settings, &sections, sizes) == at_once, "{sizes:?}");
        }
    }
}

#[test]
fn damage_is_found_before_it_is_copied() {
    let settings = settings(true);
    let sections = turned(Backend::best(), headers(2), &settings);
    let good = written(&settings, 0, &sections[..1]);
    let data_at = (64 + 4496 + 2048 * 14 + 262_144_usize).div_ceil(4096) * 4096;
    let copy = |bytes: &[u8]| -> Result<(), IndexError> {
        let old = OldSegment::open(&settings, FIRST, id(0, 1), &bytes)?;
        let sources = [SectionSource::Segment(&old), SectionSource::Section(&sections[1])];
        write_segment(&settings, id(0, 2), FIRST, &sources, &mut Vec::new())
    };
    copy(&good).unwrap();
    let second_row = 64 + 4496 + 14;
    let mut data = Vec::new();
    for row in 0..1000 {
        let entry = &good[64 + 4496 + row * 14..];
        let part = Part::Row { row: row as u16, section: 0 };
        let ones = number(entry, 4, 2);
        if ones == 1 || ones == 257 {
            data.push((data_at + number(entry, 0, 4) * 64, part));
        }
    }
    assert!(data.len() > 40);
    let places = [
        (20, 0, Part::SegmentHeader),
        (64, 64, Part::Section { section: 0 }),
        (64 + 4495, 64, Part::Section { section: 0 }),
        (64 + 4496, 64 + 4496, Part::RowEntry { row: 0 }),
        (second_row + 13, second_row, Part::RowEntry { row: 1 }),
        (64 + 4496 + 2048 * 14, 64 + 4496 + 2048 * 14, Part::BlockHashes { section: 0 }),
    ];
    for (at, offset, part) in
        places.into_iter().chain(data.into_iter().map(|(at, part)| (at, at, part)))
    {
        let mut bad = good.clone();
        bad[at] ^= 0x10;
        match copy(&bad).unwrap_err() {
            IndexError::Damaged {
                file,
                offset: found,
                part: found_part,
                damage: Damage::Checksum { .. },
            } => {
                assert_eq!((file.as_str(), found), ("00000000-01.segment", offset as u64));
                assert_eq!(found_part, part);
            }
            other => panic!("{other}"),
        }
    }
}
