//! Functions that compare the library with the reader that is written from the BIP's text. The
//! library reads and queries sets on every backend, with both kinds of acceptance.

use chainsieve::btc::bip158::{
    Acceptance, DecodedFilter, GcsError, GcsFilter, GcsParams, Matcher, PreparedScripts, gcs,
};
use chainsieve::hash::SipKey;
use chainsieve::simd::Backend;

use crate::btc::naive_gcs::{Coding, Fault, Reading};

impl Coding {
    pub fn params(self) -> GcsParams {
        GcsParams::new(self.p, self.m).expect("parameters of a test")
    }

    pub fn key(self) -> SipKey {
        SipKey { k0: self.k0, k1: self.k1 }
    }

    pub fn parse(self, bytes: &[u8], acceptance: Acceptance) -> Result<GcsFilter<'_>, GcsError> {
        GcsFilter::parse(self.params(), self.key(), bytes, acceptance)
    }

    /// Returns the set as the library writes it, which must be the same on every backend.
    pub fn written<E: AsRef<[u8]>>(self, elements: &[E]) -> Vec<u8> {
        let encode_on = |backend| {
            let elements = elements.iter().map(AsRef::as_ref);
            gcs::encode_on(backend, self.params(), self.key(), elements).expect("few elements")
        };
        let elements = elements.iter().map(AsRef::as_ref);
        let bytes = gcs::encode(self.params(), self.key(), elements).expect("few elements");
        for backend in Backend::available() {
            assert_eq!(encode_on(backend), bytes, "{backend:?}");
        }
        bytes
    }

    /// Returns the values as the library decodes them.
    pub fn decode(
        self,
        backend: Backend,
        bytes: &[u8],
        acceptance: Acceptance,
    ) -> Result<Vec<u64>, GcsError> {
        let mut values = vec![7; 3];
        let filter = self.parse(bytes, acceptance)?;
        filter.decode_into_on(backend, &mut values).map(|()| values)
    }

    /// Reads `bytes` with every backend and acceptance, and asserts that the results agree with the
    /// BIP's text. `Acceptance::Core` must accept exactly the sets that the BIP's text allows.
    /// `Acceptance::Strict` must also reject sets that no writer produces. Every error must name
    /// the right fault.
    pub fn check_reading(self, bytes: &[u8]) -> Result<Reading, Fault> {
        let expected = self.read(bytes);
        for backend in Backend::available() {
            let about = |acceptance| {
                let start = &bytes[..bytes.len().min(200)];
                format!("{acceptance} on {backend:?}: {self:?}, {start:02x?}")
            };
            let by_core = self.decode(backend, bytes, Acceptance::Core);
            let strict = self.decode(backend, bytes, Acceptance::Strict);
            match &expected {
                Ok(reading) => {
                    let values = by_core.unwrap_or_else(|e| panic!("{}: {e}", about("Core")));
                    assert!(values.iter().map(|v| u128::from(*v)).eq(reading.values.clone()));
                    match strict {
                        Ok(strict) => {
                            assert!(reading.is_canonical(), "{}", about("strict accepts"));
                            assert_eq!(strict, values, "{}", about("strict"));
                        }
                        Err(GcsError::ValueOverRange { value, range, .. }) => {
                            assert!(reading.over_range && value >= range, "{}", about("range"));
                        }
                        Err(GcsError::PaddingNotZero) => {
                            assert!(reading.padding, "{}", about("padding"));
                        }
                        Err(other) => panic!("{}: {other}", about("strict")),
                    }
                }
                Err(fault) => {
                    let error = by_core.expect_err(&about("Core accepts"));
                    assert_eq!(fault_of(&error), Some(*fault), "{}: {error}", about("Core"));
                    let error = strict.expect_err(&about("strict accepts"));
                    let over_range = matches!(error, GcsError::ValueOverRange { .. });
                    let same = over_range || fault_of(&error) == Some(*fault);
                    assert!(same, "{}: {error}, {fault:?}", about("strict"));
                }
            }
        }
        expected
    }

    /// Queries the set in `bytes` by every function of the library, and asserts that each answer is
    /// correct by the BIP's text. Returns the correct answer. Sets that cannot be read must give
    /// errors, never an answer.
    pub fn check_matching(self, bytes: &[u8], queries: &[Vec<u8>]) -> Option<Vec<usize>> {
        let reading = self.check_reading(bytes).ok();
        let expected = reading.as_ref().map(|reading| self.matching(reading, queries));
        let scripts: PreparedScripts = queries.iter().collect();
        for backend in Backend::available() {
            let mut matcher = Matcher::new().with_backend(backend);
            for acceptance in [Acceptance::Core, Acceptance::Strict] {
                let Ok(filter) = self.parse(bytes, acceptance) else { continue };
                let answers = (
                    matcher.matching(&filter, &scripts).ok(),
                    matcher.match_any(&filter, &scripts).ok(),
                    matcher.match_all(&filter, &scripts).ok(),
                );
                let readable = reading
                    .as_ref()
                    .filter(|reading| acceptance == Acceptance::Core || reading.is_canonical());
                let about = || format!("{acceptance:?} on {backend:?}: {self:?}, {queries:02x?}");
                let decoded = DecodedFilter::decode(&filter).ok();
                assert_eq!(decoded.is_some(), readable.is_some(), "{}", about());
                let matching = readable.and(expected.as_ref());
                let any = matching.map(|matching| !matching.is_empty());
                let all = matching.map(|matching| matching.len() == queries.len());
                assert_eq!(answers, (matching.cloned(), any, all), "{}", about());
                if let (Some(decoded), Some(matching)) = (decoded, matching) {
                    let decoded = decoded.with_backend(backend);
                    let by_decoded = decoded.matching(&scripts, 0..scripts.len());
                    assert_eq!(by_decoded, *matching, "{}", about());
                    assert_eq!(Some(decoded.match_any(&scripts)), any, "{}", about());
                    assert_eq!(Some(decoded.match_all(&scripts)), all, "{}", about());
                    let found = |index: &usize| decoded.may_contain(&queries[*index]);
                    assert!((0..queries.len()).filter(found).eq(matching.iter().copied()));
                }
            }
        }
        expected
    }
}

/// Returns the fault of the bytes that an error reports; `None` for errors that only strict
/// acceptance has.
pub fn fault_of(error: &GcsError) -> Option<Fault> {
    assert!(!error.to_string().is_empty());
    match error {
        GcsError::CountTruncated { .. } => Some(Fault::CountCut),
        GcsError::CountNonMinimal(_) => Some(Fault::CountNonMinimal),
        GcsError::CountTooLarge(_) => Some(Fault::CountTooLarge),
        GcsError::CountOverBytes { .. } | GcsError::Truncated { .. } => Some(Fault::Cut),
        GcsError::TrailingBytes(_) => Some(Fault::Trailing),
        _ => None,
    }
}
