//! Chains of Bitcoin headers: files that claim to be a chain, and headers that an attacker mined.

use std::time::Duration;

use chainsieve::bitcoin::block::{Header, Version};
use chainsieve::bitcoin::hashes::{Hash as _, sha256d};
use chainsieve::bitcoin::{CompactTarget, Network, consensus};
use chainsieve::btc::headers::{BlockAt, ChainEvent, HeaderChain, HeaderChainError, HeaderError};

use crate::survives;
use testkit::Rng;
use testkit::btc::regtest::{branch, genesis, mine};
use testkit::mutated;

/// The time of the clock in these tests.
const NOW_SECONDS: u32 = 2_000_000_000;
const NOW: Duration = Duration::from_secs(NOW_SECONDS as u64);

/// Offsets of the fields of the preamble.
const LENGTH: usize = 4 + 1;
const CHECKSUM: usize = LENGTH + 4;
const GENESIS: usize = CHECKSUM + 4;
const HEIGHT: usize = GENESIS + 32;
const WORK: usize = HEIGHT + 4;
const PERIOD_FIRST: usize = WORK + 32;

/// Decodes a file. If the file is damaged, checks that its intact part decodes.
///
/// The memory limit per header covers the header itself, its copies in a message, in the chain, in
/// an event and in the table, and lists that grow by doubling.
fn decode(bytes: &[u8]) -> Result<HeaderChain, HeaderChainError> {
    let result = survives("a file of headers", bytes, 16, 10_000, || HeaderChain::decode(bytes));
    match &result {
        Ok(chain) => assert_eq!(chain.encode(), bytes),
        Err(error) => {
            if let Some(intact) = error.intact_len() {
                let intact = &bytes[..usize::try_from(intact).expect("inside the bytes")];
                assert!(intact.len() < bytes.len(), "{error}");
                HeaderChain::decode(intact).unwrap_or_else(|e| panic!("{error}, then {e}"));
            }
        }
    }
    result
}

/// Returns the file of a regtest chain, and the length of its preamble.
fn file(count: usize) -> (Vec<u8>, usize) {
    let mut chain = HeaderChain::new(Network::Regtest);
    chain.accept(&branch(&genesis(), count, 1), NOW).expect("a chain");
    (chain.encode(), usize::try_from(chain.record_offset(1)).expect("small"))
}

/// Returns `file` with the right length and checksum for a preamble of `length` bytes.
fn summed(mut file: Vec<u8>, length: usize) -> Vec<u8> {
    let body = &file[GENESIS..length];
    let sum = sha256d::Hash::hash(body).to_byte_array();
    let body_len = u32::try_from(body.len()).expect("small").to_le_bytes();
    file[LENGTH..CHECKSUM].copy_from_slice(&body_len);
    file[CHECKSUM..GENESIS].copy_from_slice(&sum[..4]);
    file
}

#[test]
fn damaged_files() {
    let mut rng = Rng::new(41);
    let (file, preamble) = file(30);
    let (mut good, mut bad) = (0, 0);
    for _ in 0..4_000 {
        let mut bytes = mutated(&mut rng, &file);
        if bytes.len() >= preamble && rng.one_in(2) {
            bytes = summed(bytes, preamble);
        }
        match decode(&bytes) {
            Ok(_) => good += 1,
            Err(_) => bad += 1,
        }
    }
    // The valid files are those cut between headers, and half of those in which only the last
    // header changed.
    assert!((3..100).contains(&good), "{good} good, {bad} bad");
}

#[test]
fn every_length_and_every_byte() {
    let (file, preamble) = file(3);
    for length in 0..file.len() {
        let whole = length >= preamble && (length - preamble).is_multiple_of(80);
        assert_eq!(decode(&file[..length]).is_ok(), whole, "{length}");
    }
    let last = file.len() - 80;
    for at in 0..last {
        for flip in [1, 0x80] {
            let mut bytes = file.clone();
            bytes[at] ^= flip;
            let error = decode(&bytes).expect_err("damaged");
            assert_eq!(error.intact_len().is_some(), at >= preamble, "{at}: {error}");
        }
    }
}

/// Preambles with impossible values and the right checksum.
#[test]
fn forged_preambles() {
    let (file, preamble) = file(3);
    let forged = |at: usize, field: &[u8]| {
        let mut bytes = file.clone();
        bytes[at..at + field.len()].copy_from_slice(field);
        decode(&summed(bytes, preamble)).map(|chain| chain.tip())
    };
    assert!(forged(HEIGHT, &0_u32.to_le_bytes()).is_ok());
    assert_eq!(forged(0, b"x"), Err(HeaderChainError::Name));
    assert_eq!(forged(4, &[2]), Err(HeaderChainError::Version { version: 2 }));
    assert_eq!(forged(4, &[0]), Err(HeaderChainError::Version { version: 0 }));
    assert!(matches!(forged(GENESIS, &[7]), Err(HeaderChainError::UnknownChain { .. })));
    let half = {
        let mut work = [0; 32];
        work[31] = 0x80;
        work
    };
    let error = forged(WORK, &half).unwrap_err();
    assert!(matches!(error, HeaderChainError::TooMuchWork { .. }), "{error}");
    let mut most = [0xff; 32];
    most[31] = 0x7f;
    let error = forged(WORK, &most).unwrap_err();
    assert!(matches!(error, HeaderChainError::OtherWork { .. }), "{error}");
    let other = consensus::serialize(&mine(&genesis(), 1_400_000_000, 1));
    let error = forged(PERIOD_FIRST, &other).unwrap_err();
    assert!(matches!(error, HeaderChainError::PeriodFirst { .. }), "{error}");
    let error = forged(PERIOD_FIRST + 80, &other).unwrap_err();
    assert!(matches!(error, HeaderChainError::Genesis { .. }), "{error}");

    let mut longer = file.clone();
    longer[LENGTH..CHECKSUM].copy_from_slice(&u32::MAX.to_le_bytes());
    let needed = GENESIS + u32::MAX as usize;
    let cut = HeaderChainError::PreambleCut { length: file.len(), needed };
    assert_eq!(decode(&longer).unwrap_err(), cut);
    let uneven = decode(&summed(file.clone(), preamble + 79)).unwrap_err();
    assert_eq!(uneven, HeaderChainError::Damaged);

    // Heights that require more headers than there are.
    for (height, records) in [(1_u32, 1), (9, 9), (10, 10), (11, 10), (u32::MAX, 10)] {
        let mut bytes = file.clone();
        bytes[HEIGHT..WORK].copy_from_slice(&height.to_le_bytes());
        let length = preamble + 80 * records;
        assert_eq!(decode(&bytes).unwrap_err(), HeaderChainError::Damaged, "{height}");
        let fewer = decode(&summed(bytes.clone(), preamble)).unwrap_err();
        let expected = [
            HeaderChainError::HeaderCount { height, count: 1, needed: records + 1 },
            HeaderChainError::TooHigh { height, limit: i32::MAX as u32 },
        ];
        assert!(expected.contains(&fewer), "{height}: {fewer}");
        bytes.resize(length + 80, 0);
        let error = decode(&summed(bytes, length)).unwrap_err();
        match error {
            HeaderChainError::TooHigh { height, .. } => assert_eq!(height, u32::MAX),
            HeaderChainError::NotLinked { .. }
            | HeaderChainError::ProofOfWork { .. }
            // The first header after the start is valid; the work does not include it.
            | HeaderChainError::OtherWork { height: 1, .. } => {}
            error => panic!("{height}: {error}"),
        }
    }
}

/// Headers with valid work and invalid fields: each is rejected for its field, and the chain does
/// not change.
#[test]
fn mined_with_bad_fields() {
    let mut rng = Rng::new(42);
    let mut chain = HeaderChain::new(Network::Regtest);
    let headers = branch(&genesis(), 20, 1);
    chain.accept(&headers, NOW).expect("a chain");
    let (tip, tip_header) = (chain.tip(), headers[19]);
    let median = chain.median_time_past(20).expect("the tip");
    let mut refuse = |change: &dyn Fn(&mut Header)| {
        let mut header = mine(&tip_header, tip_header.time + 1, rng.u64());
        change(&mut header);
        while !header.target().is_met_by(header.block_hash()) {
            header.nonce = header.nonce.wrapping_add(1);
        }
        let error = chain.accept(&[header, header], NOW).expect_err("refused");
        assert_eq!((error.index, error.events.len(), chain.tip()), (0, 0, tip));
        assert_eq!(chain.side_headers(), 0);
        error.cause
    };
    for time in [0, 1, median - 1, median] {
        let cause = HeaderError::TimeTooOld { height: 21, time, median };
        assert_eq!(refuse(&|header| header.time = time), cause);
    }
    for time in [NOW_SECONDS + 7_201, u32::MAX] {
        let cause = HeaderError::TimeTooNew { height: 21, time, latest: NOW_SECONDS + 7_200 };
        assert_eq!(refuse(&|header| header.time = time), cause);
    }
    for version in [3, 2, 1, 0, -1, i32::MIN] {
        let cause = HeaderError::Version { height: 21, version, least: 4 };
        assert_eq!(refuse(&|header| header.version = Version::from_consensus(version)), cause);
    }
    for bits in [0x207f_fffe, 0x2000_ffff, 0x2030_0000] {
        let cause = HeaderError::WrongBits { height: 21, bits, required: 0x207f_ffff };
        assert_eq!(refuse(&|header| header.bits = CompactTarget::from_consensus(bits)), cause);
    }
}

/// Messages with any headers in any order cause no panic, and the number of side headers stays
/// bounded.
#[test]
fn headers_in_any_order() {
    let mut rng = Rng::new(43);
    let mut pool = vec![genesis()];
    for salt in 0..400 {
        let parent = *rng.pick(&pool);
        pool.push(mine(&parent, parent.time + 1 + rng.u32() % 1_000, salt));
    }
    let mut chain = HeaderChain::new(Network::Regtest).with_side_limit(40);
    let (mut taken, mut refused) = (0, 0);
    for _ in 0..3_000 {
        let mut message: Vec<_> = (0..rng.below(30)).map(|_| *rng.pick(&pool)).collect();
        if rng.one_in(3)
            && let Some(header) = message.first_mut()
        {
            header.nonce ^= 1 << rng.below(32);
        }
        if rng.one_in(2) {
            message.sort_by_key(|header| header.time);
        }
        let before = chain.tip();
        let (events, error) = match chain.accept(&message, NOW) {
            Ok(events) => (events, None),
            Err(error) => (error.events.clone(), Some(error)),
        };
        if let Some(error) = error {
            assert!(error.index < message.len());
            refused += 1;
        }
        let tip = events.iter().fold(before, |tip, event| match event {
            ChainEvent::Connected { at, header } => {
                assert_eq!(header.prev_blockhash, tip.hash);
                *at
            }
            ChainEvent::Disconnected { at } => {
                assert_eq!(*at, tip);
                let parent = pool.iter().find(|header| header.block_hash() == at.hash);
                let hash = parent.expect("from the pool").prev_blockhash;
                BlockAt { height: at.height - 1, hash }
            }
        });
        assert_eq!(tip, chain.tip());
        assert!(chain.side_headers() <= 40);
        taken += usize::from(!events.is_empty());
    }
    assert!(taken > 3 && refused > 500, "{taken} taken, {refused} refused");
}
