//! The vector units of x86-64.

mod avx2;
mod avx512;

pub(super) use avx2::Avx2;
pub(super) use avx512::Avx512;

/// Returns `true` if the CPU has every one of the features. With `std` the CPU is asked at run
/// time; without `std`, the result is `true` if the crate was compiled for these features.
macro_rules! cpu_has {
    ($($feature:tt),+) => {{
        #[cfg(feature = "std")]
        { $(std::arch::is_x86_feature_detected!($feature))&&+ }
        #[cfg(not(feature = "std"))]
        { cfg!(all($(target_feature = $feature),+)) }
    }};
}
use cpu_has;

/// Defines functions of two arguments. Each function calls one intrinsic through the macro `op` or
/// `both`.
macro_rules! binary {
    ($register:ty, $op:ident: $($name:ident = $intrinsic:ident,)+) => {$(
        #[inline(always)]
        fn $name(self, a: $register, b: $register) -> $register {
            $op!($intrinsic(a, b))
        }
    )+};
}
use binary;

/// Prefetches the cache line where a value starts.
#[expect(unsafe_code, reason = "CPU intrinsics")]
#[inline(always)]
pub(super) fn prefetch<T>(value: &T) {
    let value = core::ptr::from_ref(value).cast();
    // SAFETY: every x86-64 CPU has SSE, and the instruction neither faults nor changes anything.
    unsafe { core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(value) }
}

/// Returns the last offset from which four bytes can be loaded.
///
/// Panics unless there are at least four bytes and at most `i32::MAX`.
#[inline(always)]
fn last_offset(bytes: &[u8]) -> u32 {
    let last = bytes.len().checked_sub(4).and_then(|last| i32::try_from(last).ok());
    last.expect("4 to 2^31 - 1 bytes to gather from").cast_unsigned()
}

/// Returns the last index of a table of words. The returned index is also the mask that brings any
/// index into range.
///
/// Panics unless the number of words is a power of two.
#[inline(always)]
fn last_word_index(words: &[u64]) -> u64 {
    assert!(words.len().is_power_of_two(), "{} words to gather from", words.len());
    words.len() as u64 - 1
}

/// The shuffle that reverses the bytes of each 32-bit lane; positions are relative to each 128
/// bits.
const SWAP_BYTES: [u32; 16] = {
    let four = [0x0001_0203, 0x0405_0607, 0x0809_0a0b, 0x0c0d_0e0f];
    let mut order = [0; 16];
    let mut lane = 0;
    while lane < 16 {
        order[lane] = four[lane % 4];
        lane += 1;
    }
    order
};

/// The shuffle that reverses the bytes of each 64-bit word; positions are relative to each 128
/// bits.
const SWAP_BYTES_64: [u64; 8] = {
    let two = [0x0001_0203_0405_0607, 0x0809_0a0b_0c0d_0e0f];
    let mut order = [0; 8];
    let mut lane = 0;
    while lane < 8 {
        order[lane] = two[lane % 2];
        lane += 1;
    }
    order
};

/// Returns the last offset from which eight bytes can be loaded.
///
/// Panics unless there are at least eight bytes.
#[inline(always)]
fn last_offset_64(bytes: &[u8]) -> u64 {
    bytes.len().checked_sub(8).expect("at least 8 bytes to gather from") as u64
}
