//! The memory of filters: words of 64 bits, aligned to cache lines.

use alloc::vec::Vec;
use core::fmt;

/// Bytes of a cache line.
pub(crate) const LINE_BYTES: usize = 64;
/// Words of a cache line.
pub(crate) const LINE_WORDS: usize = LINE_BYTES / 8;
/// From here on memory comes in huge pages where the system has them: below, a filter's pages
/// fit the CPU's tables of them.
#[cfg(all(feature = "std", target_os = "linux", target_endian = "little"))]
const HUGE_FROM_BYTES: usize = 4 << 20;

/// Words of 64 bits that begin at a cache line, zero at first.
pub struct Words(Memory);

enum Memory {
    /// `start` is where the first line begins.
    Heap { words: Vec<u64>, start: usize },
    #[cfg(all(feature = "std", target_os = "linux", target_endian = "little"))]
    Mapped(memmap2::MmapMut),
}

/// There is no memory for a filter of this size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no memory for a filter of {words} words of 64 bits")]
pub struct NoMemory {
    /// How much was asked for.
    pub words: u64,
}

impl Words {
    /// `len` words of zero.
    pub(crate) fn zeroed(len: u64) -> Result<Self, NoMemory> {
        let no_memory = NoMemory { words: len };
        let len = usize::try_from(len).map_err(|_| no_memory)?;
        let bytes = len.checked_mul(8).filter(|bytes| isize::try_from(*bytes).is_ok());
        let bytes = bytes.ok_or(no_memory)?;
        #[cfg(all(feature = "std", target_os = "linux", target_endian = "little"))]
        if bytes >= HUGE_FROM_BYTES {
            return Self::mapped(bytes).ok_or(no_memory);
        }
        let _ = bytes;
        let mut words: Vec<u64> = Vec::new();
        words.try_reserve_exact(len + LINE_WORDS).map_err(|_| no_memory)?;
        // Out of reach only where pointers have no numbers: then unaligned is good enough.
        let start = match words.as_ptr().align_offset(LINE_BYTES) {
            start if start < LINE_WORDS => start,
            _ => 0,
        };
        words.resize(start + len, 0);
        Ok(Self(Memory::Heap { words, start }))
    }

    #[cfg(all(feature = "std", target_os = "linux", target_endian = "little"))]
    fn mapped(bytes: usize) -> Option<Self> {
        let map = memmap2::MmapMut::map_anon(bytes).ok()?;
        // A system without huge pages refuses, and small ones do.
        let _ = map.advise(memmap2::Advice::HugePage);
        Some(Self(Memory::Mapped(map)))
    }

    /// A copy of little-endian bytes, of a length that is a multiple of eight.
    pub(crate) fn from_le_bytes(bytes: &[u8]) -> Result<Self, NoMemory> {
        let mut words = Self::zeroed((bytes.len() / 8) as u64)?;
        for (word, bytes) in words.as_mut().iter_mut().zip(bytes.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        Ok(words)
    }

    /// A copy.
    pub(crate) fn copy_of(words: &[u64]) -> Result<Self, NoMemory> {
        let mut copy = Self::zeroed(words.len() as u64)?;
        copy.as_mut().copy_from_slice(words);
        Ok(copy)
    }
}

/// How many bits are set.
pub(crate) fn count_ones(words: &[u64]) -> u64 {
    words.iter().map(|word| u64::from(word.count_ones())).sum()
}

/// Sets the bits that the others have.
pub(crate) fn unite(words: &mut [u64], others: &[u64]) {
    for (word, other) in words.iter_mut().zip(others) {
        *word |= other;
    }
}

impl AsRef<[u64]> for Words {
    #[inline]
    fn as_ref(&self) -> &[u64] {
        match &self.0 {
            Memory::Heap { words, start } => words.get(*start..).unwrap_or_default(),
            #[cfg(all(feature = "std", target_os = "linux", target_endian = "little"))]
            Memory::Mapped(map) => bytemuck::cast_slice(map),
        }
    }
}

impl AsMut<[u64]> for Words {
    #[inline]
    fn as_mut(&mut self) -> &mut [u64] {
        match &mut self.0 {
            Memory::Heap { words, start } => words.get_mut(*start..).unwrap_or_default(),
            #[cfg(all(feature = "std", target_os = "linux", target_endian = "little"))]
            Memory::Mapped(map) => bytemuck::cast_slice_mut(map),
        }
    }
}

impl Clone for Words {
    /// # Panics
    /// If there is no memory, as every `clone`.
    fn clone(&self) -> Self {
        Self::copy_of(self.as_ref()).expect("memory for a copy")
    }
}

impl PartialEq for Words {
    fn eq(&self, other: &Self) -> bool {
        self.as_ref() == other.as_ref()
    }
}

impl Eq for Words {}

impl fmt::Debug for Words {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} words", self.as_ref().len())
    }
}
