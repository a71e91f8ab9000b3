//! Queries of damaged and malicious files.

use alloc::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use super::files::{Files, files, segment};
use crate::eth::bloom::{self, BYTES};
use crate::eth::index::format::SECTION;
use crate::eth::index::format::segment::{RowEntry, SegmentHeader, entry_len};
use crate::eth::index::{Damage, Index, IndexError, Part};
use crate::eth::log_query::CompiledQuery;
use testkit::Rng;

const SEGMENT: &str = "00000000-01.segment";

/// Returns the filters of a section whose rows have all encodings: empty, list, raw and full.
fn blooms() -> Vec<[u8; BYTES]> {
    let mut blooms = vec![[0; BYTES]; SECTION];
    for (number, bloom) in blooms.iter_mut().enumerate() {
        bloom::accrue(bloom, &[0, 0, 0]);
        if number % 100 == 0 {
            bloom::accrue(bloom, &[1, 2, 2]);
        }
        if number % 3 == 0 {
            bloom::accrue(bloom, &[3, 4, 4]);
        }
    }
    blooms
}

fn queries() -> Vec<CompiledQuery> {
    vec![
        CompiledQuery::new(vec![vec![[0, 1, 2]]]),
        CompiledQuery::new(vec![vec![[3, 4, 0]]]),
        CompiledQuery::new(vec![vec![[1, 2, 2], [3, 4, 4]]]),
        CompiledQuery::new(vec![vec![[1, 2, 3]], vec![[4, 4, 4], [9, 9, 9]]]),
    ]
}

type Answers = Vec<Result<Vec<u64>, IndexError>>;

/// Opens an index from these files and returns its answers to several queries. If the index panics,
/// the test fails with the message `what`.
fn answers(files: &Files, what: &str) -> Answers {
    let ask = || -> Answers {
        let index = match Index::open(files.clone()) {
            Ok(index) => index,
            Err(error) => return vec![Err(error)],
        };
        let Some(numbers) = index.numbers() else { return vec![Err(IndexError::Empty)] };
        let ask = |query| {
            let _ = index.fills(numbers.clone())?;
            let found = index.candidates(query, numbers.clone())?;
            Ok(found.iter().collect())
        };
        queries().iter().map(ask).collect()
    };
    catch_unwind(AssertUnwindSafe(ask)).unwrap_or_else(|_| panic!("{what}"))
}

/// Changes single bytes of a segment in turn. After each change, a query returns either an error
/// that names the damaged part, or the same answer as before.
#[test]
fn a_byte_that_is_another_one() {
    let mut files = files(0, &blooms(), 1);
    let honest = answers(&files, "honest");
    let counts: Vec<_> = honest.iter().map(|answer| answer.as_ref().unwrap().len()).collect();
    assert_eq!(counts, [82, 2731, 2731 + 82 - 28, 28]);
    let bytes = files.by_name[SEGMENT].clone();
    let header = SegmentHeader::from_bytes(SEGMENT, bytes.first_chunk().unwrap()).unwrap();
    let entries = usize::try_from(header.entry_at(0)).unwrap();
    let data = usize::try_from(header.data_at()).unwrap();
    let of_rows = entries..entries + 6 * entry_len(1);
    let (mut parts, mut same) = (BTreeMap::new(), 0);
    let places =
        (0..200).chain(of_rows).chain((entries..data).step_by(211)).chain(data..bytes.len());
    for in_memory in [true, false] {
        files.in_memory = in_memory;
        for at in places.clone() {
            let mut bytes = bytes.clone();
            bytes[at] ^= 1 << (at % 8);
            files.by_name.insert(SEGMENT.to_owned(), bytes);
            let what = format!("byte {at}");
            for (found, honest) in answers(&files, &what).iter().zip(&honest) {
                match found {
                    Ok(_) => {
                        same += 1;
                        assert_eq!(found, honest, "{what}");
                    }
                    Err(IndexError::Damaged {
                        file,
                        offset,
                        part,
                        damage: Damage::Checksum { .. },
                    }) => {
                        assert_eq!(file, SEGMENT);
                        assert!(*offset <= at as u64, "{what}: {part}");
                        *parts.entry(part.to_string()).or_insert(0) += 1;
                    }
                    Err(
                        IndexError::NotOfAnIndex { .. }
                        | IndexError::Version { .. }
                        | IndexError::Flags { .. },
                    ) => assert!(at < 12, "{what}"),
                    Err(error) => panic!("{what}: {error}"),
                }
            }
        }
    }
    let named: Vec<_> = parts.keys().map(String::as_str).collect();
    let expected = [
        "row 1 in section 0",
        "row 2 in section 0",
        "row 3 in section 0",
        "row 4 in section 0",
        "the entry of row 0",
        "the entry of row 1",
        "the entry of row 2",
        "the entry of row 3",
        "the entry of row 4",
        "the header of the segment",
        "the record of section 0",
    ];
    for part in expected {
        assert!(named.contains(&part), "{part} of {named:?}");
    }
    assert!(same > 100, "a changed byte that is not read does no harm: {same}");
}

/// Returns files whose segment has the given list in row 1. The checksums are valid.
fn with_list(places: &[u16]) -> Files {
    let mut files = files(0, &blooms(), 1);
    let bytes = files.by_name.get_mut(SEGMENT).unwrap();
    let header = SegmentHeader::from_bytes(SEGMENT, bytes.first_chunk().unwrap()).unwrap();
    let at = usize::try_from(header.entry_at(1)).unwrap();
    let length = entry_len(1);
    let mut entry = RowEntry::from_bytes(SEGMENT, &header, 1, &bytes[at..][..length]).unwrap();
    let list: Vec<u8> = places.iter().flat_map(|place| place.to_le_bytes()).collect();
    entry.ones[0] = u16::try_from(places.len()).unwrap();
    entry.crcs[0] = crc32c::crc32c(&list);
    let mut written = Vec::new();
    entry.write(1, 1, &mut written);
    bytes[at..][..length].copy_from_slice(&written);
    let start = usize::try_from(header.data_at()).unwrap() + entry.start as usize * 64;
    bytes[start..][..list.len()].copy_from_slice(&list);
    files
}

#[test]
fn lists_that_are_none() {
    let wrong: [&[u16]; 6] = [&[5, 5], &[6, 5], &[8192], &[0, u16::MAX], &[0, 8191, 8190], &[9, 0]];
    let row = Part::Row { row: 1, section: 0 };
    for in_memory in [true, false] {
        for places in wrong {
            let mut files = with_list(places);
            files.in_memory = in_memory;
            let found = &answers(&files, "a list")[0];
            let Err(IndexError::Damaged { part, damage: Damage::Contradiction(_), .. }) = found
            else {
                panic!("{places:?}: {found:?}")
            };
            assert_eq!(part, &row);
        }
        let mut files = with_list(&[0, 100, 8191]);
        files.in_memory = in_memory;
        // In row 2, the bit of every hundredth header is set.
        assert_eq!(answers(&files, "a list")[0], Ok(vec![0, 100]));
    }
}

/// Entries and headers of random bytes with valid checksums must not cause a panic.
#[test]
fn entries_that_lie() {
    let mut rng = Rng::new(8);
    let mut files = files(0, &blooms(), 1);
    let bytes = segment(0, &blooms());
    let header = SegmentHeader::from_bytes(SEGMENT, bytes.first_chunk().unwrap()).unwrap();
    let length = entry_len(1);
    for round in 0..600 {
        let mut bytes = bytes.clone();
        let row = u16::try_from(rng.below(5)).unwrap();
        let at = usize::try_from(header.entry_at(row)).unwrap();
        let entry = &mut bytes[at..][..length];
        let byte = rng.below(10);
        entry[byte] = if rng.below(2) == 0 {
            rng.u64().to_le_bytes()[0]
        } else {
            [0, 1, 31, 32, 255][round % 5]
        };
        let crc = crc32c::crc32c_append(crc32c::crc32c(&row.to_le_bytes()), &entry[..length - 4]);
        entry[length - 4..].copy_from_slice(&crc.to_le_bytes());
        files.by_name.insert(SEGMENT.to_owned(), bytes);
        files.in_memory = round % 2 == 0;
        for found in answers(&files, &format!("round {round}")) {
            assert!(matches!(found, Ok(_) | Err(IndexError::Damaged { .. })), "{found:?}");
        }
    }
}
