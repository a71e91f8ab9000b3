//! Caching at the second request: most items that are requested once are never requested again, and
//! need not push anything out of a cache.
//!
//! `cargo run --example second_request`
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "small counts, drawn and shown as shares"
)]

use std::collections::{HashMap, HashSet, VecDeque};
use std::error::Error;

use chainsieve_filter::rolling::RollingBloomFilter;
use chainsieve_filter::{Filter, Insert, KeyHasher};

const REQUESTS: u64 = 400_000;
const ROOM: usize = 2_000; // transactions that fit into the cache
const REMEMBERED: u64 = 20_000; // requests during which a first one is remembered

/// A cache that evicts the oldest entry first.
#[derive(Default)]
struct Cache {
    kept: HashSet<u64>,
    order: VecDeque<u64>,
    writes: u64,
    hits: u64,
}

impl Cache {
    fn request(&mut self, id: u64, admit: impl FnOnce() -> bool) {
        if self.kept.contains(&id) {
            self.hits += 1;
        } else if admit() {
            self.writes += 1;
            self.kept.insert(id);
            self.order.push_back(id);
            if self.order.len() > ROOM {
                self.order.pop_front().map(|oldest| self.kept.remove(&oldest));
            }
        }
    }
}

/// Returns the transaction of an explorer's request number `number`. One request in two is for a
/// transaction that nobody requests again. The others are for one of 20,000, the popular ones far
/// more often.
fn requested(number: u64) -> u64 {
    let draw = |what| KeyHasher::xxh3(what).hash::<u64>(&number.to_le_bytes());
    if draw(1) % 2 == 0 {
        return 1 << 40 | number;
    }
    let uniform = (draw(2) >> 11) as f64 / (1_u64 << 53) as f64;
    (uniform.powi(5) * 20_000.0) as u64
}

fn main() -> Result<(), Box<dyn Error>> {
    // Strangers choose what they request. Outside of an example, let `RollingBloomFilter::new` draw
    // a key.
    let hasher = KeyHasher::siphash_1_3([1, 2]);
    let mut door = RollingBloomFilter::with_fpr(REMEMBERED, 0.001, hasher)?;
    let (mut every, mut second) = (Cache::default(), Cache::default());
    // The exact doorkeeper: the number of the last request for each transaction.
    let (mut last, mut early, mut late) = (HashMap::new(), 0, 0);
    for number in 0..REQUESTS {
        let id = requested(number);
        every.request(id, || true);
        let is_new = door.insert(&id.to_le_bytes())?;
        second.request(id, || !is_new);
        let age = last.insert(id, number).map(|before| number - before);
        assert!(!is_new || age.is_none_or(|age| age > REMEMBERED), "the last are remembered");
        early += u64::from(!is_new && age.is_none());
        late += u64::from(age.is_none());
    }
    let share = |hits: u64| 100.0 * hits as f64 / REQUESTS as f64;
    println!("each stored: {} writes, {:.1} % hits", every.writes, share(every.hits));
    println!("at the second request: {} writes, {:.1} % hits", second.writes, share(second.hits));
    println!("{early} of {late} first requests mistaken for second requests");
    println!("doorkeeper {} bytes, {} requests remembered", door.num_bits() / 8, door.len());
    Ok(())
}
