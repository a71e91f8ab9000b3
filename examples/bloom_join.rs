//! A Bloom join: from a remote table of transfers, only the rows are shipped that a watch set may
//! want.
//!
//! `cargo run --example bloom_join`

use std::collections::HashSet;
use std::error::Error;

use chainsieve_filter::split_block::SplitBlockFilter512;
use chainsieve_filter::split_block::SplitBlockFilter512Ref;
use chainsieve_filter::{Filter, Insert, KeyHasher, Portable};

/// Number of accounts in the remote table, of its rows, and of watched accounts.
const ACCOUNTS: u64 = 50_000;
const ROWS: u64 = 200_000;
const WATCHED: u64 = 1_000;

type Account = [u8; 20];

/// A row of the remote table.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Transfer {
    from: Account,
    to: Account,
    amount: u64,
}

/// Size of a row: two accounts and an amount.
const ROW_BYTES: usize = 20 + 20 + 8;

fn account(number: u64) -> Account {
    let hash = KeyHasher::xxh3(3).hash::<u128>(&number.to_le_bytes());
    let mut account = [0; 20];
    account[..16].copy_from_slice(&hash.to_le_bytes());
    account[16..].copy_from_slice(&number.to_be_bytes()[4..]);
    account
}

fn main() -> Result<(), Box<dyn Error>> {
    // The remote side: 200,000 transfers among 50,000 accounts.
    let draw = |row: u64, what| KeyHasher::xxh3(what).hash::<u64>(&row.to_le_bytes());
    let table = (0..ROWS).map(|row| {
        let (from, to) = (draw(row, 1) % ACCOUNTS, draw(row, 2) % ACCOUNTS);
        Transfer { from: account(from), to: account(to), amount: draw(row, 3) }
    });
    let table: Vec<_> = table.collect();

    // The local side: 1,000 watched accounts. The local side ships a filter of these accounts, with
    // a false positive rate of 0.1 %. Anyone who has the filter can query it for any account, so
    // ship it only to those who may know the watch set.
    let watched: HashSet<Account> = (0..WATCHED).map(|number| account(number * 50)).collect();
    let mut filter = SplitBlockFilter512::with_fpr(WATCHED, 0.001, KeyHasher::siphash_1_3([1, 2]))?;
    for account in &watched {
        filter.insert(account)?;
    }
    let shipped = filter.encode()?;

    // The remote side again: hash a column at once, and query the filter in a batch.
    let filter = SplitBlockFilter512Ref::view(&shipped)?;
    let mut hashes = Vec::new();
    filter.hasher().hash_each(table.iter().map(|row| row.to.as_slice()), &mut hashes);
    let mut may_be_watched = vec![false; table.len()];
    filter.contains_batch(&hashes, &mut may_be_watched);
    let rows = table.iter().zip(&may_be_watched).filter(|(_, may_be)| **may_be);
    let rows: Vec<Transfer> = rows.map(|(row, _)| row.clone()).collect();

    // The local side: the exact join of the received rows.
    let received = rows.len();
    let joined: Vec<_> = rows.into_iter().filter(|row| watched.contains(&row.to)).collect();
    let exact: Vec<_> = table.iter().filter(|row| watched.contains(&row.to)).cloned().collect();
    assert_eq!(joined, exact, "the join of the whole table");

    println!("{} rows in the table, {received} shipped, {} joined", table.len(), joined.len());
    let (before, rows) = (table.len() * ROW_BYTES, received * ROW_BYTES);
    println!("bytes: {before} before, {} with a filter of {}", rows + shipped.len(), shipped.len());
    // If the watch set itself were shipped, at 20 bytes an account, only the rows of the join would
    // be returned.
    let plain = joined.len() * ROW_BYTES + watched.len() * size_of::<Account>();
    println!("with the accounts instead of a filter: {plain}");
    println!("false positives among the rows: {}", received - joined.len());
    Ok(())
}
