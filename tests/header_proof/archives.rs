//! Archives: an era1 archive of mainnet, records of an ere archive, and made-up archives of real
//! headers with their proofs.

use chainsieve::eth::anchor::Grade;
use chainsieve::eth::anchor::header_proof::{ForkSlots, HeaderProof, History, epoch_root};
use chainsieve::eth::files::{Archive, ArchiveHistory, EntryKind, FileError, FileProblem};
use chainsieve::eth::files::{HistoryReader, Input};
use chainsieve::eth::header::HeaderView;
use testkit::eth::corpus::{EthCorpus, Format};
use testkit::eth::header_files::era::{entry, snappy};

use crate::corpus::Anchors;

fn read(file: &[u8], history: History) -> Result<Vec<ArchiveHistory>, FileError> {
    let mut reader = HistoryReader::new(Input::new(file), history);
    let mut archives = Vec::new();
    while let Some(archive) = reader.next_archive()? {
        archives.push(archive);
    }
    Ok(archives)
}

#[test]
fn an_era1_archive_of_mainnet() {
    let Some(corpus) = EthCorpus::open() else { return };
    let file = corpus.of(Format::Era1).next().expect("an archive");
    let bytes = corpus.read(&file.name);
    let archives = read(&bytes, History::mainnet()).expect("an archive");
    let [archive] = &archives[..] else { panic!("{archives:?}") };
    assert_eq!((archive.first, archive.hashes.len(), archive.shown), (0, 8192, 8192));
    assert_eq!(archive.hashes.last(), Some(&file.hash()));
    assert_eq!(archive.accumulator, History::mainnet().epoch_root(0));
    assert_eq!(archive.grade, Some(Grade::ReleaseCheckpoint));
    assert_eq!((archive.proofs, archive.undecided), (0, 0));

    // A network whose epochs are not known: the archive agrees with itself, which shows nothing.
    let elsewhere = read(&bytes, History::of(ForkSlots::MAINNET)).expect("an archive");
    assert_eq!((elsewhere[0].grade, elsewhere[0].shown), (None, 0));

    // Without total difficulties, the accumulator shows nothing, and is not called wrong.
    let mut without = Vec::new();
    let mut entries = Archive::new(Input::new(&bytes[..]));
    while let Some(entry) = entries.next_entry().expect("an entry") {
        let start = usize::try_from(entry.offset()).expect("small");
        let length = usize::try_from(entry.data_length()).expect("small");
        if entry.kind() != EntryKind::TotalDifficulty {
            without.extend_from_slice(&bytes[start..start + 8 + length]);
        }
    }
    assert_eq!(without.len(), bytes.len() - 8192 * 40);
    let bare = read(&without, History::mainnet()).expect("an archive");
    assert_eq!((bare[0].grade, bare[0].shown), (None, 0));
    assert_eq!((&bare[0].hashes, bare[0].accumulator), (&archive.hashes, archive.accumulator));

    // A total difficulty, or the accumulator, or both are changed.
    let (mut difficulty, mut accumulator) = (0, 0);
    let mut archive = Archive::new(Input::new(&bytes[..]));
    while let Some(entry) = archive.next_entry().expect("an entry") {
        let at = usize::try_from(entry.offset()).expect("small") + 8;
        match entry.kind() {
            EntryKind::TotalDifficulty if difficulty == 0 => difficulty = at,
            EntryKind::Accumulator => accumulator = at,
            _ => {}
        }
    }
    for at in (difficulty..difficulty + 32).chain(accumulator..accumulator + 32) {
        let mut changed = bytes.clone();
        changed[at] ^= 1;
        let error = read(&changed, History::mainnet()).expect_err("changed").problem;
        let of_8192 = matches!(error, FileProblem::Accumulator { blocks: 8192, .. });
        assert!(of_8192, "{at}: {error}");
    }
    // Of two accumulators, none would be checked but the last.
    let second = [&bytes[..accumulator + 32], &bytes[accumulator - 8..]].concat();
    let error = read(&second, History::mainnet()).expect_err("two accumulators").problem;
    assert!(matches!(error, FileProblem::SecondAccumulator), "{error}");
    let mut changed = bytes.clone();
    changed[difficulty] ^= 1;
    let mut record = Vec::new();
    let mut hashes = archives[0].hashes.iter();
    let mut entries = Archive::new(Input::new(&changed[..]));
    while let Some(entry) = entries.next_entry().expect("an entry") {
        if entry.kind() == EntryKind::TotalDifficulty {
            let word: [u8; 32] = entry.read(32).expect("read").try_into().expect("32 bytes");
            let difficulty = alloy_primitives::U256::from_le_bytes(word);
            record.push((*hashes.next().expect("a hash"), difficulty));
        }
    }
    let root = epoch_root(record).expect("an epoch");
    changed[accumulator..accumulator + 32].copy_from_slice(root.as_slice());
    let error = read(&changed, History::mainnet()).expect_err("another epoch").problem;
    assert!(matches!(error, FileProblem::OtherEpoch { epoch: 0, .. }), "{error}");
}

/// The records of the corpus, as an ere archive has them.
#[test]
fn records_of_headers_and_proofs() {
    let Some(corpus) = Anchors::open() else { return };
    let bytes = corpus.read("history/records/headers_and_proofs.e2s");
    let mut archive = Archive::new(Input::new(&bytes[..]));
    let (mut headers, mut proofs) = (Vec::new(), Vec::new());
    while let Some(entry) = archive.next_entry().expect("an entry") {
        match entry.kind() {
            EntryKind::Header => headers.push(entry.decompress(4096).expect("a header")),
            EntryKind::Proof => proofs.push(entry.decompress(1024).expect("a proof")),
            kind => assert_eq!(kind, EntryKind::Version),
        }
    }
    let history = corpus.mainnet();
    for (rlp, record) in headers.iter().zip(&proofs) {
        let header = HeaderView::decode(rlp).expect("a header");
        let proof = HeaderProof::decode_record(record).expect("a record");
        assert_eq!(proof.encode_record(), *record, "{}", header.number());
        assert!(proof.verify(&header, &history).is_ok(), "{}", header.number());
        let name = format!("history/headers/{}.proof.ssz", header.number());
        assert_eq!(proof.encode(), corpus.read(&name), "{name}");
    }
    assert_eq!((headers.len(), proofs.len()), (19, 19));
}

/// Writes an ere archive of headers with the records of their proofs.
fn ere(headers: &[Vec<u8>], records: &[Vec<u8>]) -> Vec<u8> {
    let mut file = entry(0x3265, &[]);
    for header in headers {
        file.extend(entry(3, &snappy(header)));
    }
    for record in records {
        file.extend(entry(0x0b, &snappy(record)));
    }
    file.extend(entry(0x3267, &[0; 24]));
    file
}

/// Returns a header of mainnet and the record of its proof.
fn block(corpus: &Anchors, number: u64) -> (Vec<u8>, Vec<u8>) {
    let (cases, _) = corpus.header_cases();
    let case = cases.into_iter().find(|case| case.number == number).expect("a case");
    let proof = HeaderProof::decode(case.kind, &case.ssz).expect("a proof");
    (case.header.expect("a header"), proof.encode_record())
}

/// Two consecutive blocks on both sides of three forks: each has its own kind of proof.
#[test]
fn proofs_at_the_forks() {
    let Some(corpus) = Anchors::open() else { return };
    for (number, without) in [(15_537_393, 2), (17_034_869, 1), (19_426_586, 0)] {
        let (headers, records): (Vec<_>, Vec<_>) =
            [number, number + 1].map(|number| block(&corpus, number)).into_iter().unzip();
        let file = ere(&headers, &records);
        let archives = read(&file, corpus.mainnet()).expect("an archive");
        let [archive] = &archives[..] else { panic!("{archives:?}") };
        assert_eq!((archive.first, archive.proofs, archive.undecided), (number, 2, 0));
        assert_eq!(archive.shown, 2);
        let grade = if without == 2 { Grade::ReleaseCheckpoint } else { Grade::OwnWord };
        assert_eq!(archive.grade, Some(grade));
        assert_eq!(archive.accumulator, None);

        // Without summaries, what the embedded lists show is shown, and the rest is undecided.
        let archives = read(&file, History::mainnet()).expect("an archive");
        let archive = &archives[0];
        assert_eq!((archive.proofs, archive.undecided), (without, 2 - without));
        assert_eq!((archive.shown, archive.grade.is_some()), (without, without > 0));

        // The profile without proofs shows nothing.
        let archives = read(&ere(&headers, &[]), corpus.mainnet()).expect("an archive");
        assert_eq!((archives[0].grade, archives[0].shown, archives[0].proofs), (None, 0, 0));

        let swapped = [records[1].clone(), records[0].clone()];
        let error = read(&ere(&headers, &swapped), corpus.mainnet()).expect_err("swapped").problem;
        let first = matches!(error, FileProblem::HeaderProof { number: at, .. } if at == number);
        assert!(first, "{error}");
        let error = read(&ere(&headers, &records[..1]), corpus.mainnet()).expect_err("one").problem;
        let counted = FileProblem::EntryCount { kind: "proof", found: 1, headers: 2 };
        assert_eq!(error, counted);
        let three = [&records[..], &records[..1]].concat();
        let error = read(&ere(&headers, &three), corpus.mainnet()).expect_err("three").problem;
        assert_eq!(error, FileProblem::NoHeaderBefore);
        let backwards = [headers[1].clone(), headers[0].clone()];
        let error = read(&ere(&backwards, &records), corpus.mainnet()).expect_err("order").problem;
        assert_eq!(error, FileProblem::NotLinked { number });

        for end in 0..file.len() {
            // Nothing, or nothing but the version entry: an empty archive, or none.
            match read(&file[..end], corpus.mainnet()) {
                Ok(archives) => assert!(archives.is_empty() && (end == 0 || end == 8), "{end}"),
                Err(error) => assert!(end > 0, "{error}"),
            }
        }
        // A proof whose record is malformed, or whose branch is wrong.
        for (change, expected) in [(0, false), (40, true)] {
            let mut record = records[0].clone();
            record[change] ^= 1;
            let changed = [record, records[1].clone()];
            let error = read(&ere(&headers, &changed), corpus.mainnet()).expect_err("changed");
            let verified = matches!(error.problem, FileProblem::HeaderProof { .. });
            assert_eq!(verified, expected, "{error}");
        }
    }
}

/// Each byte of an archive is changed. It is refused, or the result is the same: the type of the
/// version entry and the index are not read, and Snappy's decoder passes over a stream identifier
/// that became a chunk to skip.
#[test]
fn changed_archives_are_refused() {
    let Some(corpus) = Anchors::open() else { return };
    let (headers, records): (Vec<_>, Vec<_>) =
        [17_034_869, 17_034_870].map(|number| block(&corpus, number)).into_iter().unzip();
    let file = ere(&headers, &records);
    let whole = read(&file, corpus.mainnet()).expect("an archive");
    let index = file.len() - 24;
    let (mut refused, mut same, mut elsewhere) = (0, 0, 0);
    for at in 0..file.len() {
        for by in [0x01, 0x10, 0x80] {
            let mut changed = file.clone();
            changed[at] ^= by;
            match read(&changed, corpus.mainnet()) {
                Err(_) => refused += 1,
                Ok(archives) => {
                    assert_eq!(archives, whole, "{at}");
                    same += 1;
                    elsewhere += usize::from(at >= 2 && at < index);
                }
            }
        }
    }
    println!("archives changed: {refused} refused, {same} without effect");
    assert_eq!(refused + same, 3 * file.len());
    assert!(same <= 3 * 26 + elsewhere, "{same}");
    // A stream identifier starts with 0xff. Two of its three changes make a chunk to skip, in each
    // entry but the first.
    assert!(elsewhere <= 2 * 4, "{elsewhere}");
}
