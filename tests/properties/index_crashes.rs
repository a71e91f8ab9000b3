//! Crashes at any time, which leave any part of the unsynced writes and names. Acknowledged blocks
//! are there afterwards, later blocks are there up to some block, and the index can be continued.

use testkit::Rng;
use testkit::eth::index_sessions::{Session, check_synced, recovered};
use testkit::eth::made_up_headers::Blocks;
use testkit::eth::recording_storage::{Disk, Recorder};

/// Crashes a session after each of its operations, and some recoveries after each of theirs.
/// Returns the number of crashes.
fn crash(
    session: &Session,
    blocks: &mut Blocks,
    rng: &mut Rng,
    ways: usize,
    again: usize,
) -> usize {
    let first = session.first;
    let mut crashes = 0;
    for done in 0..=session.recorder.done() {
        let allowed = session.allowed(done);
        for disk in session.recorder.crashes(done, ways, rng) {
            crashes += 1;
            let second = recovered(&disk, first, &allowed, blocks);
            if rng.one_in(again) {
                for done in 0..=second.recorder.done() {
                    let allowed = [&allowed[..], &second.allowed(done)].concat();
                    for disk in second.recorder.crashes(done, 3, rng) {
                        crashes += 1;
                        check_synced(recovered(&disk, first, &allowed, blocks), blocks);
                    }
                }
            }
            check_synced(second, blocks);
        }
    }
    crashes
}

/// Returns a session with some blocks, reorganisations and syncs.
fn session(rng: &mut Rng, blocks: &mut Blocks, first: u64) -> Session {
    let recorder = Recorder::of(&Disk::default());
    let mut session = Session::open(recorder, first).expect("opens");
    for _ in 0..8 + rng.below(8) {
        let count = session.tip.map_or(0, |tip| blocks.number(tip) - first + 1);
        match rng.below(8) {
            0..4 => session.extend(blocks, 1 + rng.below(4)).expect("appended"),
            4 | 5 if count > 1 => {
                let back = 1 + rng.below(usize::try_from(count - 1).expect("few").min(6)) as u64;
                session.roll_back(blocks, back).expect("taken back");
            }
            6 => session = session.reopen().expect("opens"),
            _ => session.sync().expect("synced"),
        }
    }
    session.sync().expect("synced");
    session
}

#[test]
fn after_a_crash_there_is_what_was_acknowledged_and_one_goes_on() {
    let mut crashes = 0;
    for seed in 0..12 {
        let mut rng = Rng::new(0xc4a5_0000 + seed);
        let mut blocks = Blocks::default();
        let first = *rng.pick(&[0, 1, 8191, 4_370_001]);
        let session = session(&mut rng, &mut blocks, first);
        crashes += crash(&session, &mut blocks, &mut rng, 60, 10);
    }
    assert!(crashes > 5_000, "{crashes}");
}

#[test]
fn a_crash_while_sections_are_sealed_and_segments_grow() {
    let mut rng = Rng::new(0x5ea1);
    let mut blocks = Blocks::default();
    let recorder = Recorder::of(&Disk::default());
    let mut session = Session::open(recorder, 7).expect("opens");
    // One block less than a section that can be sealed.
    session.extend(&mut blocks, 8192).expect("appended");
    session.sync().expect("synced");
    session.extend(&mut blocks, 3).expect("appended");
    session.roll_back(&blocks, 2).expect("taken back");
    session.sync().expect("synced");
    session.extend(&mut blocks, 2).expect("appended");
    session.sync().expect("synced");
    session.extend(&mut blocks, 1).expect("appended");
    session.sync().expect("sealed");
    session.roll_back(&blocks, 4).expect("the section stays");
    session.extend(&mut blocks, 1).expect("appended");
    session.sync().expect("synced");
    session.extend(&mut blocks, 8192).expect("appended");
    session.sync().expect("synced");
    session.extend(&mut blocks, 5).expect("appended");
    session.roll_back(&blocks, 1).expect("taken back");
    session.sync().expect("two sections become one segment");
    let crashes = crash(&session, &mut blocks, &mut rng, 6, 60);
    assert!(crashes > 200, "{crashes}");
}
