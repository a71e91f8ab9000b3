//! Golomb-coded sets that the `bitcoin` crate writes and queries, and the flaws of its reader.

use chainsieve::bitcoin::bip158::{GcsFilterReader, GcsFilterWriter};

use crate::btc::naive_gcs::{Coding, Fault};

/// Returns the set of the elements as the `bitcoin` crate writes it.
pub fn written_by_bitcoin(coding: Coding, elements: &[Vec<u8>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut writer =
        GcsFilterWriter::new(&mut bytes, coding.k0, coding.k1, coding.m.into(), coding.p);
    for element in elements {
        writer.add_element(element);
    }
    writer.finish().expect("a vector takes all");
    bytes
}

/// Returns `bitcoin`'s answers: whether any of `queries` matches, and whether all do. An error
/// becomes `None`.
pub fn asked_of_bitcoin(
    coding: Coding,
    bytes: &[u8],
    queries: &[Vec<u8>],
) -> (Option<bool>, Option<bool>) {
    let reader = GcsFilterReader::new(coding.k0, coding.k1, coding.m.into(), coding.p);
    let questions = || queries.iter().map(Vec::as_slice);
    let any = reader.match_any(&mut &bytes[..], questions());
    let all = reader.match_all(&mut &bytes[..], questions());
    (any.ok(), all.ok())
}

/// Returns whether any query matches and whether all queries match; an answer is `None` if the
/// given values do not decide it.
fn settled_early(
    coding: Coding,
    count: u64,
    values: &[u128],
    queries: &[Vec<u8>],
) -> (Option<bool>, Option<bool>) {
    let asked = queries.iter().map(|query| u128::from(coding.value(count, query)));
    let contains = |value: &u128| values.binary_search(value).is_ok();
    let complete = values.len() as u64 == count;
    let is_passed = |value: &u128| values.last().is_some_and(|last| last > value);
    let found = asked.clone().any(|value| contains(&value));
    let largest = asked.clone().max().expect("a question");
    let any = if found { Some(true) } else { (complete || is_passed(&largest)).then_some(false) };
    let all = match asked.filter(|value| !contains(value)).min() {
        None => Some(true),
        Some(smallest) => (complete || is_passed(&smallest)).then_some(false),
    };
    (any, all)
}

/// Counts the malformed sets for which `bitcoin` returned an answer, by the flaw that it
/// overlooked.
#[derive(Debug, Default)]
pub struct Flaws {
    /// `bitcoin` reads a truncated or non-minimal count as 0, so nothing matches.
    pub count_read_as_zero: usize,
    /// Trailing bytes after the last value.
    pub trailing_bytes: usize,
    /// Fewer values than the count claims, but the values present decide the answer.
    pub settled_before_the_end: usize,
    /// If there are no queries, `bitcoin` does not read the bytes at all.
    pub nothing_asked: usize,
}

impl Flaws {
    /// Asserts that `bitcoin` returns the library's answers, or answers that a known flaw of
    /// `bitcoin` explains. Returns `true` if the bytes are a valid set.
    pub fn check(&mut self, coding: Coding, bytes: &[u8], queries: &[Vec<u8>]) -> bool {
        let theirs = asked_of_bitcoin(coding, bytes, queries);
        let about = || format!("{coding:?}: {bytes:02x?}, {queries:02x?}");
        if let Some(matching) = coding.check_matching(bytes, queries) {
            let ours = (!matching.is_empty(), matching.len() == queries.len());
            assert_eq!(theirs, (Some(ours.0), Some(ours.1)), "{}", about());
            return true;
        }
        let fault = coding.read(bytes).expect_err("there is no answer");
        if queries.is_empty() {
            assert_eq!(theirs, (Some(false), Some(true)), "{}", about());
            self.nothing_asked += 1;
            return false;
        }
        let (expected, flaw) = match fault {
            Fault::CountCut | Fault::CountNonMinimal => {
                ((Some(false), Some(false)), &mut self.count_read_as_zero)
            }
            Fault::Cut | Fault::Trailing | Fault::CountTooLarge => {
                let (count, values) = coding.prefix(bytes).expect("a count");
                let flaw = match fault {
                    Fault::Trailing => &mut self.trailing_bytes,
                    _ => &mut self.settled_before_the_end,
                };
                (settled_early(coding, count, &values, queries), flaw)
            }
        };
        assert_eq!(theirs, expected, "{fault:?}: {}", about());
        *flaw += usize::from(theirs.0.is_some()) + usize::from(theirs.1.is_some());
        false
    }
}
