//! A section turned on its side.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use alloy_primitives::{B256, FixedBytesSliceExt as _};
use chainsieve_lanes::bits::transpose::{self, Column, ROWS, Strip, column_of, transpose_into};
use chainsieve_lanes::simd::{Backend, Kernel, Lanes, prefetch};

use super::format::segment::{Coding, FILL_CLASSES, ROW, SectionRecord, fill_class};
use super::format::{SECTION, Settings};
use super::rows::Rows;
use crate::eth::bloom::{BITS, BYTES};

/// Stretches of 512 headers that are turned before rows are written: a stretch and its columns
/// then stay in a cache of 1 MiB, and a row gets 256 bytes at a time.
const STRETCHES: usize = 4;
/// Bytes of a row that are written at a time.
const PIECE: usize = STRETCHES * ROWS / 8;
/// So many rows before they are written, their memory is asked for.
const AHEAD: usize = 16;

/// A row of 8,192 headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(align(64))] // every piece is whole lines of the cache
pub(super) struct SectionRow(pub(super) [u8; ROW]);

/// 8,192 headers as rows of bits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Section {
    pub(super) record: SectionRecord,
    /// Bits set in each row, by position.
    pub(super) ones: Box<[u16; BITS]>,
    /// The checksum of each row's data in a segment, by position.
    pub(super) crcs: Box<[u32; BITS]>,
    /// The rows, by position.
    pub(super) rows: Box<[SectionRow; BITS]>,
    /// The hashes of the blocks, where the index keeps them.
    pub(super) block_hashes: Option<Vec<B256>>,
}

/// Turns headers, section by section.
///
/// # Cost
/// 0.5 MiB, and the memory of the sections given back.
pub(super) struct Turner {
    strips: Box<[Strip<STRETCHES>; BITS]>,
    list: Vec<u8>,
    free: Vec<Section>,
}

impl Turner {
    pub(super) fn new() -> Self {
        Self {
            strips: filled(Strip([Column::default(); STRETCHES])),
            list: Vec::new(),
            free: Vec::new(),
        }
    }

    /// Takes sections that are not needed any more: new ones get their memory.
    pub(super) fn give_back(&mut self, sections: impl IntoIterator<Item = Section>) {
        self.free.extend(sections);
    }

    /// Turns the first 8,192 headers.
    ///
    /// # Panics
    /// If there are fewer.
    pub(super) fn turn(
        &mut self,
        backend: Backend,
        headers: &Rows,
        settings: &Settings,
    ) -> Section {
        let mut section = self.free.pop().unwrap_or_else(Section::empty);
        section.start(headers, settings);
        let (stretches, _) = headers.blooms[..SECTION].as_chunks::<ROWS>();
        let (gas, _) = headers.gas.as_chunks::<ROWS>();
        for (piece, (stretches, gas)) in
            stretches.chunks_exact(STRETCHES).zip(gas.chunks_exact(STRETCHES)).enumerate()
        {
            for (number, (blooms, gas)) in stretches.iter().zip(gas).enumerate() {
                section.count(backend, blooms, gas);
                transpose_into(backend, &blooms.each_ref(), number, &mut self.strips);
            }
            backend.run(WritePiece { strips: &self.strips, piece, section: &mut section });
        }
        // The checksums of raw rows are there.
        for row in 0..BITS {
            if Coding::of(section.ones[row]) != Coding::Raw {
                self.list.clear();
                section.append_data(row, &mut self.list);
                section.crcs[row] = crc32c::crc32c(&self.list);
            }
        }
        section
    }
}

impl Section {
    fn empty() -> Self {
        let record = SectionRecord {
            parent_hash: B256::ZERO,
            first_hash: B256::ZERO,
            last_hash: B256::ZERO,
            first_time: 0,
            last_time: 0,
            gas: [0; FILL_CLASSES],
            most_gas: [0; FILL_CLASSES],
            fills: filled(0),
            hashes_crc: 0,
        };
        let rows = filled(SectionRow([0; ROW]));
        Self { record, ones: filled(0), crcs: filled(0), rows, block_hashes: None }
    }

    /// Sets all but the rows and what is counted.
    fn start(&mut self, headers: &Rows, settings: &Settings) {
        let hashes = &headers.hashes[..SECTION];
        self.block_hashes = settings.has_block_hashes().then(|| hashes.to_vec());
        let record = &mut self.record;
        record.parent_hash = headers.parent_hash;
        record.first_hash = hashes[0];
        record.last_hash = hashes[SECTION - 1];
        record.first_time = headers.times[0];
        record.last_time = headers.times[SECTION - 1];
        record.gas = [0; FILL_CLASSES];
        record.most_gas = [0; FILL_CLASSES];
        record.fills.fill(0);
        let hashes = self.block_hashes.as_deref();
        record.hashes_crc = hashes.map_or(0, |hashes| crc32c::crc32c(hashes.as_flattened()));
        self.ones.fill(0);
        self.crcs.fill(0);
    }

    /// Counts filters and gas by how many bits are set.
    fn count(&mut self, backend: Backend, blooms: &[[u8; BYTES]; ROWS], gas: &[u64; ROWS]) {
        let mut ones = [0; ROWS];
        backend.run(CountOnes { blooms, ones: &mut ones });
        for (&ones, &used) in ones.iter().zip(gas) {
            self.record.fills[ones as usize] += 1;
            let class = fill_class(ones);
            // Nothing keeps a private chain from headers with any gas.
            self.record.gas[class] = self.record.gas[class].saturating_add(used);
            self.record.most_gas[class] = used.max(self.record.most_gas[class]);
        }
    }

    /// Appends the data of a row as they stand in a segment.
    pub(super) fn append_data(&self, row: usize, to: &mut Vec<u8>) {
        let SectionRow(bits) = &self.rows[row];
        match Coding::of(self.ones[row]) {
            Coding::Zeros | Coding::Ones => {}
            Coding::Raw => to.extend(bits),
            Coding::List(_) => {
                for (word, bytes) in (0_u16..).zip(bits.as_chunks().0) {
                    let mut bits = u64::from_le_bytes(*bytes);
                    while bits != 0 {
                        let place = u16::try_from(bits.trailing_zeros()).expect("below 64");
                        to.extend((word * 64 + place).to_le_bytes());
                        bits &= bits - 1;
                    }
                }
            }
        }
    }
}

/// Counts the bits of filters.
struct CountOnes<'a> {
    blooms: &'a [[u8; BYTES]; ROWS],
    ones: &'a mut [u32; ROWS],
}

impl CountOnes<'_> {
    #[inline(always)]
    fn count(self) {
        for (bloom, ones) in self.blooms.iter().zip(self.ones) {
            *ones = 0;
            for word in bloom.as_chunks().0 {
                *ones += u64::from_le_bytes(*word).count_ones();
            }
        }
    }
}

impl Kernel for CountOnes<'_> {
    type Output = ();

    fn scalar(self) {
        self.count();
    }

    #[inline(always)]
    fn vector<L: Lanes>(self, _: L) {
        self.count();
    }
}

/// Writes strips into the rows, counts their bits and goes on with their checksums.
struct WritePiece<'a> {
    strips: &'a [Strip<STRETCHES>; BITS],
    /// Which of the pieces of each row.
    piece: usize,
    section: &'a mut Section,
}

/// Where the strip of a position stands: position 0 is the lowest bit of the last byte.
#[inline(always)]
const fn strip_of(position: usize) -> usize {
    column_of(position ^ (BITS - 8))
}

impl WritePiece<'_> {
    #[inline(always)]
    fn write(&mut self, position: usize) -> &[u8; PIECE] {
        let words = self.strips[strip_of(position)].0.as_flattened();
        let row = self.section.rows[position].0.as_chunks_mut::<PIECE>().0;
        let to = &mut row[self.piece];
        let mut count = 0;
        for (to, word) in to.as_chunks_mut().0.iter_mut().zip(words) {
            *to = word.to_le_bytes();
            count += word.count_ones();
        }
        self.section.ones[position] += u16::try_from(count).expect("at most 2,048");
        to
    }
}

impl Kernel for WritePiece<'_> {
    type Output = ();

    fn scalar(mut self) {
        for position in 0..BITS {
            let crc = self.section.crcs[position];
            self.section.crcs[position] = crc32c::crc32c_append(crc, self.write(position));
        }
    }

    #[inline(always)]
    fn vector<L: Lanes>(mut self, lanes: L) {
        // The checksums of four rows, side by side, hide how long a step takes.
        for first in (0..BITS).step_by(4) {
            for position in first..first + 4 {
                let ahead = &self.section.rows[(position + AHEAD) % BITS].0;
                for line in 0..PIECE / 64 {
                    prefetch(&ahead[self.piece * PIECE + line * 64]);
                }
                self.write(position);
            }
            let crcs = self.section.crcs[first..].first_chunk_mut::<4>().expect("a multiple of 4");
            let mut registers = [0; 4];
            for (register, crc) in registers.iter_mut().zip(&*crcs) {
                *register = u64::from(!*crc);
            }
            let [a, b, c, d] = [
                &self.strips[strip_of(first)].0,
                &self.strips[strip_of(first + 1)].0,
                &self.strips[strip_of(first + 2)].0,
                &self.strips[strip_of(first + 3)].0,
            ];
            for column in 0..STRETCHES {
                let pairs = [a, b, c, d].map(|strip| strip[column].as_chunks::<2>().0);
                for pair in 0..ROWS / 64 {
                    for (register, pairs) in registers.iter_mut().zip(&pairs) {
                        let [low, high] = pairs[pair];
                        let word = u64::from(low) | u64::from(high) << 32;
                        *register = lanes.crc32c(*register, word);
                    }
                }
            }
            for (crc, register) in crcs.iter_mut().zip(&registers) {
                let [a, b, c, d, ..] = register.to_le_bytes();
                *crc = !u32::from_le_bytes([a, b, c, d]);
            }
        }
    }
}

#[expect(clippy::unnecessary_box_returns, reason = "too large for the stack")]
fn filled<T: Clone, const N: usize>(with: T) -> Box<[T; N]> {
    let made: Result<_, Vec<T>> = vec![with; N].try_into();
    made.unwrap_or_else(|_| unreachable!("as long as it was made"))
}

const _: () = assert!(transpose::BITS == BITS && SECTION.is_multiple_of(ROWS * STRETCHES));
