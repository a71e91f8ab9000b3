//! A pause for a node that does not answer.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

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
}

impl Rest {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records an answer of any kind: the node does not rest any more.
    pub(super) fn answered(&self) {
        *self.state() = State::default();
    }

    /// Records that a request got no answer, although it was repeated. `asked` is the pause that the node
    /// asks for.
    pub(super) fn failed(&self, now: Instant, asked: Option<Duration>) {
        let mut state = self.state();
        if let Some(asked) = asked {
            state.until = state.until.max(Some(now + asked.min(LONGEST)));
            return;
        }
        // Requests that were sent together fail together, which counts once.
        if state.until.is_none_or(|until| until <= now) {
            state.length = (state.length * 2).clamp(SHORTEST, LONGEST);
            state.until = Some(now + state.length);
        }
    }

    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.state().until.is_none_or(|until| until <= now)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::{LONGEST, Rest, SHORTEST};

    #[test]
    fn a_rest_doubles_until_an_answer() {
        let (rest, mut now) = (Rest::default(), Instant::now());
        assert!(rest.is_over(now));
        let mut length = SHORTEST;
        for _ in 0..8 {
            rest.failed(now, None);
            rest.failed(now, None);
            assert!(!rest.is_over(now + length / 2));
            now += length;
            assert!(rest.is_over(now));
            length = (length * 2).min(LONGEST);
        }
        assert_eq!(length, LONGEST);
        rest.failed(now, None);
        rest.answered();
        assert!(rest.is_over(now));
        rest.failed(now, None);
        assert!(rest.is_over(now + SHORTEST));
        rest.answered();
        let asked = SHORTEST / 10;
        rest.failed(now, Some(asked));
        assert!(!rest.is_over(now + asked / 2) && rest.is_over(now + asked));
    }
}
