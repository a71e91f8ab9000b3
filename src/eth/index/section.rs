//! Transposes a section of headers into bit rows.

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

/// Number of groups of 512 headers that are transposed before rows are written. With this number,
/// the groups and their columns fit in a cache of 1 MiB, and 256 bytes of each row are written at a
/// time.
const STRETCHES: usize = 4;
/// Number of bytes of a row that are written at a time.
const PIECE: usize = STRETCHES * ROWS / 8;
/// Prefetch distance in rows: the memory of a row is requested this many rows before the write.
const AHEAD: usize = 16;

/// The bits of one row for 8,192 headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(align(64))] // so that every piece covers whole cache lines
pub(super) struct SectionRow(pub(super) [u8; ROW]);

/// 8,192 headers as rows of bits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Section {
    pub(super) record: SectionRecord,
    /// Number of bits set in each row, by position.
    pub(super) ones: Box<[u16; BITS]>,
    /// Checksum of each row's data as encoded in a segment, by position.
    pub(super) crcs: Box<[u32; BITS]>,
    /// The rows, by bit position.
    pub(super) rows: Box<[SectionRow; BITS]>,
    /// Hashes of the blocks; `None` if the index does not store them.
    pub(super) block_hashes: Option<Vec<B256>>,
}

/// Transposes headers, section by section, and reuses the memory of earlier sections.
///
/// # Cost
/// Uses 0.5 MiB of memory, plus the memory of the sections that were given back.
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

    /// Takes back sections that are no longer needed, so that new sections reuse their memory.
    pub(super) fn give_back(&mut self, sections: impl IntoIterator<Item = Section>) {
        self.free.extend(sections);
    }

    /// Transposes the first 8,192 headers.
    ///
    /// # Panics
    /// Panics if there are fewer than 8,192 headers.
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
        // `WritePiece` has already computed the checksums of raw rows. A row that is stored as a
        // list needs the checksum of the list. A row without data gets the checksum of no bytes,
        // which is 0.
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

    /// Resets the section and sets all fields except the rows, the counts of set bits and the
    /// checksums of the rows.
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

    /// Adds each filter to the histogram of fills, and the gas of its block to the class of this
    /// fill.
    fn count(&mut self, backend: Backend, blooms: &[[u8; BYTES]; ROWS], gas: &[u64; ROWS]) {
        let mut ones = [0; ROWS];
        backend.run(CountOnes { blooms, ones: &mut ones });
        for (&ones, &used) in ones.iter().zip(gas) {
            self.record.fills[ones as usize] += 1;
            let class = fill_class(ones);
            // Saturate instead of overflowing: a private chain may have headers with any gas value.
            self.record.gas[class] = self.record.gas[class].saturating_add(used);
            self.record.most_gas[class] = used.max(self.record.most_gas[class]);
        }
    }

    /// Appends the data of a row in the encoding that a segment uses.
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

/// Counts the set bits of each filter.
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

/// Writes strips into the rows, counts their bits and extends their checksums.
struct WritePiece<'a> {
    strips: &'a [Strip<STRETCHES>; BITS],
    /// Index of the piece within each row.
    piece: usize,
    section: &'a mut Section,
}

/// Returns the index of the strip of a bit position. Position 0 is the lowest bit of a filter's
/// last byte, because a filter is a big-endian number.
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
        // Four checksums are computed in parallel, which hides the latency of each CRC step.
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
