//! The vector units of x86-64.

mod avx2;
mod avx512;

pub(super) use avx2::Avx2;
pub(super) use avx512::Avx512;

/// Whether the CPU has every one of the features: asked at run time with `std`, otherwise what
/// the crate was compiled for.
macro_rules! cpu_has {
    ($($feature:tt),+) => {{
        #[cfg(feature = "std")]
        { $(std::arch::is_x86_feature_detected!($feature))&&+ }
        #[cfg(not(feature = "std"))]
        { cfg!(all($(target_feature = $feature),+)) }
    }};
}
use cpu_has;

/// Functions of two arguments that are one intrinsic each, by the macro `op` or `both`.
macro_rules! binary {
    ($register:ty, $op:ident: $($name:ident = $intrinsic:ident,)+) => {$(
        #[inline(always)]
        fn $name(self, a: $register, b: $register) -> $register {
            $op!($intrinsic(a, b))
        }
    )+};
}
use binary;

/// Asks for the line where a value begins from memory.
#[expect(unsafe_code, reason = "CPU intrinsics")]
#[inline(always)]
pub(super) fn prefetch<T>(value: &T) {
    let value = core::ptr::from_ref(value).cast();
    // SAFETY: every x86-64 CPU has SSE, and the instruction neither faults nor changes anything.
    unsafe { core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(value) }
}

/// The last offset from which four bytes can be gathered.
///
/// Panics unless there are at least four bytes and at most `i32::MAX`.
#[inline(always)]
fn last_offset(bytes: &[u8]) -> u32 {
    let last = bytes.len().checked_sub(4).and_then(|last| i32::try_from(last).ok());
    last.expect("4 to 2^31 - 1 bytes to gather from").cast_unsigned()
}

/// The last index of words that are gathered from, which masks any index.
///
/// Panics unless their number is a power of two.
#[inline(always)]
fn last_word_index(words: &[u64]) -> u64 {
    assert!(words.len().is_power_of_two(), "{} words to gather from", words.len());
    words.len() as u64 - 1
}

/// The byte order that reverses each lane, counted within 128 bits.
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

/// The byte order that reverses each word, counted within 128 bits.
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

/// The last offset from which eight bytes can be gathered.
///
/// Panics unless there are at least eight bytes.
#[inline(always)]
fn last_offset_64(bytes: &[u8]) -> u64 {
    bytes.len().checked_sub(8).expect("8 bytes to gather from at least") as u64
}
