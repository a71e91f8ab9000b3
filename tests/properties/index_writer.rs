//! The index's writer: the blocks that it appends, rolls back and rejects.

use alloy_primitives::B256;
use chainsieve::eth::header::LinkedHeaders;
use chainsieve::eth::index::{Index, IndexError, Settings, Writer};

use testkit::Rng;
use testkit::eth::index_sessions::{Session, check_reader, check_synced, settings};
use testkit::eth::made_up_headers::Blocks;
use testkit::eth::recording_storage::{Disk, Recorder};

fn new_session(first: u64) -> Session {
    Session::open(Recorder::default(), first).expect("opens")
}

fn sections(disk: &Disk) -> u32 {
    let manifest = disk.get("manifest").expect("an index");
    u32::from_le_bytes(manifest[12..16].try_into().expect("four bytes"))
}

/// Returns the name of the tail, and its number of slots.
fn tail(disk: &Disk) -> (String, usize) {
    let name = disk.with_extension("tail").next().expect("a tail");
    (name.into(), (disk.get(name).expect("a file").len() - 96) / 328)
}

#[test]
fn reorganisations_of_each_depth_come_and_go() {
    let mut blocks = Blocks::default();
    let mut session = new_session(17);
    session.writer = session.writer.with_confirmations(64);
    session.extend(&mut blocks, 70).expect("appended");
    session.sync().expect("synced");
    let mut index = Index::open(session.recorder.clone()).expect("opens");
    for depth in 1..=64 {
        session.roll_back(&blocks, depth).expect("taken back");
        let count = usize::try_from(depth).expect("few") + 1;
        session.extend(&mut blocks, count).expect("appended");
        session.sync().expect("synced");
        assert!(index.refresh().expect("read"));
        check_reader(&index, 17, session.tip.expect("blocks"), &blocks);
        if depth % 8 == 0 {
            session = session.reopen().expect("opens");
        }
    }
    check_synced(session, &blocks);
}

#[test]
fn a_chain_that_reorganises_again_and_again_has_a_tail_of_bounded_length() {
    let mut rng = Rng::new(0x4e04);
    let mut blocks = Blocks::default();
    let mut session = new_session(0);
    session.extend(&mut blocks, 100).expect("appended");
    session.sync().expect("synced");
    let (before, _) = tail(&session.recorder.now());
    let mut longest = 0;
    for round in 0..600 {
        let back = 1 + rng.below(90);
        session.roll_back(&blocks, back as u64).expect("taken back");
        session.extend(&mut blocks, back).expect("appended");
        if round % 3 != 0 {
            session.sync().expect("synced");
            longest = longest.max(tail(&session.recorder.now()).1);
        }
    }
    session.sync().expect("synced");
    let disk = session.recorder.now();
    assert_eq!(sections(&disk), 0);
    assert_ne!(tail(&disk).0, before, "written anew");
    assert!((16_000..=100 + 2 * 8192).contains(&longest), "{longest}");
    check_synced(session, &blocks);
}

#[test]
fn however_the_syncs_fall_the_segments_are_the_same() {
    let mut blocks = Blocks::default();
    let chain = blocks.extend(3, B256::ZERO, 5 * 8192 + 4, 0);
    let at_once = {
        let mut session = new_session(3);
        session.append(&chain).expect("appended");
        session.sync().expect("synced");
        let disk = session.recorder.now();
        check_synced(session, &blocks);
        disk
    };
    let step_by_step = {
        let mut session = new_session(3);
        let mut rest = 5 * 8192 + 4;
        let mut rng = Rng::new(5);
        while rest > 0 {
            let count = (1 + rng.below(9000)).min(rest);
            rest -= count;
            // Equal arguments give the same blocks as above.
            let chain = match session.tip {
                None => blocks.extend(3, B256::ZERO, count, 0),
                Some(tip) => blocks.extend(blocks.number(tip) + 1, tip, count, 0),
            };
            session.append(&chain).expect("appended");
            session.sync().expect("synced");
            if rng.one_in(3) {
                session = session.reopen().expect("opens");
            }
        }
        assert_eq!(session.tip, chain.last_hash());
        let disk = session.recorder.now();
        check_synced(session, &blocks);
        disk
    };
    assert_eq!(sections(&at_once), 5);
    let segments = |disk: &Disk| -> Vec<_> {
        let names = disk.with_extension("segment");
        names.map(|name| (name.to_owned(), disk.get(name).expect("a file").to_vec())).collect()
    };
    let segments_at_once = segments(&at_once);
    let names: Vec<_> = segments_at_once.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["00000000-04.segment", "00000004-01.segment"]);
    assert!(segments_at_once == segments(&step_by_step), "the same bytes");
}

#[test]
fn with_32_sections_they_are_written_without_being_asked() {
    let mut blocks = Blocks::default();
    let mut session = new_session(0);
    session.extend(&mut blocks, 8192 + 4).expect("appended");
    session.sync().expect("sealed");
    session.extend(&mut blocks, 31 * 8192 - 1).expect("appended");
    assert_eq!(sections(&session.recorder.now()), 1);
    session.extend(&mut blocks, 1).expect("appended");
    let disk = session.recorder.now();
    assert_eq!(sections(&disk), 32);
    assert_eq!(tail(&disk).1, 4);
    session.extend(&mut blocks, 10).expect("appended");
    assert_eq!(tail(&session.recorder.now()), tail(&disk));
    let index = Index::open(session.recorder.clone()).expect("opens");
    let last = 32 * 8192 + 3;
    check_reader(&index, 0, blocks.ancestor(session.tip.expect("blocks"), last), &blocks);
}

#[test]
fn what_cannot_be_taken_back() {
    let mut blocks = Blocks::default();
    let mut session = new_session(10);
    assert_eq!(session.writer.roll_back(10), Err(IndexError::Empty));
    session.extend(&mut blocks, 20).expect("appended");
    let range = |last| IndexError::Range { first: last, last, index_first: 10, index_last: 29 };
    assert_eq!(session.writer.roll_back(30), Err(range(30)));
    assert_eq!(session.writer.roll_back(u64::MAX), Err(range(u64::MAX)));
    assert_eq!(session.writer.roll_back(9), Err(IndexError::BelowFirst { first: 10 }));
    assert_eq!(session.writer.roll_back(29), Ok(0));
    session.roll_back(&blocks, 19).expect("down to the first");
    session.extend(&mut blocks, 8191 + 4).expect("appended");
    session.sync().expect("sealed");
    let sealed = 10 + 8191;
    for last in [10, 4000, sealed - 1] {
        let expected = IndexError::Sealed { asked: last, sealed, rebuild_from: 10 };
        assert_eq!(session.writer.roll_back(last), Err(expected));
    }
    session.roll_back(&blocks, 4).expect("down to the last sealed block");
    assert_eq!(session.writer.hash(sealed), session.tip);
    session.sync().expect("synced");
    let mut session = session.reopen().expect("opens");
    assert_eq!(session.writer.numbers(), Some(10..=sealed));
    session.extend(&mut blocks, 2).expect("appended");
    session.sync().expect("synced");
    check_synced(session, &blocks);
}

fn append(session: &mut Session, chain: &LinkedHeaders) -> Result<(u64, u64), IndexError> {
    let added = session.writer.append(chain)?;
    Ok((chain.len() as u64 - added, added))
}

#[test]
fn what_the_index_has_is_skipped_and_what_does_not_follow_is_refused() {
    let mut blocks = Blocks::default();
    let mut session = new_session(100);
    let chain = blocks.extend(100, B256::ZERO, 50, 0);
    assert_eq!(append(&mut session, &LinkedHeaders::new()), Ok((0, 0)));
    assert_eq!(append(&mut session, &chain), Ok((0, 50)));
    assert_eq!(append(&mut session, &chain), Ok((50, 0)));
    let tip = chain.last_hash().expect("blocks");
    let at = |number| blocks.ancestor(tip, number);
    let (at_119, at_129) = (at(119), at(129));
    let longer = blocks.extend(120, at_119, 40, 0);
    assert_eq!(append(&mut session, &longer), Ok((30, 10)));
    let tip = longer.last_hash().expect("blocks");

    // Forks with their first block at 130, which end before, at and after the index's end.
    let expected = blocks.ancestor(tip, 130);
    for count in [1, 2, 30, 31] {
        let fork = blocks.extend(130, at_129, count, 1);
        let found = fork.block(130).expect("a block").hash;
        let error = IndexError::Parent { number: 131, expected, found };
        assert_eq!(append(&mut session, &fork), Err(error), "{count}");
    }
    // A chain whose first block has another parent.
    let stranger = blocks.extend(130, B256::repeat_byte(1), 5, 1);
    let found = B256::repeat_byte(1);
    let error = IndexError::Parent { number: 130, expected: at_129, found };
    assert_eq!(append(&mut session, &stranger), Err(error));
    let next = blocks.extend(160, B256::repeat_byte(1), 5, 1);
    let error = IndexError::Parent { number: 160, expected: tip, found };
    assert_eq!(append(&mut session, &next), Err(error));
    let gap = blocks.extend(161, tip, 1, 1);
    assert_eq!(append(&mut session, &gap), Err(IndexError::Gap { last: 159, found: 161 }));
    let early = blocks.extend(99, B256::ZERO, 1, 1);
    let (index_first, index_last) = (100, 159);
    let error = IndexError::Range { first: 99, last: 99, index_first, index_last };
    assert_eq!(append(&mut session, &early), Err(error));

    // Sealed blocks are compared by the last of them only.
    assert_eq!(session.writer.numbers(), Some(100..=159));
    assert_eq!(session.writer.last_hash(), Some(tip));
    let more = blocks.extend(160, tip, 8192, 0);
    assert_eq!(append(&mut session, &more), Ok((0, 8192)));
    session.writer.sync().expect("sealed");
    assert_eq!(append(&mut session, &chain), Ok((50, 0)), "not compared");
    let all = blocks.extend(160, tip, 8200, 0);
    assert_eq!(append(&mut session, &all), Ok((8192, 8)));
    let other = blocks.extend(160, tip, 8200, 1);
    let number = 100 + 8192;
    let parents = |chain: &LinkedHeaders| chain.block(number - 1).expect("a block").hash;
    let (expected, found) = (parents(&all), parents(&other));
    let error = IndexError::Parent { number, expected, found };
    assert_eq!(append(&mut session, &other), Err(error));
    assert_eq!(session.writer.last_hash(), all.last_hash());
}

#[test]
fn numbers_end_where_sections_do_not_fit_any_more() {
    let mut blocks = Blocks::default();
    for (first, fits) in [
        (u64::MAX, false),
        (u64::MAX - 3 * 8192 + 1, false),
        (u64::MAX - 3 * 8192, true),
        (u64::MAX - 3 * 8192 - 1, true),
    ] {
        let mut session = new_session(first);
        let chain = blocks.extend(first, B256::repeat_byte(9), 1, 0);
        if !fits {
            assert_eq!(append(&mut session, &chain), Err(IndexError::Number { number: first }));
            assert_eq!(session.writer.numbers(), None);
            continue;
        }
        session.append(&chain).expect("appended");
        session.sync().expect("synced");
        session.extend(&mut blocks, 8190).expect("appended");
        session.sync().expect("synced");
        let tip = session.tip.expect("blocks");
        let last = blocks.number(tip);
        let next = blocks.extend(last + 1, tip, 2, 0);
        let error = IndexError::Number { number: last + 2 };
        assert_eq!(append(&mut session, &next), Err(error), "a section more does not fit");
        let disk = session.recorder.now();
        drop(session);
        let index = Index::open(Recorder::of(&disk)).expect("opens");
        check_reader(&index, first, tip, &blocks);
    }
}

#[test]
fn one_writer_at_a_time_and_of_the_same_chain() {
    let mut blocks = Blocks::default();
    let mut session = new_session(0);
    let recorder = session.recorder.clone();
    let open = |settings: &Settings| Writer::open(recorder.clone(), settings).err();
    assert_eq!(open(&settings()), Some(IndexError::Locked));
    session.extend(&mut blocks, 3).expect("appended");
    session.sync().expect("synced");
    assert_eq!(open(&settings()), Some(IndexError::Locked));
    drop(session);
    assert_eq!(open(&settings()), None);
    let (index, asked) = ("made up".into(), "other".into());
    let other = Settings::new("other").expect("a label");
    assert_eq!(open(&other), Some(IndexError::OtherChain { index, asked }));
    let hashes = settings().with_block_hashes();
    assert_eq!(open(&hashes), Some(IndexError::OtherHashes { index: false }));
    assert_eq!(open(&settings()), None);
}

#[test]
fn segments_without_their_manifest_are_not_replaced() {
    let mut blocks = Blocks::default();
    let mut session = new_session(0);
    session.extend(&mut blocks, 8192 + 4).expect("appended");
    session.sync().expect("sealed");
    let mut disk = session.recorder.now();
    disk.remove("manifest");
    let names: Vec<_> = disk.names().map(String::from).collect();
    let recorder = Recorder::of(&disk);
    assert_eq!(Writer::open(recorder.clone(), &settings()).err(), Some(IndexError::NoIndex));
    assert_eq!(recorder.now().names().collect::<Vec<_>>(), names);
}

#[test]
fn a_sync_with_nothing_new_writes_nothing() {
    let mut blocks = Blocks::default();
    let mut session = new_session(0);
    session.sync().expect("nothing");
    assert_eq!(session.recorder.done(), 0);
    session.extend(&mut blocks, 3).expect("appended");
    session.sync().expect("synced");
    session = session.reopen().expect("opens");
    let done = session.recorder.done();
    session.sync().expect("nothing");
    session.roll_back(&blocks, 0).expect("nothing");
    session.sync().expect("nothing");
    assert_eq!(session.recorder.done(), done);
    assert_eq!(session.writer.settings(), &settings());
}
