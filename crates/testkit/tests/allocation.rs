//! Tests that the allocator counts the requested bytes.

use testkit::allocation::{Counting, requested_by};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn requests_are_counted() {
    let (vector, requested) = requested_by(|| vec![1_u8; 12_345]);
    assert_eq!((vector.len(), requested), (12_345, 12_345));
    let ((), requested) = requested_by(|| ());
    assert_eq!(requested, 0);
}
