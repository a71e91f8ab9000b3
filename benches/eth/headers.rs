//! A chain of headers from RLP: decoded, hashed and linked.

use alloy_primitives::{B256, keccak256};
use alloy_rlp::Decodable as _;
use chainsieve::eth::header::{HeaderView, LinkedHeaders, bloom_at_fixed_place};
use chainsieve::simd::Backend;
use std::hint::black_box;

use crate::keccak::headers;
use testkit::timer::Report;

pub(crate) fn run(report: &mut Report) {
    let (_, headers) = headers().remove(0);
    let rlp = headers.concat();
    let runs = consecutive(&headers);
    let stretch: Vec<u8> = headers[..runs].concat();
    for backend in Backend::available() {
        let ours = || {
            let mut chain = LinkedHeaders::new();
            let linked = chain.extend_from_rlp_on(backend, &stretch);
            assert_eq!(linked, Ok(runs));
            chain.last_hash()
        };
        let peer = || check_links(&stretch);
        assert_eq!(ours(), Some(peer()));
        let title = format!("check a chain of {runs} headers from RLP, {backend:?}");
        report.ratio(&format!("{title} vs alloy-consensus and tiny-keccak"), runs, ours, peer);
    }

    let views: Vec<&[u8]> = headers.iter().map(Vec::as_slice).collect();
    for header in &views {
        let view = HeaderView::decode(header).expect("a header");
        assert_eq!(bloom_at_fixed_place(header), Some(view.logs_bloom()));
    }
    println!("# {} bytes of headers", rlp.len());
    // 64 headers, few enough to stay in the cache.
    let cached = &views[..views.len().min(64)];
    let times = |run: &dyn Fn(&[u8])| {
        for _ in 0..64 {
            for header in cached {
                run(black_box(header));
            }
        }
    };
    let per = cached.len() * 64;
    report.figure("filter of a cached header", per, || {
        times(&|header| {
            black_box(bloom_at_fixed_place(header));
        });
    });
    report.figure("all fields of a cached header", per, || {
        times(&|header| drop(black_box(HeaderView::decode(header))));
    });
}

/// Returns the number of headers, from the first on, that are linked to one another.
fn consecutive(headers: &[Vec<u8>]) -> usize {
    let parent = |header: &Vec<u8>| HeaderView::decode(header).expect("a header").parent_hash();
    let pairs = headers.windows(2);
    1 + pairs.take_while(|pair| parent(&pair[1]) == keccak256(&pair[0])).count()
}

/// Checks the links with `alloy-consensus`, hashing one header after the other.
fn check_links(mut rlp: &[u8]) -> B256 {
    let mut last: Option<(u64, B256)> = None;
    while !rlp.is_empty() {
        let bytes = rlp;
        let header = alloy_consensus::Header::decode(&mut rlp).expect("a header");
        let hash = keccak256(&bytes[..bytes.len() - rlp.len()]);
        if let Some((number, parent)) = last {
            assert_eq!((header.number, header.parent_hash), (number + 1, parent));
        }
        last = Some((header.number, hash));
    }
    last.expect("headers").1
}
