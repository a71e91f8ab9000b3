//! Reads the slots of the tail and reconstructs the unsealed headers from them.

use alloc::format;
use alloc::string::String;
use alloc::vec;

use super::format::Manifest;
use super::format::tail::{HEADER, SLOT, Slot, SlotPlace, TailHeader};
use super::format::{contradiction, damaged};
use super::rows::Rows;
use super::storage::{FileKind, ReadAt, Storage};
use super::storage::{length, open, read};
use super::{Damage, IndexError, Part};

/// Number of slots read at once.
const BATCH: u32 = 1024;

/// Open tail, and the headers reconstructed from the slots read so far.
#[derive(Debug)]
pub(super) struct Tail<F> {
    file: F,
    name: String,
    generation: u64,
    pub(super) rows: Rows,
    /// Number of valid slots at the start of the tail.
    pub(super) slots: u32,
    /// Number of valid slots that are known to be durable.
    pub(super) durable: u32,
    /// Number of slots up to and including the last slot that changes the rows.
    changes: u32,
    /// Value of `changes` that the last successful refresh reported.
    told: u32,
    /// Length of the file in bytes when it was last read.
    length: u64,
}

impl<F: ReadAt> Tail<F> {
    /// Opens and reads the tail that a manifest names.
    ///
    /// # Errors
    /// Returns an error of the storage, or [`IndexError::Damaged`]. The storage also returns
    /// [`io::ErrorKind::NotFound`](std::io::ErrorKind::NotFound) if a writer has replaced the
    /// manifest since the caller read it.
    pub(super) fn open<S: Storage<File = F>>(
        storage: &S,
        manifest: &Manifest,
    ) -> Result<Self, IndexError> {
        let name = manifest.tail();
        let file = open(storage, &name, FileKind::Growing)?;
        let found = length(&file, &name)?;
        if found < HEADER as u64 {
            let damage = Damage::Length { found, expected: HEADER as u64 };
            return Err(damaged(&name, found, Part::TailHeader, damage));
        }
        let mut bytes = [0; HEADER];
        read(&file, &name, &mut bytes, 0)?;
        let header = TailHeader::from_bytes(&name, &manifest.settings, &bytes)?;
        let TailHeader { generation, durable, first, parent_hash } = header;
        let (expected, unsealed) = (manifest.generation, manifest.unsealed());
        if generation != expected || first != unsealed {
            let what = format!(
                "it has generation {generation} and first block {first}; \
                 the manifest says {expected} and {unsealed}"
            );
            return Err(contradiction(&name, 0, Part::TailHeader, what));
        }
        let rows = Rows::new(first, parent_hash);
        let mut tail = Self {
            file,
            name,
            generation,
            rows,
            slots: 0,
            durable,
            changes: 0,
            told: 0,
            length: 0,
        };
        tail.refresh()?;
        Ok(tail)
    }

    /// Reads the slots appended since the last call; returns `true` if the rows have changed since
    /// the last successful call.
    ///
    /// # Errors
    /// Returns an error of the storage, or [`IndexError::Damaged`]. Slots read before the error are
    /// kept.
    pub(super) fn refresh(&mut self) -> Result<bool, IndexError> {
        self.length = length(&self.file, &self.name)?;
        self.check_length(self.slots)?;
        let behind_header = self.length.saturating_sub(HEADER as u64);
        let end = u32::try_from(behind_header / SLOT as u64).unwrap_or(u32::MAX);
        let mut buffer = vec![0; end.saturating_sub(self.slots).min(BATCH) as usize * SLOT];
        let mut next = self.slots;
        while next < end {
            let batch = (end - next).min(BATCH);
            let bytes = &mut buffer[..batch as usize * SLOT];
            read(&self.file, &self.name, bytes, SlotPlace::offset(next))?;
            for (bytes, number) in bytes.as_chunks().0.iter().zip(next..) {
                // An invalid slot may be a slot that the writer is still writing. An invalid slot
                // is damage only if a later slot records that the invalid slot was durable.
                let Some((slot, durable)) = Slot::from_bytes(self.generation, number, bytes) else {
                    continue;
                };
                if number > self.slots && durable > self.slots {
                    self.read_again(number, durable)?;
                }
                if number == self.slots {
                    self.apply(&slot, durable)?;
                }
            }
            next = (next + batch).max(self.slots);
        }
        // The header or a later slot records that some slots are durable, but these slots are not
        // valid.
        if self.durable > self.slots {
            self.check_length(self.durable)?;
            let what = format!("it is missing, but {} slots are durable", self.durable);
            return Err(self.wrong_slot(what));
        }
        Ok(core::mem::replace(&mut self.told, self.changes) != self.changes)
    }

    /// Reads all slots again, starting at the first invalid slot, because slot `later` records that
    /// the first `durable` slots were durable.
    ///
    /// A writer may have been writing the invalid slots when they were read for the first time. A
    /// slot below `durable` that is still invalid is damage.
    fn read_again(&mut self, later: u32, durable: u32) -> Result<(), IndexError> {
        while self.slots < later {
            let mut bytes = [0; SLOT];
            read(&self.file, &self.name, &mut bytes, SlotPlace::offset(self.slots))?;
            match Slot::from_bytes(self.generation, self.slots, &bytes) {
                Some((slot, durable)) => self.apply(&slot, durable)?,
                None if self.slots < durable => {
                    let what = format!("it is invalid, but was durable before slot {later}");
                    return Err(self.wrong_slot(what));
                }
                None => break,
            }
        }
        Ok(())
    }

    /// Applies the next slot to the rows.
    fn apply(&mut self, slot: &Slot, durable: u32) -> Result<(), IndexError> {
        match slot {
            Slot::Row(row) => {
                let expected = self.rows.next();
                // `u64::MAX` is refused because the number of the next block must fit in 64 bits.
                if row.number != expected || row.number == u64::MAX {
                    let what = format!("it has block {}, expected {expected}", row.number);
                    return Err(self.wrong_slot(what));
                }
                self.rows.push(row);
            }
            Slot::RollBack { number, hash } => {
                if self.rows.hash(*number) != Some(*hash) {
                    let what = format!("it rolls back to block {number}, {hash}, which is unknown");
                    return Err(self.wrong_slot(what));
                }
                self.rows.truncate(*number);
            }
            Slot::Synced => {}
        }
        self.slots += 1;
        if *slot != Slot::Synced {
            self.changes = self.slots;
        }
        self.durable = self.durable.max(durable);
        Ok(())
    }

    /// Returns an error if the file is too short for `slots` slots.
    fn check_length(&self, slots: u32) -> Result<(), IndexError> {
        let expected = SlotPlace::offset(slots);
        if self.length >= expected {
            return Ok(());
        }
        let (part, damage) =
            (Part::Slot { slot: self.slots }, Damage::Length { found: self.length, expected });
        Err(damaged(&self.name, SlotPlace::offset(self.slots), part, damage))
    }

    fn wrong_slot(&self, what: String) -> IndexError {
        let part = Part::Slot { slot: self.slots };
        contradiction(&self.name, SlotPlace::offset(self.slots), part, what)
    }

    /// Returns `true` if no bytes follow the valid slots and every slot that changes the rows is
    /// durable.
    pub(super) fn is_whole(&self) -> bool {
        self.length == SlotPlace::offset(self.slots) && self.changes <= self.durable
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Mutex;

    use alloy_primitives::B256;

    use super::{Part, SLOT, Slot, SlotPlace, Tail, TailHeader};
    use crate::eth::index::format::tail::TailRow;
    use crate::eth::index::format::{Manifest, Settings};
    use crate::eth::index::{FileKind, IndexError, ReadAt, Storage};

    const GENERATION: u64 = 3;

    /// A tail whose content changes with each read of its slots.
    struct Changing(Mutex<Vec<Vec<u8>>>);

    impl ReadAt for &Changing {
        fn length(&self) -> io::Result<u64> {
            self.0.lock().expect("one thread")[0].length()
        }

        fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
            let mut contents = self.0.lock().expect("one thread");
            let read = contents[0].read_exact_at(buffer, offset);
            if offset > 0 && contents.len() > 1 {
                contents.remove(0);
            }
            read
        }
    }

    impl<'a> Storage for &'a Changing {
        type File = &'a Changing;

        fn open(&self, _: &str, _: FileKind) -> io::Result<&'a Changing> {
            Ok(self)
        }
    }

    fn manifest() -> Manifest {
        let settings = Settings::new("made up").expect("a label");
        Manifest { settings, sections: 0, first: 7, generation: GENERATION }
    }

    /// Returns a tail whose rows were written in two writes. The second write records that the
    /// first write was durable.
    fn tail(first: u32, second: u32) -> Vec<u8> {
        let header =
            TailHeader { generation: GENERATION, durable: 0, first: 7, parent_hash: B256::ZERO };
        let mut bytes = header.to_bytes(&manifest().settings).to_vec();
        for slot in 0..first + second {
            let hash = B256::repeat_byte(u8::try_from(slot).expect("few"));
            let number = 7 + u64::from(slot);
            let row = TailRow { number, hash, time: 0, gas_used: 0, bloom: [0; 256] };
            let durable = if slot < first { 0 } else { first };
            let place = SlotPlace { generation: GENERATION, slot, durable };
            bytes.extend(Slot::Row(row).to_bytes(place));
        }
        bytes
    }

    /// Fills some slots with zeros, as if they were not written yet.
    fn without(mut bytes: Vec<u8>, slots: &[u32]) -> Vec<u8> {
        for &slot in slots {
            let at = usize::try_from(SlotPlace::offset(slot)).expect("short");
            bytes[at..at + SLOT].fill(0);
        }
        bytes
    }

    fn rows(contents: &[Vec<u8>]) -> Result<usize, IndexError> {
        let changing = Changing(Mutex::new(contents.to_vec()));
        Tail::open(&&changing, &manifest()).map(|tail| tail.rows.len())
    }

    #[test]
    fn what_is_written_while_it_is_read_is_no_damage() {
        let whole = tail(5, 4);
        assert_eq!(rows(core::slice::from_ref(&whole)), Ok(9));
        // Slots 2 and 3 are invalid at first, but valid when slot 5 causes a second read.
        assert_eq!(rows(&[without(whole.clone(), &[2, 3]), whole.clone()]), Ok(9));
        // Slot 6 belongs to the second write, which may still be in progress.
        assert_eq!(rows(&[without(whole.clone(), &[2, 6]), whole.clone()]), Ok(6));
        assert_eq!(rows(&[without(whole.clone(), &[6])]), Ok(6));
        // Slot 3 remains invalid, although slot 5 records that it was durable.
        let still = without(whole.clone(), &[3]);
        let Err(IndexError::Damaged { part, offset, .. }) = rows(&[without(whole, &[2, 3]), still])
        else {
            panic!("damage");
        };
        assert_eq!((part, offset), (Part::Slot { slot: 3 }, SlotPlace::offset(3)));
    }

    #[test]
    fn a_tail_is_read_on_from_where_it_was_left() {
        let contents = [tail(5, 0), tail(5, 3), tail(5, 3)[..96 + 4 * SLOT].to_vec()];
        let changing = Changing(Mutex::new(contents.to_vec()));
        let mut tail = Tail::open(&&changing, &manifest()).expect("opens");
        assert_eq!(tail.refresh(), Ok(true));
        assert_eq!(tail.rows.len(), 8);
        let error = tail.refresh().expect_err("shorter than it was");
        assert!(matches!(error, IndexError::Damaged { part: Part::Slot { slot: 8 }, .. }));
        assert_eq!(tail.rows.len(), 8);
    }

    #[test]
    fn what_was_read_before_an_error_is_told_by_the_next_refresh() {
        let mut wrong = tail(5, 3);
        let row = TailRow { number: 0, hash: B256::ZERO, time: 0, gas_used: 0, bloom: [0; 256] };
        let place = SlotPlace { generation: GENERATION, slot: 8, durable: 5 };
        wrong.extend(Slot::Row(row).to_bytes(place));
        let changing = Changing(Mutex::new(vec![tail(5, 0), wrong, tail(5, 3)]));
        let mut tail = Tail::open(&&changing, &manifest()).expect("opens");
        let error = tail.refresh().expect_err("no next block");
        assert!(matches!(error, IndexError::Damaged { part: Part::Slot { slot: 8 }, .. }));
        assert_eq!(tail.refresh(), Ok(true));
        assert_eq!(tail.rows.len(), 8);
        assert_eq!(tail.refresh(), Ok(false));
    }
}
