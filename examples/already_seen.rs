//! "Already seen" for each of many users, in memory that does not grow: no notice is shown twice
//! within the last 200.
//!
//! `cargo run --example already_seen`

use std::collections::VecDeque;
use std::error::Error;

use chainsieve_filter::rolling::RollingBloomFilter;
use chainsieve_filter::{Filter, Insert, KeyHasher};

const USERS: u64 = 200;
/// Number of a user's last notices among which none is repeated.
const REMEMBERED: u64 = 200;
/// Largest number of notices that a filter may remember.
const MOST: u64 = REMEMBERED * 3 / 2;
/// Number of notices sent to each user.
const NOTICES: u64 = 1_500;

/// Returns the transaction of a user's notice number `number`. Most are new. One in three is one of
/// the hundred before, as retries and reorganisations repeat it.
fn transaction(user: u64, number: u64) -> [u8; 32] {
    let bytes = |user: u64, number: u64| [user.to_le_bytes(), number.to_le_bytes()].concat();
    let draw = KeyHasher::xxh3(9).hash::<u64>(&bytes(user, number));
    let about =
        if draw.is_multiple_of(3) { number.saturating_sub(draw / 3 % 100 + 1) } else { number };
    let half = |seed| KeyHasher::xxh3(seed).hash::<u128>(&bytes(user, about)).to_le_bytes();
    let mut txid = [0; 32];
    txid.as_chunks_mut::<16>().0.copy_from_slice(&[half(1), half(2)]);
    txid
}

fn main() -> Result<(), Box<dyn Error>> {
    // One key for all users is enough. Outside of an example, draw it at random.
    let hasher = KeyHasher::siphash_1_3([1, 2]);
    let mut users = Vec::new();
    for _ in 0..USERS {
        // The filter, and the exact alternative: the last notices themselves.
        let filter = RollingBloomFilter::with_fpr(REMEMBERED, 0.001, hasher)?;
        users.push((filter, VecDeque::new()));
    }
    let (mut shown, mut held_back, mut wrongly) = (0_u64, 0_u64, 0_u64);
    for number in 0..NOTICES {
        for (user, (filter, last)) in (0..).zip(&mut users) {
            let txid = transaction(user, number);
            let is_new = filter.insert(&txid)?;
            let promised = last.iter().rev().take(usize::try_from(REMEMBERED)?);
            assert!(!is_new || !promised.into_iter().any(|seen| *seen == txid), "shown twice");
            shown += u64::from(is_new);
            held_back += u64::from(!is_new);
            wrongly += u64::from(!is_new && !last.contains(&txid));
            last.push_back(txid);
            if last.len() as u64 > MOST {
                last.pop_front();
            }
        }
    }
    println!("{USERS} users, {NOTICES} notices each: {shown} shown, {held_back} held back");
    println!("none shown twice within {REMEMBERED}; {wrongly} new ones held back");
    let bits: u64 = users.iter().map(|(filter, _)| filter.num_bits()).sum();
    println!("{} bytes a user, {} for the ids", bits / 8 / USERS, 32 * REMEMBERED);
    Ok(())
}
