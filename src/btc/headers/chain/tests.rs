//! The parts of a chain, tested on headers without proof of work, so that tests can choose the bits
//! freely.

use alloc::vec::Vec;

use bitcoin::block::Header;
use bitcoin::{CompactTarget, Network, Work};

use super::{Context, HeaderChain, Run, SideHeader};
use crate::btc::headers::branches::ActiveChain;
use crate::btc::headers::{BlockAt, TrustedStart};
use testkit::Rng;

const NETWORK: Network = Network::Testnet;

fn genesis() -> Header {
    TrustedStart::genesis(NETWORK).period_first
}

fn child(parent: &Header, rng: &mut Rng) -> Header {
    let bits = CompactTarget::from_consensus(0x1c00_0000 + 0x0001_0000 * (rng.u32() % 100 + 1));
    let time = parent.time + rng.u32() % 3_000;
    Header { prev_blockhash: parent.block_hash(), bits, time, nonce: rng.u32(), ..*parent }
}

fn sum(headers: &[Header]) -> Work {
    headers[1..].iter().fold(headers[0].work(), |work, header| work + header.work())
}

fn assert_is(active: &ActiveChain, path: &[Header]) {
    assert_eq!(active.work, sum(path));
    assert_eq!(active.indexed(), path.len());
    for height in (0..path.len()).step_by(37) {
        let at = u32::try_from(height).unwrap();
        assert_eq!(active.work_at(at), sum(&path[..=height]), "{height}");
        let hash = path[height].block_hash();
        assert_eq!((active.hash_at(at), active.height_of(&hash)), (Some(hash), Some(at)));
        assert!(active.back_from(at).eq(path[..=height].iter().rev()), "{height}");
    }
}

/// A chain stays consistent when it grows and shrinks across heights with a stored sum of work.
#[test]
fn active_chain_grows_and_shrinks() {
    let trusted_start = TrustedStart::genesis(NETWORK);
    let start = BlockAt { height: 0, hash: genesis().block_hash() };
    let mut active = ActiveChain::new(&trusted_start, start);
    let mut path = Vec::from([genesis()]);
    let mut rng = Rng::new(7);
    for (grow, shrink) in [(5_000, 1_500), (700, 3_000), (4_000, 5_000), (100, 299), (2_017, 1)] {
        for _ in 0..grow {
            let header = child(path.last().unwrap(), &mut rng);
            path.push(header);
            active.push(header, header.block_hash(), active.work + header.work());
        }
        assert_is(&active, &path);
        for _ in 0..shrink {
            let (at, header, work) = active.pop().unwrap();
            assert_eq!(at, BlockAt { height: u32::try_from(path.len() - 1).unwrap(), ..at });
            assert_eq!((at.hash, Some(header)), (header.block_hash(), path.pop()));
            assert_eq!(work, active.work + header.work());
        }
        assert_is(&active, &path);
    }
    while active.pop().is_some() {}
    assert_eq!((active.tip(), active.work, active.indexed()), (start, genesis().work(), 1));
}

/// A block has the same context in a side branch as in the active chain. The branches fork at
/// several places of a period, and end in the same period or after it.
#[test]
fn context_in_side_branches() {
    let mut rng = Rng::new(11);
    let mut chain = HeaderChain::new(NETWORK);
    let mut led = chain.context(&genesis().block_hash()).unwrap();
    let mut contexts = Vec::from([led]);
    let mut trunk = Vec::from([genesis()]);
    let extend = |led: &mut Context, parent: &Header, rng: &mut Rng| {
        let header = child(parent, rng);
        led.advance(&header, header.block_hash());
        header
    };
    for _ in 0..4_500 {
        let header = extend(&mut led, trunk.last().unwrap(), &mut rng);
        chain.active.push(header, header.block_hash(), led.work);
        trunk.push(header);
        contexts.push(led);
    }
    for context in contexts.iter().step_by(61) {
        assert_eq!(chain.context(&context.at.hash), Ok(*context));
    }
    for (fork, length) in [(0, 2_020), (1, 15), (2_000, 40), (2_015, 1), (2_016, 5), (2_500, 1_999)]
    {
        let (mut led, mut last) = (contexts[fork], trunk[fork]);
        for _ in 0..length {
            last = extend(&mut led, &last, &mut rng);
            let side = SideHeader {
                header: last,
                height: led.at.height,
                work: led.work,
                first: led.first,
            };
            chain.side.insert(led.at.hash, side);
            assert_eq!(chain.context(&led.at.hash), Ok(led), "{fork} + {}", led.at.height);
        }
    }

    // Blocks that a heavier branch removes from the active chain keep their context.
    let mut context = contexts[100];
    let mut headers = Vec::new();
    while context.work <= chain.work() {
        let parent = headers.last().map_or(trunk[100], |(_, side): &(_, SideHeader)| side.header);
        let header = extend(&mut context, &parent, &mut rng);
        let Context { at, work, first, .. } = context;
        headers.push((at.hash, SideHeader { header, height: at.height, work, first }));
    }
    let parent = contexts[100].at.hash;
    chain.activate(Run { index: 0, parent, context, headers }, &mut Vec::new());
    assert_eq!(chain.tip(), context.at);
    for context in &contexts {
        assert_eq!(chain.context(&context.at.hash), Ok(*context));
    }
}
