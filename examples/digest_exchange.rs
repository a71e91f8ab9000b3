//! Two nodes exchange digests of their transactions, and send only those that the other one lacks.
//!
//! `cargo run --example digest_exchange`

use std::collections::BTreeSet;
use std::error::Error;

use chainsieve_filter::fuse::{BinaryFuse8, BinaryFuse8Ref};
use chainsieve_filter::{Filter, KeyHasher, Portable};

type Txid = [u8; 32];

/// Number of transactions that both nodes have, and number that only one of them has.
const SHARED: u64 = 38_000;
const OWN: u64 = 2_000;

fn txid(number: u64) -> Txid {
    let half = |seed| KeyHasher::xxh3(seed).hash::<u128>(&number.to_le_bytes()).to_le_bytes();
    let mut txid = [0; 32];
    txid.as_chunks_mut::<16>().0.copy_from_slice(&[half(1), half(2)]);
    txid
}

/// Returns a digest of all transactions of a node, of about nine bits for each.
fn digest(set: &BTreeSet<Txid>, round: u64) -> Result<Vec<u8>, Box<dyn Error>> {
    // Use another seed in every round, so that a false positive is not repeated.
    let keys = set.iter().map(<[u8; 32]>::as_slice);
    Ok(BinaryFuse8::build_from_keys(keys, KeyHasher::xxh3(round))?.encode()?)
}

/// Returns the transactions that the digest's owner certainly lacks.
fn lacking(set: &BTreeSet<Txid>, digest: &[u8]) -> Result<Vec<Txid>, Box<dyn Error>> {
    let theirs = BinaryFuse8Ref::view(digest)?;
    Ok(set.iter().filter(|txid| !theirs.contains(&txid[..])).copied().collect())
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut ours: BTreeSet<Txid> = (0..SHARED + OWN).map(txid).collect();
    let mut theirs: BTreeSet<Txid> = (OWN..SHARED + 2 * OWN).map(txid).collect();
    let union: BTreeSet<Txid> = ours.union(&theirs).copied().collect();
    println!("{} transactions here, {} there, {} in all", ours.len(), theirs.len(), union.len());
    // Without digests, each node would send the ids of all its transactions.
    let inventory = (ours.len() + theirs.len()) * 32;

    let mut on_the_wire = 0;
    for round in 1.. {
        let (our_digest, their_digest) = (digest(&ours, round)?, digest(&theirs, round)?);
        on_the_wire += our_digest.len() + their_digest.len();
        let to_send = lacking(&ours, &their_digest)?;
        let to_get = lacking(&theirs, &our_digest)?;
        // Nothing is sent that the other node has, because a "no" is certain.
        assert!(to_send.iter().all(|txid| !theirs.contains(txid)));
        assert!(to_get.iter().all(|txid| !ours.contains(txid)));
        let moved = to_send.len() + to_get.len();
        theirs.extend(to_send);
        ours.extend(to_get);
        // False positives, one in 256, leave transactions out until the next round.
        let left_out = 2 * union.len() - ours.len() - theirs.len();
        println!("round {round}: {moved} transactions moved, {left_out} left out");
        if moved == 0 || left_out == 0 {
            break;
        }
    }
    assert!(ours == union && theirs == union, "both have all");
    println!("ids on the wire: {inventory} bytes plainly, {on_the_wire} in digests");
    Ok(())
}
