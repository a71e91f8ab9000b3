//! The memory of filters: 64-bit words, aligned to cache lines.

use alloc::vec::Vec;
use core::fmt;

/// Bytes of a cache line.
pub(crate) const LINE_BYTES: usize = 64;
/// Words of a cache line.
pub(crate) const LINE_WORDS: usize = LINE_BYTES / 8;
/// Filters of at least this size ask the system for huge pages. Smaller filters gain nothing: the
/// CPU's TLB has an entry for each of their pages.
#[cfg(all(feature = "std", target_os = "linux", target_endian = "little"))]
const HUGE_FROM_BYTES: usize = 4 << 20;

/// A zero-initialised array of 64-bit words that starts at a cache line.
pub struct Words(Memory);

enum Memory {
    /// `start` is the index of the first word that lies at the start of a cache line.
    Heap { words: Vec<u64>, start: usize },
    #[cfg(all(feature = "std", target_os = "linux", target_endian = "little"))]
    Mapped(memmap2::MmapMut),
}

/// Error: there is no memory for a filter of this size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no memory for a filter of {words} words of 64 bits")]
#[non_exhaustive]
pub struct NoMemory {
    /// Number of 64-bit words that were requested.
    pub words: u64,
}

impl Words {
    /// Allocates `len` zero words.
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
        // `align_offset` may fail, for instance under Miri. Alignment matters only for speed, so
        // the memory is used unaligned in this case.
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
        // Huge pages only make the filter faster. The kernel may refuse them, so an error is
        // ignored.
        let _ = map.advise(memmap2::Advice::HugePage);
        Some(Self(Memory::Mapped(map)))
    }

    /// Copies little-endian bytes into words. The length of `bytes` must be a multiple of eight.
    pub(crate) fn from_le_bytes(bytes: &[u8]) -> Result<Self, NoMemory> {
        let mut words = Self::zeroed((bytes.len() / 8) as u64)?;
        for (word, bytes) in words.as_mut().iter_mut().zip(bytes.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        Ok(words)
    }
}

/// Reserves memory for `len` items. Returns an error where `Vec::with_capacity` would abort the
/// process.
pub(crate) fn reserved<T>(len: usize) -> Result<Vec<T>, NoMemory> {
    let mut items = Vec::new();
    let words = (len.saturating_mul(size_of::<T>()) / 8) as u64;
    items.try_reserve_exact(len).map_err(|_| NoMemory { words })?;
    Ok(items)
}

/// Allocates `len` items with the default value.
pub(crate) fn zeroed<T: Default + Clone>(len: usize) -> Result<Vec<T>, NoMemory> {
    let mut items = reserved(len)?;
    items.resize(len, T::default());
    Ok(items)
}

/// Counts the bits that are set.
pub(crate) fn count_ones(words: &[u64]) -> u64 {
    words.iter().map(|word| u64::from(word.count_ones())).sum()
}

/// Sets every bit of `words` that is set in `others`.
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
    /// Panics if there is no memory for the copy, as every `clone` does.
    fn clone(&self) -> Self {
        let mut copy = Self::zeroed(self.as_ref().len() as u64).expect("memory for a copy");
        copy.as_mut().copy_from_slice(self.as_ref());
        copy
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
