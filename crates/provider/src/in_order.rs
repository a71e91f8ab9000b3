//! Parallel work on several threads, with results in order.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Mutex, PoisonError, mpsc};

/// Applies `work` to each item on `threads` threads, and passes the results to `take` in the order
/// of the items. At most `2 * threads` items are in flight or wait for `take`.
///
/// # Errors
/// Returns the first error of `take`. After an error, the items in flight are completed, and their
/// results are dropped.
pub(crate) fn in_order<I: Send, O: Send, E>(
    threads: usize,
    items: impl Iterator<Item = I> + Send,
    work: impl Fn(I) -> O + Sync,
    mut take: impl FnMut(O) -> Result<(), E>,
) -> Result<(), E> {
    let threads = threads.max(1);
    let (permit, permits) = mpsc::sync_channel::<()>(2 * threads);
    for _ in 0..2 * threads {
        let _ = permit.try_send(());
    }
    let source = Mutex::new((permits, items.enumerate()));
    let (done, results) = mpsc::sync_channel(2 * threads);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            let (done, source, work) = (done.clone(), &source, &work);
            scope.spawn(move || {
                loop {
                    let next = {
                        let mut source = source.lock().unwrap_or_else(PoisonError::into_inner);
                        let (permits, items) = &mut *source;
                        // The channel is closed when the receiver of the results has ended: no more
                        // work is needed.
                        if permits.recv().is_err() {
                            return;
                        }
                        items.next()
                    };
                    let Some((index, item)) = next else { return };
                    // A panic is caught and sent as the result. A missing result would block the
                    // taker, which waits for the results in order.
                    let result = catch_unwind(AssertUnwindSafe(|| work(item)));
                    if done.send((index, result)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(done);
        let mut waiting = BTreeMap::new();
        let mut next = 0;
        let taken = (|| {
            for (index, result) in &results {
                waiting.insert(index, result);
                while let Some(result) = waiting.remove(&next) {
                    take(result.unwrap_or_else(|panic| resume_unwind(panic)))?;
                    next += 1;
                    // Sending fails if all threads have ended, which is no error.
                    let _ = permit.try_send(());
                }
            }
            Ok(())
        })();
        drop((permit, results));
        taken
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::in_order;

    #[test]
    fn results_come_in_order_and_an_error_ends_it() {
        for threads in [1, 3, 8] {
            let mut taken = Vec::new();
            in_order(
                threads,
                0..500_u32,
                |item| item * 2,
                |result| {
                    taken.push(result);
                    Ok::<_, ()>(())
                },
            )
            .unwrap();
            assert_eq!(taken, (0..500).map(|item| item * 2).collect::<Vec<_>>());

            let begun = AtomicUsize::new(0);
            let work = |item: u32| {
                begun.fetch_add(1, Ordering::Relaxed);
                item
            };
            let error =
                in_order(
                    threads,
                    0..u32::MAX,
                    work,
                    |item| {
                        if item < 5 { Ok(()) } else { Err("enough") }
                    },
                );
            assert_eq!(error, Err("enough"));
            assert!(begun.load(Ordering::Relaxed) <= 6 + 2 * threads);
        }
    }
}
