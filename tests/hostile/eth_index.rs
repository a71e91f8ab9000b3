//! Files of an index that were changed after they were written.

use alloy_primitives::B256;
use chainsieve::eth::bloom;
use chainsieve::eth::index::{Index, IndexError, Settings, Writer};
use chainsieve::eth::log_query::CompiledQuery;

use crate::survives;
use testkit::Rng;
use testkit::eth::linked_headers::linked_headers;
use testkit::eth::recording_storage::{Disk, Recorder};

/// The files of the index, except the tail.
const FILES: [&str; 2] = ["manifest", "00000000-01.segment"];

/// Returns an index with one sealed section, and a few headers after it.
fn folder() -> Disk {
    let mut rng = Rng::new(3);
    let mut blooms = vec![[0; 256]; 8192 + 40];
    for bloom in &mut blooms {
        for _ in 0..rng.below(3) {
            bloom::accrue(bloom, &bloom::positions(&rng.below(50).to_be_bytes()));
        }
        if rng.one_in(2) {
            bloom::accrue(bloom, &bloom::positions(b"half"));
        }
    }
    let folder = Recorder::default();
    let settings = Settings::new("synthetic").expect("a label").with_block_hashes();
    let mut writer = Writer::open(folder.clone(), &settings).expect("new").with_confirmations(10);
    let chain = linked_headers(100, B256::ZERO, 0, &blooms);
    writer.append(&chain).expect("headers");
    writer.sync().expect("in memory");
    folder.now()
}

fn queries() -> [CompiledQuery; 3] {
    let some = |number: usize| bloom::positions(&number.to_be_bytes());
    [
        CompiledQuery::new(vec![vec![some(7)], vec![bloom::positions(b"half")]]),
        CompiledQuery::new(vec![vec![some(1), some(2), bloom::positions(b"half")]]),
        CompiledQuery::new(vec![vec![]]),
    ]
}

/// Returns all answers, or the first error.
fn ask(folder: &Disk, slices: bool) -> Result<Vec<Vec<u64>>, IndexError> {
    let index = Index::open(Recorder::of(folder).read_as_slices(slices))?;
    let numbers = index.numbers().ok_or(IndexError::Empty)?;
    let mut answers = Vec::new();
    let _ = index.fills(numbers.clone())?;
    for query in queries() {
        let found = index.candidates(&query, numbers.clone())?;
        answers.push(found.iter().collect());
    }
    let (number, hash) = index.next_known_hash(*numbers.start() + 4_000)?;
    answers.push(vec![number, u64::from(hash[0])]);
    Ok(answers)
}

fn tail_of(folder: &Disk) -> String {
    folder.with_extension("tail").next().expect("one tail").to_owned()
}

#[test]
fn bytes_that_are_others() {
    let folder = folder();
    let honest = ask(&folder, false).expect("sound");
    assert!(honest[0].len() > 40 && honest[1].len() > 1_000 && honest[2].is_empty());
    let mut rng = Rng::new(4);
    let (mut errors, mut same) = (0, 0);
    let tail = tail_of(&folder);
    for name in [FILES[0], FILES[1], &tail] {
        let bytes = folder.get(name).expect("a file").to_vec();
        for round in 0..400 {
            let mut damaged = bytes.clone();
            let end = if round < 100 { bytes.len().min(5_000) } else { bytes.len() };
            let at = rng.below(end);
            damaged[at] ^= 1 << rng.below(8);
            let mut copy = folder.clone();
            copy.put(name, damaged);
            match survives(name, &[], 0, 64 << 20, || ask(&copy, round % 2 == 0)) {
                Ok(answers) => {
                    // If nothing claims that a slot is durable, damage to the slot only shortens
                    // the tail.
                    assert!(answers == honest || name == tail, "{name}: byte {at}");
                    same += 1;
                }
                Err(
                    IndexError::Damaged { file, .. }
                    | IndexError::NotOfAnIndex { file, .. }
                    | IndexError::Version { file, .. }
                    | IndexError::Flags { file, .. },
                ) => {
                    assert_eq!(file, name, "byte {at}");
                    errors += 1;
                }
                Err(error) => panic!("{name}: byte {at}: {error}"),
            }
        }
    }
    assert!(errors > 400 && same > 10, "{errors} errors, {same} answers");
}

#[test]
fn files_that_are_cut_off_or_gone() {
    let folder = folder();
    let tail = tail_of(&folder);
    for name in [FILES[0], FILES[1], &tail] {
        let bytes = folder.get(name).expect("a file").to_vec();
        let lengths = (0..bytes.len().min(400)).chain((400..bytes.len()).step_by(9_973));
        for length in lengths {
            for slices in [true, false] {
                let mut copy = folder.clone();
                copy.put(name, bytes[..length].to_vec());
                let found = survives(name, &[], 0, 64 << 20, || ask(&copy, slices));
                assert!(matches!(&found, Err(IndexError::Damaged { .. })), "{length}: {found:?}");
            }
        }
        let mut copy = folder.clone();
        copy.remove(name);
        match ask(&copy, false) {
            Err(IndexError::NoIndex) => assert_eq!(name, "manifest"),
            Err(IndexError::Io { kind, file, .. }) => {
                assert_eq!((kind, file.as_str()), (std::io::ErrorKind::NotFound, name));
            }
            found => panic!("{name}: {found:?}"),
        }
    }
}
