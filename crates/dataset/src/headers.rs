//! Trusted headers from a file.

use std::collections::BTreeMap;
use std::ops::Range;

use chainsieve::eth::header::{HeaderBuf, HeaderView};

use crate::error::Error;

/// Reads headers from their RLP encodings, one after another, as a source of trusted headers.
///
/// The bytes are kept, and an index of about 50 bytes a header.
///
/// # Errors
/// Returns an error if the bytes are not those of headers.
pub fn rlp_headers(
    rlp: Vec<u8>,
) -> Result<impl FnMut(u64) -> Option<HeaderBuf> + Send + 'static, Error> {
    let mut by_number: BTreeMap<u64, Range<usize>> = BTreeMap::new();
    let mut start = 0;
    while start < rlp.len() {
        let (view, behind) = HeaderView::decode_prefix(&rlp[start..])
            .map_err(|error| Error::Headers { offset: start, reason: error.to_string() })?;
        let end = rlp.len() - behind.len();
        by_number.insert(view.number(), start..end);
        start = end;
    }
    Ok(move |number| {
        let range = by_number.get(&number)?.clone();
        HeaderBuf::from_rlp(rlp[range].to_vec()).ok()
    })
}
