//! Real headers of mainnet and signet. The chain accepts them all, every change of the target is
//! checked, and their work equals the sums of another implementation, bitcoinj.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chainsieve::bitcoin::block::Header;
use chainsieve::bitcoin::{BlockHash, Network, Work, consensus};
use chainsieve::btc::headers::{
    ChainEvent, HeaderChain, HeaderChainError, HeaderError, HeaderRules, MAX_HEADERS, TrustedStart,
};
use chainsieve::btc::proof_of_work::ProofOfWorkError;

use testkit::btc::corpus::Corpus;

/// Number of blocks in a difficulty period.
const PERIOD: u32 = 2016;

fn headers(corpus: &Corpus, name: &str) -> Vec<Header> {
    let bytes = corpus.read(name);
    let (records, rest) = bytes.as_chunks::<80>();
    assert!(rest.is_empty(), "{name}: 80 bytes each");
    records.iter().map(|record| consensus::deserialize(record).expect("a header")).collect()
}

/// Returns the accumulated work and the header at the start of each difficulty period, from
/// bitcoinj's checkpoints.
fn checkpoints(corpus: &Corpus) -> BTreeMap<u32, (Work, Header)> {
    let text = String::from_utf8(corpus.read("mainnet/checkpoints_bitcoinj.txt")).expect("UTF-8");
    let lines = text.lines().skip(3);
    let checkpoints = lines.map(|line| {
        let bytes = STANDARD.decode(line).expect("base64");
        let mut work = [0; 32];
        work[20..].copy_from_slice(&bytes[..12]);
        let height = u32::from_be_bytes(bytes[12..16].try_into().expect("4 bytes"));
        let header = consensus::deserialize(&bytes[16..]).expect("a header");
        (height, (Work::from_be_bytes(work), header))
    });
    let checkpoints: BTreeMap<_, _> = checkpoints.collect();
    assert_eq!(checkpoints.len(), 436);
    checkpoints
}

fn times(count: u32, work: Work) -> Work {
    (0..count).fold(Work::from_be_bytes([0; 32]), |sum, _| sum + work)
}

/// Converts Unix seconds.
fn seconds(unix: u32) -> Duration {
    Duration::from_secs(unix.into())
}

/// Returns a trusted start at the eleventh header of `run`. The run starts at height `base`, in the
/// middle of a difficulty period.
fn trusted_start(
    checkpoints: &BTreeMap<u32, (Work, Header)>,
    base: u32,
    run: &[Header],
) -> TrustedStart {
    let height = base + 10;
    let (work, period_first) = checkpoints[&(height - height % PERIOD)];
    let work = work + times(height % PERIOD, period_first.work());
    TrustedStart { height, headers: run[..11].to_vec(), period_first, work }
}

/// Feeds `run`, which continues after the chain's tip, and compares the chain with the checkpoints.
///
/// Each message ends with the first header of a difficulty period. Returns the heights of the
/// checkpoints that were reached.
fn follow(
    chain: &mut HeaderChain,
    run: &[Header],
    checkpoints: &BTreeMap<u32, (Work, Header)>,
) -> Vec<u32> {
    let mut rest = run;
    let mut met = Vec::new();
    while !rest.is_empty() {
        let tip = chain.tip().height;
        let to_start = PERIOD - tip % PERIOD;
        let (message, behind) = rest.split_at((to_start as usize).min(rest.len()).min(MAX_HEADERS));
        rest = behind;
        let now = seconds(message[message.len() - 1].time);
        let events = chain.accept(message, now).unwrap_or_else(|e| panic!("{e}"));
        for ((event, header), height) in events.iter().zip(message).zip(tip + 1..) {
            let ChainEvent::Connected { at, header: connected } = event else { panic!("a fork") };
            assert_eq!((at.height, at.hash, connected), (height, header.block_hash(), header));
        }
        assert_eq!(events.len(), message.len());
        let height = chain.tip().height;
        if let Some((work, header)) = checkpoints.get(&height) {
            assert_eq!(chain.tip().hash, header.block_hash(), "{height}");
            assert_eq!(chain.work(), *work, "{height}");
            met.push(height);
        }
    }
    met
}

fn hash_in_index(corpus: &Corpus, name: &str) -> BlockHash {
    let file = corpus.files.iter().find(|file| file.name == name).expect("in the index");
    file.hash.as_ref().expect("a hash").parse().expect("a hash")
}

#[test]
fn every_run_is_a_chain() {
    let Some(corpus) = Corpus::open() else { return };
    let checkpoints = checkpoints(&corpus);
    for (name, base, starts) in [
        ("mainnet/headers/headers_0-10236.bin", 0, &[2016, 4032, 6048, 8064, 10_080][..]),
        ("mainnet/headers/headers_40000-44999.bin", 40_000, &[40_320, 42_336, 44_352]),
        // The index gives 832,000 as the first height. The checkpoint shows that the file starts
        // one block higher.
        ("mainnet/headers/headers_832000-833096.bin", 832_001, &[832_608]),
    ] {
        let run = headers(&corpus, name);
        let (mut chain, first) = if base == 0 {
            (HeaderChain::new(Network::Bitcoin), 1)
        } else {
            let trusted_start = trusted_start(&checkpoints, base, &run);
            (
                HeaderChain::from_trusted_start(Network::Bitcoin, trusted_start)
                    .expect("a trusted start"),
                11,
            )
        };
        assert_eq!(chain.tip().hash, run[first - 1].block_hash(), "{name}");
        assert_eq!(follow(&mut chain, &run[first..], &checkpoints), starts, "{name}");
        assert_eq!(chain.tip().hash, hash_in_index(&corpus, name), "{name}");
        for (height, header) in (base..).zip(&run) {
            assert_eq!(chain.header_at(height), Some(header), "{name} {height}");
            let hash = header.block_hash();
            assert_eq!(chain.hash_at(height), Some(hash), "{name} {height}");
            assert_eq!(chain.height_of(&hash), Some(height), "{name} {height}");
        }
        let decoded = HeaderChain::decode(&chain.encode()).expect("what was written");
        assert_eq!((decoded.tip(), decoded.work()), (chain.tip(), chain.work()), "{name}");
    }

    let name = "signet/headers/headers_0-2015.bin";
    let run = headers(&corpus, name);
    let mut chain = HeaderChain::new(Network::Signet);
    let events = chain.accept(&run, seconds(run[run.len() - 1].time)).expect("signet");
    // The chain already contained the genesis block.
    assert_eq!(events.len(), 2015);
    assert_eq!(chain.tip().hash, hash_in_index(&corpus, name));
    // With a block time of 20 minutes, these blocks would have come too fast, and the first target
    // would have changed after 1,008 blocks. With 30 seconds, it changes after 40,320 blocks.
    for (block_time, refused) in [(30, None), (1_200, Some(1_008))] {
        let rules = HeaderRules::new(Network::Signet, block_time).expect("a signet");
        let mut chain = HeaderChain::new(rules);
        let error = chain.accept(&run, seconds(run[run.len() - 1].time)).err();
        let height = error.map(|error| match error.cause {
            HeaderError::WrongBits { height, .. } => height,
            cause => panic!("{cause}"),
        });
        assert_eq!(height, refused, "{block_time}");
        let file = chain.encode();
        let decoded = HeaderChain::decode_with(&file, rules).expect("what was written");
        assert_eq!((decoded.tip(), decoded.rules()), (chain.tip(), rules));
        assert_eq!(
            HeaderChain::decode_with(&file, Network::Bitcoin).expect_err("another network"),
            HeaderChainError::OtherNetwork { kept: Network::Signet, wanted: Network::Bitcoin }
        );
    }
    // The file does not say the block time, and is read with the one that the caller gives.
    let rules = HeaderRules::new(Network::Signet, 1_200).expect("a signet");
    let error = HeaderChain::decode_with(&chain.encode(), rules).expect_err("other targets");
    assert!(matches!(error, HeaderChainError::Header { height: 1_008, .. }), "{error}");
    assert_eq!(error.intact_len(), Some(chain.record_offset(1_008)));
}

/// Checks the work of every target that mainnet had up to height 878,976.
#[test]
fn work_of_every_target_as_bitcoinj() {
    let Some(corpus) = Corpus::open() else { return };
    let checkpoints = checkpoints(&corpus);
    let mut targets = 0;
    let pairs = checkpoints.iter().zip(checkpoints.iter().skip(1));
    for ((low, (work, header)), (high, (next_work, next))) in pairs {
        assert_eq!(low + PERIOD, *high);
        let sum = *work + times(PERIOD - 1, header.work()) + next.work();
        assert_eq!(sum, *next_work, "{high}");
        targets += usize::from(header.bits != next.bits);
    }
    assert_eq!(targets, 421);
}

/// A chain whose trusted start has the first header of another period expects that period's target, and
/// rejects the real headers.
#[test]
fn another_period_asks_for_another_target() {
    let Some(corpus) = Corpus::open() else { return };
    let checkpoints = checkpoints(&corpus);
    let run = headers(&corpus, "mainnet/headers/headers_40000-44999.bin");
    let mut trusted_start = trusted_start(&checkpoints, 40_000, &run);
    let (_, earlier) = checkpoints[&36_288];
    assert_ne!(earlier.bits, trusted_start.period_first.bits);
    trusted_start.period_first = earlier;
    let mut chain =
        HeaderChain::from_trusted_start(Network::Bitcoin, trusted_start).expect("consistent");
    let error = chain.accept(&run[11..], Duration::MAX).expect_err("another target");
    assert_eq!(error.index, 0);
    assert!(matches!(error.cause, HeaderError::WrongBits { height: 40_011, .. }), "{error}");
}

#[test]
fn one_byte_changed() {
    let Some(corpus) = Corpus::open() else { return };
    let checkpoints = checkpoints(&corpus);
    let run = headers(&corpus, "mainnet/headers/headers_40000-44999.bin");
    let trusted_start = trusted_start(&checkpoints, 40_000, &run);
    let start =
        HeaderChain::from_trusted_start(Network::Bitcoin, trusted_start).expect("a trusted start");
    let mut counts = BTreeMap::new();
    // Headers around the change of the target at height 40,320.
    for place in 318..=322 {
        let bytes = consensus::serialize(&run[place]);
        for at in 0..80 {
            for flip in [1, 0x10, 0x80] {
                let mut bytes = bytes.clone();
                bytes[at] ^= flip;
                let mut message = run[11..330].to_vec();
                message[place - 11] = consensus::deserialize(&bytes).expect("80 bytes");
                let mut chain = start.clone();
                let error = chain.accept(&message, Duration::MAX).expect_err("damaged");
                assert_eq!(error.index, place - 11, "byte {at}");
                assert_eq!(error.events.len(), place - 11, "byte {at}");
                assert_eq!(chain.tip().hash, run[place - 1].block_hash(), "byte {at}");
                let HeaderError::ProofOfWork(cause) = error.cause else { panic!("{error}") };
                let kind = match cause {
                    ProofOfWorkError::HashAboveTarget { .. } => "hash",
                    ProofOfWorkError::AboveLimit { .. } => "limit",
                    ProofOfWorkError::Negative(_) => "negative",
                    ProofOfWorkError::Overflow(_) => "overflow",
                    other => panic!("{other}"),
                };
                assert!((72..76).contains(&at) || kind == "hash", "byte {at}: {kind}");
                *counts.entry(kind).or_insert(0) += 1;
            }
        }
    }
    println!("damaged headers by what showed it: {counts:?}");
    assert_eq!(counts.values().sum::<usize>(), 5 * 80 * 3);
    assert_eq!(counts.len(), 4);
}

/// If one byte of a file is changed, the error gives the length of the intact part, and the intact
/// part decodes.
#[test]
fn damaged_files() {
    let Some(corpus) = Corpus::open() else { return };
    let run = headers(&corpus, "mainnet/headers/headers_0-10236.bin");
    let mut chain = HeaderChain::new(Network::Bitcoin);
    chain.accept(&run[..=20], Duration::MAX).expect("a chain");
    let file = chain.encode();
    let preamble = usize::try_from(chain.record_offset(1)).expect("small");
    assert_eq!(file.len(), preamble + 20 * 80);
    for at in 0..file.len() {
        let mut damaged = file.clone();
        damaged[at] ^= 0x40;
        let error = HeaderChain::decode(&damaged).expect_err("damaged");
        let Some(intact) = error.intact_len() else {
            assert!(at < preamble, "{at}: {error}");
            continue;
        };
        assert_eq!(intact, ((at - preamble) / 80 * 80 + preamble) as u64, "{at}: {error}");
        damaged.truncate(usize::try_from(intact).expect("small"));
        let height = u32::try_from((at - preamble) / 80).expect("small");
        assert_eq!(HeaderChain::decode(&damaged).expect("intact").tip().height, height);
    }
    for length in 0..file.len() {
        match HeaderChain::decode(&file[..length]) {
            Ok(cut) => {
                assert_eq!((length - preamble) % 80, 0);
                assert_eq!(cut.tip().height as usize, (length - preamble) / 80);
            }
            Err(HeaderChainError::PreambleCut { length: is, .. }) => {
                assert_eq!(is, length);
                assert!(length < preamble);
            }
            Err(HeaderChainError::Cut { offset, left }) => {
                assert_eq!(usize::try_from(offset).expect("small") + left, length);
            }
            Err(error) => panic!("cut to {length}: {error}"),
        }
    }
}
