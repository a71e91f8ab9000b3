//! One query over many blooms.

use alloy_primitives::{Address, Bloom, BloomInput};
use alloy_rpc_types_eth::Filter;
use chainsieve::eth::bloom;
use chainsieve::eth::log_query::CompiledQuery;
use chainsieve::eth::scan::{Scanner, candidates_on};
use chainsieve::simd::Backend;

use testkit::Rng;
use testkit::timer::Report;

/// Returns blooms in which `least` to `most` percent of the bits are set.
pub(crate) fn blooms(random: &mut Rng, count: usize, least: usize, most: usize) -> Vec<[u8; 256]> {
    let bloom = |_| {
        let ones = (least + random.below(most - least + 1)) * 2048 / 100;
        let (mut bloom, mut set) = ([0_u8; 256], 0);
        while set < ones {
            let bit = random.below(2048);
            let (byte, mask) = (bit / 8, 1 << (bit % 8));
            set += usize::from(bloom[byte] & mask == 0);
            bloom[byte] |= mask;
        }
        bloom
    };
    (0..count).map(bloom).collect()
}

/// Returns the same blooms as alloy's type.
pub(crate) fn as_alloy(blooms: &[[u8; 256]]) -> Vec<Bloom> {
    blooms.iter().map(|bloom| Bloom::from(*bloom)).collect()
}

pub(crate) fn positions<T: AsRef<[u8]>>(values: &[T]) -> Vec<[u16; 3]> {
    values.iter().map(|value| bloom::positions(value.as_ref())).collect()
}

pub(crate) fn run(report: &mut Report) {
    let count = if report.is_quick() { 100_000 } else { 1_000_000 };
    let mut random = Rng::new(1);
    let blooms = blooms(&mut random, count, 30, 50);
    let theirs = as_alloy(&blooms);
    println!("# {count} filters, 30 to 50 % full");
    report.figure("reading every word of the filters, per filter", count, || {
        blooms
            .iter()
            .flat_map(|bloom| bloom.as_chunks::<8>().0)
            .fold(0_u64, |sum, word| sum.wrapping_add(u64::from_le_bytes(*word)))
    });
    six_bits(report, &blooms, &theirs, &mut random);
    drop(theirs);
    drop(blooms);
    many_addresses(report, &mut random);
}

/// Measures queries for an address and a topic: six bits.
fn six_bits(report: &mut Report, blooms: &[[u8; 256]], theirs: &[Bloom], random: &mut Rng) {
    let mut query = |wanted: &dyn Fn(&[usize; 4]) -> bool| {
        loop {
            let (address, topic) = (random.address(), random.word());
            let values = [positions(&[address]), positions(&[topic])];
            let mut lines = [0; 4];
            for position in values.iter().flatten().flatten() {
                lines[usize::from(position >> 9)] += 1;
            }
            lines.sort_unstable_by(|a, b| b.cmp(a));
            if wanted(&lines) {
                return (address, topic, CompiledQuery::new(values.to_vec()));
            }
        }
    };
    let queries = [
        ("bits 2, 2, 1, 1 to a line", query(&|lines| *lines == [2, 2, 1, 1])),
        ("bits 3, 2, 1 to a line", query(&|lines| *lines == [3, 2, 1, 0])),
        ("four bits in a line", query(&|lines| lines[0] == 4)),
    ];
    for (name, (address, topic, query)) in &queries {
        let mut wanted = Bloom::ZERO;
        wanted.accrue(BloomInput::Raw(address.as_slice()));
        wanted.accrue(BloomInput::Raw(topic.as_slice()));
        let plain = || {
            let indexed = theirs.iter().enumerate();
            let found = indexed.filter(|(_, bloom)| bloom.contains(&wanted)).map(|(i, _)| i);
            found.collect::<Vec<_>>()
        };
        for backend in Backend::available() {
            let found = candidates_on(backend, query, blooms);
            assert_eq!(found, plain());
            report.ratio(
                &format!("address and topic, {name}, per filter, {backend:?} vs Bloom::contains"),
                blooms.len(),
                || candidates_on(backend, query, blooms),
                plain,
            );
        }
    }
}

/// Measures queries for 1,000 addresses, alone and with a topic.
fn many_addresses(report: &mut Report, random: &mut Rng) {
    let count = if report.is_quick() { 10_000 } else { 40_000 };
    let addresses: Vec<Address> = (0..1_000).map(|_| random.address()).collect();
    let topic = random.word();
    for (fill, least, most) in [("3 to 10 %", 3, 10), ("30 to 50 %", 30, 50)] {
        let blooms = blooms(random, count, least, most);
        let theirs = as_alloy(&blooms);
        for (name, topics) in [("", vec![]), (" and a topic", vec![topic])] {
            let mut filter = Filter::new().address(addresses.clone());
            let mut clauses = vec![positions(&addresses)];
            if !topics.is_empty() {
                filter = filter.event_signature(topic);
                clauses.push(positions(&topics));
            }
            let query = CompiledQuery::new(clauses);
            // The first call caches the filter's blooms.
            let plain = || {
                let indexed = theirs.iter().enumerate();
                let found = indexed.filter(|(_, bloom)| filter.matches_bloom(**bloom));
                found.map(|(i, _)| i).collect::<Vec<_>>()
            };
            let expected = plain();
            println!(
                "# 1,000 addresses{name}, {fill} full: {} of {count} are candidates{}",
                expected.len(),
                if expected.len() * 10 > count * 9 { ": the query selects nothing" } else { "" },
            );
            for backend in Backend::available() {
                let scanner = Scanner::ordered_by_on(backend, &query, &blooms);
                assert_eq!(candidates_on(backend, &query, &blooms), expected);
                assert_eq!(scanner.candidates(&blooms), expected);
                report.ratio(
                    &format!(
                        "1,000 addresses{name}, {fill} full, per filter, {backend:?} vs alloy's Filter"
                    ),
                    count,
                    || candidates_on(backend, &query, &blooms),
                    plain,
                );
            }
        }
        if least == 3 {
            turning(report, &blooms, &addresses);
        }
    }
}

/// Measures numbers of values around which one scan engine takes over from the other. From 100
/// values on, every backend transposes the blooms, and the values then cost little in comparison.
fn turning(report: &mut Report, blooms: &[[u8; 256]], addresses: &[Address]) {
    for values in [2, 10, 100] {
        let query = CompiledQuery::new(vec![positions(&addresses[..values])]);
        for backend in Backend::available() {
            report.figure(
                &format!("{values} addresses, 3 to 10 % full, per filter, {backend:?}"),
                blooms.len(),
                || candidates_on(backend, &query, blooms),
            );
        }
    }
}
