//! An allocator that counts the bytes that each thread requests.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// The counting allocator; a binary declares it as its `#[global_allocator]`.
#[derive(Debug)]
pub struct Counting;

thread_local! {
    static REQUESTED: Cell<usize> = const { Cell::new(0) };
}

fn count(bytes: usize) {
    // The access fails only while a thread is being torn down, when nothing is measured.
    let _ = REQUESTED.try_with(|requested| requested.set(requested.get() + bytes));
}

// SAFETY: every call is passed unchanged to the system's allocator; the counter itself allocates
// nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller upholds the contract of this function, which is the same as that of
        // `System`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller upholds the contract of this function, which is the same as that of
        // `System`.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count(layout.size());
        // SAFETY: the caller upholds the contract of this function, which is the same as that of
        // `System`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size);
        // SAFETY: the caller upholds the contract of this function, which is the same as that of
        // `System`.
        unsafe { System.realloc(pointer, layout, size) }
    }
}

/// Runs `f`, and returns its result and the number of bytes that it requested. Bytes that `f` has
/// freed again are included.
///
/// # Panics
/// Panics if the binary does not have [`Counting`] as its allocator.
pub fn requested_by<T>(f: impl FnOnce() -> T) -> (T, usize) {
    let before = REQUESTED.get();
    drop(std::hint::black_box(Box::new(0_u64)));
    assert!(REQUESTED.get() > before, "this binary's allocator does not count bytes");
    let before = REQUESTED.get();
    let result = f();
    (result, REQUESTED.get() - before)
}
