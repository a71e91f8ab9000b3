//! A pause for a node that does not answer.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::error::RpcError;

/// Time for which a node rests after its first failure. The time doubles with each further one.
const SHORTEST: Duration = Duration::from_secs(30);
const LONGEST: Duration = Duration::from_secs(600);

/// Records whether a node fails to answer, so that others can be asked before it.
#[derive(Debug, Default)]
pub(super) struct Rest(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    until: Option<Instant>,
    length: Duration,
    /// The last failure.
    why: Option<RpcError>,
}

impl Rest {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records an answer of any kind: the node does not rest any more.
    pub(super) fn answered(&self) {
        *self.state() = State::default();
    }

    /// Records that a request got no answer, although it was repeated.
    pub(super) fn failed(&self, now: Instant, why: &RpcError) {
        let mut state = self.state();
        state.why = Some(why.origin().clone());
        // The pause that the node asks for.
        if let Some(asked) = why.retry_after() {
            state.until = state.until.max(Some(now + asked.min(LONGEST)));
            return;
        }
        // Requests that were sent together fail together, which counts once.
        if state.until.is_none_or(|until| until <= now) {
            state.length = (state.length * 2).clamp(SHORTEST, LONGEST);
            state.until = Some(now + state.length);
        }
    }

    /// Returns why the node rests; `None` if it does not.
    pub(super) fn why(&self, now: Instant) -> Option<RpcError> {
        let state = self.state();
        state.why.clone().filter(|_| state.until.is_some_and(|until| now < until))
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use chainsieve::eth::provider::Limit;

    use super::super::error::RpcError;
    use super::{LONGEST, Rest, SHORTEST};

    const SILENT: RpcError = RpcError::Timeout { limit: Duration::ZERO };

    #[test]
    fn a_rest_doubles_until_an_answer() {
        let (rest, mut now) = (Rest::default(), Instant::now());
        let is_over = |now| rest.why(now).is_none();
        assert!(is_over(now));
        let mut length = SHORTEST;
        for _ in 0..8 {
            rest.failed(now, &SILENT);
            rest.failed(now, &SILENT);
            assert_eq!(rest.why(now + length / 2), Some(SILENT));
            now += length;
            assert!(is_over(now));
            length = (length * 2).min(LONGEST);
        }
        assert_eq!(length, LONGEST);
        rest.failed(now, &SILENT);
        rest.answered();
        assert!(is_over(now));
        rest.failed(now, &SILENT);
        assert!(is_over(now + SHORTEST));
        rest.answered();
        let asked = SHORTEST / 10;
        let limit = Limit::RateLimited { retry_after: Some(asked) };
        rest.failed(now, &RpcError::LimitExceeded { limit, message: String::new() });
        assert!(!is_over(now + asked / 2) && is_over(now + asked));
    }
}
