//! Manifests, tails and segments of an index that are cut, damaged or made up. Opening them gives
//! the same result as a slow reader of the format.

use alloy_primitives::B256;
use chainsieve::eth::index::{Damage, Index, IndexError, Part, Settings, Writer};

use crate::survives;
use testkit::Rng;
use testkit::eth::made_up_headers::Blocks;
use testkit::eth::recording_storage::{Disk, Recorder};
use testkit::mutated;

/// Lengths of the header of a tail and of a slot, in bytes.
const HEADER: usize = 96;
const SLOT: usize = 328;
/// Number of the first block.
const FIRST: u64 = 50;
/// Memory that a writer needs for any index, mostly for the buffer in which it transposes blooms.
const WRITER: usize = 1_000_000;

fn settings() -> Settings {
    Settings::new("made up").expect("a label")
}

/// Number and hash of the last block, `None` without blocks.
type Tip = Option<(u64, B256)>;

/// Opens the index with a reader and with a writer, and checks that both find the same.
fn open(disk: &Disk, input: &[u8]) -> Result<Tip, IndexError> {
    let recorder = Recorder::of(disk);
    let read = survives("Index::open", input, 40, 400_000, || {
        let index = Index::open(recorder.clone())?;
        let last = index.numbers().map(|numbers| *numbers.end());
        Ok(last.map(|last| index.next_known_hash(last).expect("a block of the tail")))
    });
    let written = survives("Writer::open", input, 40, WRITER, || {
        let writer = Writer::open(recorder, &settings())?;
        let last = writer.numbers().map(|numbers| *numbers.end());
        Ok(last.map(|last| (last, writer.last_hash().expect("a block"))))
    });
    assert_eq!(read, written);
    read
}

/// Builds an index with several reorganisations, and returns it with the name of its tail.
fn index(blocks: &mut Blocks) -> (Disk, String) {
    let recorder = Recorder::default();
    let mut writer = Writer::open(recorder.clone(), &settings()).expect("opens");
    let mut append = |writer: &mut Writer<Recorder>, count, branch| {
        let next = writer.numbers().map_or(FIRST, |numbers| numbers.end() + 1);
        let parent = writer.last_hash().unwrap_or_default();
        let chain = blocks.extend(next, parent, count, branch);
        writer.append(&chain).expect("appended");
    };
    append(&mut writer, 4, 0);
    writer.sync().expect("synced");
    append(&mut writer, 5, 0);
    writer.sync().expect("synced");
    writer.roll_back(FIRST + 2).expect("taken back");
    append(&mut writer, 7, 1);
    writer.sync().expect("synced");
    append(&mut writer, 2, 2);
    writer.roll_back(FIRST + 8).expect("taken back");
    append(&mut writer, 3, 3);
    writer.sync().expect("synced");
    let disk = recorder.now();
    let tail = disk.with_extension("tail").next().expect("a tail").to_owned();
    (disk, tail)
}

fn word(bytes: &[u8]) -> u32 {
    u32::from_le_bytes(bytes[..4].try_into().expect("four bytes"))
}

fn number(bytes: &[u8]) -> u64 {
    u64::from_le_bytes(bytes[..8].try_into().expect("eight bytes"))
}

fn checksum(generation: u64, slot: &[u8]) -> u32 {
    let parts = [&generation.to_le_bytes()[..], &slot[..12], &slot[16..]].concat();
    crc32c::crc32c(&parts)
}

/// Reads a tail with an intact header, following the text of the format. Returns the last block, or
/// the number of the damaged slot.
fn slow(tail: &[u8]) -> Result<Tip, usize> {
    let generation = number(&tail[16..]);
    let (first, parent) = (number(&tail[24..]), B256::from_slice(&tail[32..64]));
    let slots: Vec<&[u8]> = tail[HEADER..].chunks_exact(SLOT).collect();
    let valid = |at: usize| {
        let slot = slots[at];
        let durable = word(&slot[8..]) as usize;
        word(&slot[12..]) == checksum(generation, slot)
            && word(&slot[4..]) as usize == at
            && durable <= at
            && (1..=3).contains(&word(slot))
    };
    let there = (0..slots.len()).find(|&at| !valid(at)).unwrap_or(slots.len());
    let mut chain = vec![parent];
    for (at, slot) in slots[..there].iter().enumerate() {
        let (block, hash) = (number(&slot[16..]), B256::from_slice(&slot[40..72]));
        let next = first + chain.len() as u64 - 1;
        match word(slot) {
            1 if block == next => chain.push(hash),
            2 => {
                let keep = (1..=chain.len()).find(|&keep| {
                    first.wrapping_add(keep as u64).wrapping_sub(2) == block
                        && chain[keep - 1] == hash
                        && block < next
                });
                chain.truncate(keep.ok_or(at)?);
            }
            3 => {}
            _ => return Err(at),
        }
    }
    let later = (there..slots.len()).filter(|&at| valid(at)).map(|at| word(&slots[at][8..]));
    let durable = later.chain([word(&tail[12..])]).max().unwrap_or(0);
    if durable as usize > there {
        return Err(there);
    }
    let last = chain.pop().filter(|_| !chain.is_empty());
    Ok(last.map(|hash| (first + chain.len() as u64 - 1, hash)))
}

/// Compares the library with the slow reader. Returns `true` if there is damage.
fn check_tail(disk: &Disk, name: &str, tail: &[u8]) -> bool {
    let mut disk = disk.clone();
    disk.put(name, tail.to_vec());
    let found = open(&disk, tail);
    let expected = slow(tail);
    match (&found, expected) {
        (Ok(found), Ok(expected)) => {
            assert_eq!(*found, expected);
            let blocks = &mut Blocks::default();
            let recorder = Recorder::of(&disk);
            let mut writer = Writer::open(recorder.clone(), &settings()).expect("opens");
            let (next, parent) = found.map_or((FIRST, B256::ZERO), |(last, hash)| (last + 1, hash));
            let chain = blocks.extend(next, parent, 1, 8);
            writer.append(&chain).expect("goes on");
            writer.sync().expect("synced");
            let tip = chain.last_hash().map(|hash| (next, hash));
            assert_eq!(open(&recorder.now(), tail), Ok(tip));
        }
        (Err(IndexError::Damaged { file, offset, part, .. }), Err(slot)) => {
            let at = (HEADER + SLOT * slot) as u64;
            let slot = u32::try_from(slot).expect("few");
            assert_eq!((&file[..], *offset, *part), (name, at, Part::Slot { slot }));
        }
        (found, expected) => panic!("{found:?} and {expected:?} of {}", hex::encode(tail)),
    }
    found.is_err()
}

#[test]
fn each_byte_of_a_tail_matters() {
    let (disk, name) = index(&mut Blocks::default());
    let tail = disk.get(&name).expect("a tail").to_vec();
    assert!(!check_tail(&disk, &name, &tail));
    let (mut damaged, mut shorter) = (0, 0);
    for at in HEADER..tail.len() {
        let mut tail = tail.clone();
        tail[at] ^= 1 << (at % 8);
        if check_tail(&disk, &name, &tail) { damaged += 1 } else { shorter += 1 }
    }
    // The last slot claims that the slots before it are durable, so only damage to the last slot
    // shortens the tail.
    assert_eq!((shorter, damaged), (SLOT, tail.len() - HEADER - SLOT));
    for at in 0..HEADER {
        let mut disk = disk.clone();
        let mut tail = tail.clone();
        tail[at] ^= 1 << (at % 8);
        disk.put(&name, tail.clone());
        let error = open(&disk, &tail).expect_err("damaged");
        let named = match &error {
            IndexError::NotOfAnIndex { file, .. } => at < 8 && *file == name,
            IndexError::Version { file, .. } => (8..10).contains(&at) && *file == name,
            IndexError::Flags { file, .. } => (10..12).contains(&at) && *file == name,
            IndexError::Damaged { file, part, .. } => {
                at >= 10 && *file == name && *part == Part::TailHeader
            }
            _ => false,
        };
        assert!(named, "byte {at}: {error}");
    }
}

#[test]
fn a_tail_cut_anywhere() {
    let (disk, name) = index(&mut Blocks::default());
    let tail = disk.get(&name).expect("a tail").to_vec();
    let mut damaged = 0;
    for length in HEADER..tail.len() {
        damaged += usize::from(check_tail(&disk, &name, &tail[..length]));
    }
    // The header claims that four slots are durable.
    assert_eq!(damaged, 4 * SLOT);
    for length in 0..HEADER {
        let mut disk = disk.clone();
        disk.put(&name, tail[..length].to_vec());
        let damage = Damage::Length { found: length as u64, expected: HEADER as u64 };
        let (file, offset, part) = (name.clone(), length as u64, Part::TailHeader);
        let expected = IndexError::Damaged { file, offset, part, damage };
        assert_eq!(open(&disk, &tail[..length]), Err(expected));
    }
}

/// Returns a made-up slot with the right checksum.
fn slot(rng: &mut Rng, at: usize, generation: u64, like: &[u8], next: u64) -> Vec<u8> {
    let mut slot = like.to_vec();
    let kind = *rng.pick(&[1_u32, 1, 1, 2, 2, 3, 0, 4]);
    slot[..4].copy_from_slice(&kind.to_le_bytes());
    let at = u32::try_from(at).expect("few");
    slot[4..8].copy_from_slice(&at.to_le_bytes());
    let durable = *rng.pick(&[0, at, at, at / 2, at + 1, u32::MAX]);
    slot[8..12].copy_from_slice(&durable.to_le_bytes());
    let around = next.wrapping_add(rng.below(4) as u64).wrapping_sub(2);
    let block =
        *rng.pick(&[next, next, next, around, FIRST, FIRST - 1, 0, u64::MAX, number(&like[16..])]);
    slot[16..24].copy_from_slice(&block.to_le_bytes());
    let crc = checksum(generation, &slot);
    slot[12..16].copy_from_slice(&crc.to_le_bytes());
    slot
}

#[test]
fn tails_made_up_from_slots_of_tails() {
    let mut rng = Rng::new(0x7a11);
    let (disk, name) = index(&mut Blocks::default());
    let tail = disk.get(&name).expect("a tail").to_vec();
    let generation = number(&tail[16..]);
    let slots: Vec<_> = tail[HEADER..].chunks_exact(SLOT).collect();
    let (mut damaged, mut fine) = (0, 0);
    for _ in 0..4000 {
        let mut made = tail.clone();
        for _ in 0..=rng.below(3) {
            let count = (made.len() - HEADER) / SLOT;
            let at = rng.below(count);
            let place = HEADER + at * SLOT..HEADER + (at + 1) * SLOT;
            let new = match rng.below(5) {
                // A copy of a slot from another position.
                0 => rng.pick(&slots).to_vec(),
                // A slot of another generation.
                1 => {
                    let mut slot = made[place.clone()].to_vec();
                    let crc = checksum(generation + 1, &slot);
                    slot[12..16].copy_from_slice(&crc.to_le_bytes());
                    slot
                }
                2 => rng.bytes(SLOT),
                3 => vec![0; SLOT],
                _ => slot(&mut rng, at, generation, &made[place.clone()], FIRST + at as u64),
            };
            made.splice(place, new);
            if rng.one_in(4) {
                let (one, other) = (rng.below(count), rng.below(count));
                let other = made[HEADER + other * SLOT..][..SLOT].to_vec();
                made[HEADER + one * SLOT..][..SLOT].copy_from_slice(&other);
            }
            if rng.one_in(6) {
                let like = made[made.len() - SLOT..].to_vec();
                made.extend(slot(&mut rng, count, generation, &like, FIRST + 11));
            }
        }
        if check_tail(&disk, &name, &made) { damaged += 1 } else { fine += 1 }
    }
    // Tails of made-up slots only, in which the header claims no durable slot.
    let mut header = tail[..HEADER].to_vec();
    header[12..16].fill(0);
    let label = [&b"made up"[..], &[0; 25]].concat();
    let crc = crc32c::crc32c_append(crc32c::crc32c(&header[..92]), &label);
    header[92..].copy_from_slice(&crc.to_le_bytes());
    for _ in 0..4000 {
        let mut made = header.clone();
        let mut next = FIRST;
        for at in 0..rng.below(12) {
            let new = slot(&mut rng, at, generation, slots[1], next);
            next += u64::from(word(&new) == 1);
            made.extend(new);
        }
        if check_tail(&disk, &name, &made) { damaged += 1 } else { fine += 1 }
    }
    assert!(damaged > 1000 && fine > 1000, "{damaged} damaged, {fine} fine");
}

#[test]
fn each_byte_of_a_manifest_matters() {
    let (disk, _) = index(&mut Blocks::default());
    let manifest = disk.get("manifest").expect("a manifest").to_vec();
    let open = |bytes: &[u8]| {
        let mut disk = disk.clone();
        disk.put("manifest", bytes.to_vec());
        open(&disk, bytes)
    };
    for bit in 0..manifest.len() * 8 {
        let mut manifest = manifest.clone();
        manifest[bit / 8] ^= 1 << (bit % 8);
        let named = match open(&manifest).expect_err("damaged") {
            IndexError::NotOfAnIndex { file, .. } => bit / 8 < 8 && file == "manifest",
            IndexError::Version { .. } => (8..10).contains(&(bit / 8)),
            IndexError::Flags { .. } => (10..12).contains(&(bit / 8)),
            IndexError::Damaged { file, offset: 0, part: Part::Manifest, damage } => {
                file == "manifest" && matches!(damage, Damage::Checksum { .. }) && bit / 8 >= 10
            }
            _ => false,
        };
        assert!(named, "bit {bit}");
    }
    let length = |found: usize| {
        let found = found as u64;
        match open(&[&manifest[..], &[0; 9]].concat()[..usize::try_from(found).expect("few")]) {
            Err(IndexError::Damaged { part: Part::Manifest, damage, .. }) => {
                assert_eq!(damage, Damage::Length { found, expected: 68 });
            }
            other => panic!("{found} bytes: {other:?}"),
        }
    };
    (0..68).chain(69..77).for_each(length);
}

#[test]
fn manifests_made_up_with_the_right_checksum() {
    let mut rng = Rng::new(0x3a41);
    let (disk, _) = index(&mut Blocks::default());
    let manifest = disk.get("manifest").expect("a manifest").to_vec();
    let mut refused = 0;
    for _ in 0..3000 {
        let mut made = manifest.clone();
        for _ in 0..=rng.below(2) {
            match rng.below(6) {
                0 => {
                    let sections = *rng.pick(&[1, 31, 32, u32::MAX, u32::MAX - 1, 1 << 31]);
                    made[12..16].copy_from_slice(&sections.to_le_bytes());
                }
                1 => {
                    let first = *rng.pick(&[0, FIRST + 1, u64::MAX, u64::MAX - 2 * 8192]);
                    made[16..24].copy_from_slice(&first.to_le_bytes());
                }
                2 => {
                    let generation = *rng.pick(&[1, u64::MAX]);
                    made[24..32].copy_from_slice(&generation.to_le_bytes());
                }
                3 => made[8 + rng.below(4)] = *rng.pick(&[0, 1, 2, 0xff]),
                4 => made[32 + rng.below(32)] = rng.array::<1>()[0],
                _ => drop(made.splice(12..64, rng.bytes(52))),
            }
        }
        let crc = crc32c::crc32c(&made[..64]);
        made[64..].copy_from_slice(&crc.to_le_bytes());
        let mut disk = disk.clone();
        disk.put("manifest", made.clone());
        let recorder = Recorder::of(&disk);
        let read = survives("Index::open", &made, 40, 400_000, || Index::open(recorder.clone()));
        let written = survives("Writer::open", &made, 40, WRITER, || {
            Writer::open(recorder.clone(), &settings())
        });
        if made != manifest {
            assert!(read.is_err() && written.is_err(), "{}", hex::encode(&made));
            let now = recorder.now();
            assert!(now.names().eq(disk.names()), "nothing is removed");
            refused += 1;
        }
    }
    assert!(refused > 2000);
}

#[test]
fn random_damage_to_random_files() {
    let mut rng = Rng::new(0xda3a);
    let mut blocks = Blocks::default();
    let recorder = Recorder::default();
    let mut writer =
        Writer::open(recorder.clone(), &settings()).expect("opens").with_confirmations(2);
    let chain = blocks.extend(FIRST, B256::ZERO, 8192 + 5, 0);
    writer.append(&chain).expect("appended");
    writer.sync().expect("sealed");
    drop(writer);
    let disk = recorder.now();
    let names: Vec<_> = disk.names().map(String::from).collect();
    assert_eq!(names.len(), 3);
    let mut refused = 0;
    for _ in 0..1500 {
        let name = rng.pick(&names);
        let mut damaged = disk.clone();
        let bytes = disk.get(name).expect("a file");
        let made = match rng.below(4) {
            0 => {
                let length = rng.below(1000);
                rng.bytes(length)
            }
            1 => disk.get(rng.pick::<String>(&names)).expect("a file").to_vec(),
            _ => mutated(&mut rng, bytes),
        };
        let same = made == bytes;
        damaged.put(name, made.clone());
        match open(&damaged, &made) {
            Err(error) => {
                assert!(!same && error.to_string().contains(name.as_str()), "{name}: {error}");
                refused += 1;
            }
            Ok(tip) => {
                // The damage is in a part of a segment that is not read on opening. All slots of
                // the tail are durable, so damage to the tail is always found.
                let last = FIRST + 8192 + 4;
                assert_eq!(tip, chain.last_hash().map(|hash| (last, hash)), "{name}");
            }
        }
    }
    assert!(refused > 500, "{refused}");
    for name in &names[..] {
        let mut less = disk.clone();
        less.remove(name);
        let found = open(&less, &[]);
        assert!(matches!(found, Err(IndexError::NoIndex | IndexError::Io { .. })), "{found:?}");
    }
}
