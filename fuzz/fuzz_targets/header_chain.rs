//! Concatenated headers: linked in the same way on every backend, in one call and one by one, and
//! only by parent hash and number.
#![no_main]

use chainsieve::eth::header::{HeaderView, LinkedHeaders};
use chainsieve::simd::Backend;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|rlp: &[u8]| {
    let mut plain = LinkedHeaders::new();
    let result = plain.extend_from_rlp_on(Backend::SCALAR, rlp);
    for backend in Backend::available() {
        let mut chain = LinkedHeaders::new();
        assert_eq!(chain.extend_from_rlp_on(backend, rlp), result);
        assert!(chain.blocks().eq(plain.blocks()));
    }
    let mut one_by_one = LinkedHeaders::new();
    let mut rest = rlp;
    while let Ok((header, behind)) = HeaderView::decode_prefix(rest) {
        let _ = one_by_one.push(&header);
        rest = behind;
        if let Some(numbers) = one_by_one.numbers() {
            assert_eq!(*numbers.end(), one_by_one.blocks().last().expect("one").number);
            let last = one_by_one.last_hash().expect("a block");
            assert_eq!(one_by_one.anchored_to(&[last]), Some(*numbers.end()));
        }
    }
    if result.is_ok() {
        assert!(one_by_one.blocks().eq(plain.blocks()));
    }
});
