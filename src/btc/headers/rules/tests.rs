//! The rules of each network, tested on chains of times and bits. The headers have no proof of
//! work: other tests check proof of work, and mining with the testnets' targets would take hours.

use alloc::vec::Vec;

use bitcoin::block::{Header, Version};
use bitcoin::constants::genesis_block;
use bitcoin::{CompactTarget, Network};

use super::{Context, HeaderError, required_bits};
use crate::btc::headers::{BlockAt, HeaderRules};

/// Number of blocks of a period with the block time of the well-known networks.
const PERIOD: u32 = 2016;

fn bits(bits: u32) -> CompactTarget {
    CompactTarget::from_consensus(bits)
}

/// Test cases of Bitcoin Core's `pow_tests.cpp` for `CalculateNextWorkRequired` on mainnet.
#[test]
fn next_work_as_core() {
    for (name, first, height, last, old, new) in [
        ("get_next_work", 1_261_130_161, 32_255, 1_262_152_739, 0x1d00_ffff, 0x1d00_d86a),
        ("get_next_work_pow_limit", 1_231_006_505, 2_015, 1_233_061_996, 0x1d00_ffff, 0x1d00_ffff),
        (
            "get_next_work_lower_limit_actual",
            1_279_008_237,
            68_543,
            1_279_297_671,
            0x1c05_a3f4,
            0x1c01_68fd,
        ),
        (
            "get_next_work_upper_limit_actual",
            1_263_163_443,
            46_367,
            1_269_211_443,
            0x1c38_7f6f,
            0x1d00_e1fd,
        ),
    ] {
        let (first, last) = ((first, bits(old)), (last, bits(old)));
        let next = required_bits(Network::Bitcoin.into(), height, last, first, last.0 + 1);
        assert_eq!(next, bits(new), "{name}");
        // If the last block of a period is earlier than the first, the timespan is the shortest
        // allowed.
        let back = required_bits(Network::Bitcoin.into(), height, (0, bits(old)), first, 1);
        let least = required_bits(Network::Bitcoin.into(), height, first, first, 1);
        assert_eq!(back, least, "{name}: negative timespan");
    }
}

/// Oracle: a chain of times and bits with Core's rules, written step by step.
struct Naive {
    network: Network,
    /// Core's `nPowTargetTimespan / nPowTargetSpacing`.
    period: usize,
    blocks: Vec<(u32, u32)>,
}

impl Naive {
    fn new(network: Network, period: usize) -> Self {
        let genesis = genesis_block(network).header;
        let blocks = Vec::from([(genesis.time, genesis.bits.to_consensus())]);
        Self { network, period, blocks }
    }

    /// Core's `GetNextWorkRequired`, including its walk back to earlier blocks.
    fn required(&self, time: u32) -> u32 {
        let limit = match self.network {
            Network::Signet => 0x1e03_77ae,
            Network::Regtest => 0x207f_ffff,
            _ => 0x1d00_ffff,
        };
        let last = self.blocks.len() - 1;
        let testnet = !matches!(self.network, Network::Bitcoin | Network::Signet);
        if !(last + 1).is_multiple_of(self.period) {
            if !testnet {
                return self.blocks[last].1;
            }
            if i64::from(time) > i64::from(self.blocks[last].0) + 20 * 60 {
                return limit;
            }
            let mut at = last;
            while at > 0 && !at.is_multiple_of(self.period) && self.blocks[at].1 == limit {
                at -= 1;
            }
            return self.blocks[at].1;
        }
        if self.network == Network::Regtest {
            return self.blocks[last].1;
        }
        let (first_time, first_bits) = self.blocks[last + 1 - self.period];
        let (last_time, last_bits) = self.blocks[last];
        let base = if self.network == Network::Testnet4 { first_bits } else { last_bits };
        let timespan = u64::try_from(i64::from(last_time) - i64::from(first_time)).unwrap_or(0);
        CompactTarget::from_next_work_required(bits(base), timespan, self.network.params())
            .to_consensus()
    }

    /// Core's `GetMedianTimePast` of the last block.
    fn median(&self) -> u32 {
        let mut times: Vec<_> = self.blocks.iter().rev().take(11).map(|block| block.0).collect();
        times.sort_unstable();
        times[times.len() / 2]
    }
}

/// Returns the context of genesis. The tests use the genesis hash for all other blocks too.
fn genesis_context(rules: impl Into<HeaderRules>) -> (Header, Context) {
    let rules = rules.into();
    let header = genesis_block(rules.network()).header;
    let at = BlockAt { height: 0, hash: header.block_hash() };
    let first = (header.time, header.bits);
    (header, Context::new(rules, at, header.work(), [&header].into_iter(), first))
}

/// On every network, a chain of more than four periods has Core's bits, medians and sums of work.
/// Headers just outside the limits are refused. The times jump ahead, lag behind and go back.
#[test]
fn each_network_block_by_block() {
    let networks =
        [Network::Bitcoin, Network::Testnet, Network::Testnet4, Network::Signet, Network::Regtest];
    for network in networks {
        let mut naive = Naive::new(network, 2016);
        let (genesis, mut context) = genesis_context(network);
        let mut work = genesis.work();
        let mut different = alloc::collections::BTreeSet::new();
        let mut rng = testkit::Rng::new(1);
        for height in 1..=4 * PERIOD + 100 {
            let random = rng.u32();
            let last = naive.blocks.last().unwrap().0;
            // Blocks are fast in some periods and slow in others, so that targets get harder and
            // easier.
            let pace = [100, 300, 900, 30][(height / PERIOD % 4) as usize];
            let time = match random % 16 {
                // On the testnets, the last block of a period has the easiest target. Only testnet3
                // computes the next target from this one.
                _ if height % (2 * PERIOD) == 2 * PERIOD - 1 => last + 1_201,
                0 => last + 1_200,
                1 => last + 1_201,
                2 => naive.median() + 1,
                3 => last + 5_000,
                _ => last + random % pace,
            };
            let time = time.max(naive.median() + 1);
            let required = naive.required(time);
            let time = if network == Network::Testnet4 && height.is_multiple_of(PERIOD) {
                time.max(last - 600)
            } else {
                time
            };
            let header = Header {
                version: Version::from_consensus(4),
                time,
                bits: bits(required),
                ..genesis
            };
            assert_eq!(context.median_time_past(), naive.median(), "{network} {height}");
            assert_eq!(context.check(&header, time - 7_200), Ok(()), "{network} {height}");
            let wrong = Header { bits: bits(required ^ 1), ..header };
            assert_eq!(
                context.check(&wrong, time),
                Err(HeaderError::WrongBits { height, bits: required ^ 1, required }),
                "{network}"
            );
            let median = naive.median();
            let old = Header { time: median, bits: bits(naive.required(median)), ..header };
            assert_eq!(
                context.check(&old, time),
                Err(HeaderError::TimeTooOld { height, time: median, median }),
                "{network}"
            );
            assert_eq!(
                context.check(&header, time - 7_201),
                Err(HeaderError::TimeTooNew { height, time, latest: time - 1 }),
                "{network}"
            );
            naive.blocks.push((time, required));
            context.advance(&header, header.prev_blockhash);
            work = work + header.work();
            assert_eq!((context.at.height, context.work), (height, work), "{network}");
            different.insert(required);
        }
        // Mainnet and signet have one target per period, the testnets have up to two, and regtest
        // has one in total.
        let expected = match network {
            Network::Bitcoin | Network::Signet => 4..=5,
            Network::Testnet | Network::Testnet4 => 4..=6,
            Network::Regtest => 1..=1,
        };
        assert!(expected.contains(&different.len()), "{network}: {different:x?}");
    }
}

/// A signet with `-signetblocktime` changes its target every two weeks / block time blocks, by the
/// time that these took, as its nodes do. With 30 s (Mutinynet and others), the target at height
/// 2016 is that of genesis, as at every height below 40,320.
#[test]
fn a_signet_changes_its_target_by_its_own_block_time() {
    for (block_time, period) in [(30, 40_320), (60, 20_160), (600, 2_016), (1_000, 1_209)] {
        let rules = HeaderRules::new(Network::Signet, block_time).unwrap();
        let mut naive = Naive::new(Network::Signet, period);
        let (genesis, mut context) = genesis_context(rules);
        let mut changes = Vec::new();
        for height in 1..u32::try_from(2 * period + 100).unwrap() {
            // The blocks come faster than the block time, and later slower.
            let pace = if height < 40_000 { block_time - block_time / 3 } else { 2 * block_time };
            let time = naive.blocks.last().unwrap().0 + pace;
            let required = naive.required(time);
            let version = Version::from_consensus(4);
            let header = Header { version, time, bits: bits(required), ..genesis };
            assert_eq!(context.check(&header, time), Ok(()), "{block_time} s, height {height}");
            let wrong = Header { bits: bits(required ^ 1), ..header };
            assert_eq!(
                context.check(&wrong, time),
                Err(HeaderError::WrongBits { height, bits: required ^ 1, required })
            );
            if context.bits != bits(required) {
                changes.push(usize::try_from(height).unwrap());
            }
            naive.blocks.push((time, required));
            context.advance(&header, header.prev_blockhash);
        }
        assert_eq!(changes, [period, 2 * period], "{block_time} s");
    }
}

/// A context made from headers in the middle of a chain equals the context advanced from genesis.
#[test]
fn context_from_headers_is_the_one_led_there() {
    let network = Network::Testnet;
    let (genesis, mut led) = genesis_context(network);
    let mut headers = Vec::from([genesis]);
    for height in 1..2 * PERIOD + 20 {
        let time = headers[headers.len() - 1].time + if height % 7 == 0 { 1_300 } else { 600 };
        let required =
            required_bits(network.into(), height - 1, (led.time, led.bits), led.first, time);
        let header = Header { time, bits: required, ..genesis };
        led.advance(&header, header.prev_blockhash);
        headers.push(header);
        let first = &headers[(height - height % PERIOD) as usize];
        let first = (first.time, first.bits);
        let made = Context::new(network.into(), led.at, led.work, headers.iter().rev(), first);
        assert_eq!(made.median_time_past(), led.median_time_past(), "{height}");
        assert_eq!(
            (made.time, made.bits, made.first, made.bits_work),
            (led.time, led.bits, led.first, led.bits_work),
            "{height}"
        );
    }
}

/// BIP94, "Time warp fix": the first block of a testnet4 period is refused if it is more than 600 s
/// earlier than its parent. The other networks accept such a first block. Inside a period, testnet4
/// accepts such a step back, too.
#[test]
fn time_warp() {
    let networks = [Network::Bitcoin, Network::Testnet, Network::Testnet4, Network::Signet];
    for network in networks {
        let (genesis, mut context) = genesis_context(network);
        let mut naive = Naive::new(network, 2016);
        for height in 1..=PERIOD {
            // The parent of the tested block is two hours ahead of all other blocks.
            let ahead = if height == PERIOD - 1 || height == 50 { 7_200 } else { 0 };
            let time = genesis.time + 600 * height + ahead;
            let header = |time| Header {
                version: Version::from_consensus(4),
                time,
                bits: bits(naive.required(time)),
                ..genesis
            };
            if height == 51 || height == PERIOD {
                let last = naive.blocks.last().unwrap().0;
                let (early, edge) = (header(last - 601), header(last - 600));
                let refused =
                    HeaderError::TimeWarp { height, time: last - 601, earliest: last - 600 };
                let warp = network == Network::Testnet4 && height == PERIOD;
                let expected = if warp { Err(refused) } else { Ok(()) };
                assert_eq!(context.check(&early, last), expected, "{network} {height}");
                assert_eq!(context.check(&edge, last), Ok(()), "{network} {height}");
            }
            let header = header(time);
            context.advance(&header, header.prev_blockhash);
            naive.blocks.push((time, header.bits.to_consensus()));
        }
    }
}

/// The heights of BIP34, BIP66 and BIP65 equal those of `kernel/chainparams.cpp` in Core 28.1.
#[test]
fn obsolete_versions() {
    for (network, heights) in [
        (Network::Bitcoin, [227_931, 363_725, 388_381]),
        (Network::Testnet, [21_111, 330_776, 581_885]),
        (Network::Testnet4, [1, 1, 1]),
        (Network::Signet, [1, 1, 1]),
        (Network::Regtest, [1, 1, 1]),
    ] {
        let genesis = genesis_block(network).header;
        let check = |height: u32, version: i32| {
            let at = BlockAt { height: height - 1, hash: genesis.block_hash() };
            let back = [genesis; 11];
            let last = (genesis.time, genesis.bits);
            let context = Context::new(network.into(), at, genesis.work(), back.iter(), last);
            let time = genesis.time + 1;
            let bits = required_bits(network.into(), height - 1, last, last, time);
            let version = Version::from_consensus(version);
            context.check(&Header { version, time, bits, ..genesis }, time)
        };
        for (least, height) in (2..).zip(heights) {
            let refused = |version| Err(HeaderError::Version { height, version, least });
            if network == Network::Bitcoin || network == Network::Testnet {
                assert_eq!(check(height, least - 1), refused(least - 1), "{network}");
                assert_eq!(check(height - 1, least - 1), Ok(()), "{network}");
            } else {
                let refused = Err(HeaderError::Version { height, version: 3, least: 4 });
                assert_eq!(check(height, 3), refused, "{network}");
            }
            // Versions are signed integers. Miners set high bits of the version freely.
            let negative = check(height, i32::MIN);
            assert!(matches!(negative, Err(HeaderError::Version { .. })), "{network}");
            assert_eq!(check(height, 0x2000_0000), Ok(()), "{network}");
            assert_eq!(check(height, i32::MAX), Ok(()), "{network}");
        }
    }
}
