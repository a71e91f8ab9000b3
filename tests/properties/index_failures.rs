//! Storage that fails. The error names the place, the writer can't be used any more, and
//! acknowledged blocks are there when the index is opened again.

use alloy_primitives::B256;
use chainsieve::eth::header::LinkedHeaders;
use chainsieve::eth::index::IndexError;

use testkit::Rng;
use testkit::eth::index_sessions::{Session, check_synced, recovered};
use testkit::eth::made_up_headers::Blocks;
use testkit::eth::recording_storage::{Disk, Failure, Recorder};

/// Returns the operation that the error names if `call` fails, or `None` if the writer ignores the
/// failure.
fn operation(call: &str) -> Option<&'static str> {
    Some(match call {
        "open" | "names" | "append_to" => "open",
        "length" => "get the length of",
        "read" => "read",
        "create" => "create",
        "append" => "append to",
        "sync" | "sync_names" => "sync",
        "rename" => "rename",
        "lock" => "lock",
        "remove" => return None,
        call => panic!("{call}"),
    })
}

/// Makes all kinds of calls. If `sealed` has chains of about 8,192 blocks, these include the calls
/// of sealing.
fn run(
    session: &mut Session,
    blocks: &mut Blocks,
    sealed: &[LinkedHeaders],
) -> Result<(), IndexError> {
    for chain in sealed {
        session.append(chain)?;
        session.sync()?;
    }
    session.extend(blocks, 3)?;
    session.sync()?;
    session.extend(blocks, 3)?;
    session.roll_back(blocks, 4)?;
    session.extend(blocks, 1)?;
    session.sync()?;
    session.extend(blocks, 2)?;
    session.sync()
}

/// Fails each call of such a run, in each of several ways. Returns the number of failures.
fn fail_each(sealed: &[LinkedHeaders], blocks: &mut Blocks, ways: &[(bool, usize)]) -> usize {
    let mut rng = Rng::new(0xfa11);
    for call in 0.. {
        for &(forever, written) in ways {
            let recorder = Recorder::of(&Disk::default());
            // Open the tail of an earlier writer again.
            let mut session = Session::open(recorder.clone(), 5).expect("opens");
            if sealed.is_empty() {
                session.extend(blocks, 2).expect("appended");
                session.sync().expect("synced");
            }
            let before = recorder.calls().len();
            recorder.fail(Some(Failure { call: before + call, forever, written }));
            let mut session = match session.reopen() {
                Ok(session) => session,
                Err(error) => {
                    check_error(&error, &recorder, before + call);
                    recorder.fail(None);
                    continue;
                }
            };
            let result = run(&mut session, blocks, sealed);
            let calls = recorder.calls();
            if calls.len() <= before + call {
                assert_eq!(result, Ok(()));
                return call * ways.len();
            }
            recorder.fail(None);
            match (result, operation(calls[before + call].0)) {
                (Ok(()), None) => {}
                (Err(error), _) => {
                    check_error(&error, &recorder, before + call);
                    check_failed(&mut session);
                }
                (Ok(()), Some(operation)) => panic!("{operation:?} failed, and nothing was said"),
            }
            // Continue in another process, and recover from a crash before and after continuing.
            let done = recorder.done();
            let allowed = session.allowed(usize::MAX);
            let first = session.first;
            drop(session);
            for disk in recorder.crashes(done, 8, &mut rng) {
                check_synced(recovered(&disk, first, &allowed, blocks), blocks);
            }
            let mut next = Session::open(recorder.clone(), first).expect("opens");
            assert!(allowed.contains(&next.tip));
            next.sync().expect("nothing new, and durable from here on");
            let (done, allowed) = (recorder.done(), vec![next.tip]);
            drop(next);
            for disk in recorder.crashes(done, 8, &mut rng) {
                check_synced(recovered(&disk, first, &allowed, blocks), blocks);
            }
        }
    }
    unreachable!("calls end")
}

fn check_error(error: &IndexError, recorder: &Recorder, call: usize) {
    let (what, name) = &recorder.calls()[call];
    let IndexError::Io { kind, operation: found, file, .. } = error else {
        panic!("{error:?} after {what} of {name}");
    };
    assert_eq!((*kind, Some(*found)), (std::io::ErrorKind::StorageFull, operation(what)));
    let folder = matches!(*what, "names" | "sync_names");
    assert_eq!(file, if folder { "." } else { name });
}

fn check_failed(session: &mut Session) {
    let writer = &mut session.writer;
    assert_eq!(writer.sync(), Err(IndexError::Failed));
    assert_eq!(writer.roll_back(5), Err(IndexError::Failed));
    let chain = Blocks::default().extend(5, B256::ZERO, 1, 0);
    assert_eq!(writer.append(&chain), Err(IndexError::Failed));
}

#[test]
fn each_call_of_the_storage_may_fail() {
    let ways = [(false, 0), (false, 100), (false, 256), (true, 0), (true, 200)];
    let failures = fail_each(&[], &mut Blocks::default(), &ways);
    assert!(failures > 100, "{failures}");
}

#[test]
fn each_call_of_sealing_may_fail() {
    let mut blocks = Blocks::default();
    let first = blocks.extend(5, B256::ZERO, 8197, 9);
    let last = first.last_hash().expect("blocks");
    let second = blocks.extend(5 + 8197, last, 8192, 9);
    let failures = fail_each(&[first, second], &mut blocks, &[(false, 128)]);
    assert!(failures > 40, "{failures}");
}
