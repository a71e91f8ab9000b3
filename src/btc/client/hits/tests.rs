//! Tests of the journal of hits. The journal is truncated at each byte, and each of its bits is
//! flipped. Other tests check which stored progress stays valid.

use bitcoin::hashes::Hash as _;
use bitcoin::{Amount, OutPoint, ScriptBuf, TxOut, absolute, transaction};

use super::super::{HitReason, InclusionEvidence, OwnedOutput, OwnedSpend, Owner};
use super::*;
use crate::btc::headers::BlockAt;
use crate::btc::records::tests::laid_out;
use crate::btc::wallet::TxPosition;
use std::vec;

/// A hit on a transaction whose output 0 pays `number` satoshis to the wallet.
pub(in super::super) fn hit(number: u32, block: Option<BlockAt>) -> Hit {
    let script_pubkey = ScriptBuf::from(std::vec![0x51]);
    let value = Amount::from_sat(number.into());
    let transaction = Transaction {
        version: transaction::Version::TWO,
        lock_time: absolute::LockTime::ZERO,
        input: Vec::new(),
        output: std::vec![TxOut { value, script_pubkey: script_pubkey.clone() }],
    };
    let owner = Owner { item: 0, path: Some(1), index: Some(7), script: Some(script_pubkey) };
    let spent = OwnedSpend { vin: 0, outpoint: OutPoint::null(), owner: None, certain: false };
    Hit {
        txid: transaction.compute_txid(),
        transaction,
        place: block.map(|block| TxPosition { block, index: 3 }),
        header: block.map(|_| bitcoin::constants::genesis_block(bitcoin::Network::Regtest).header),
        received: std::vec![OwnedOutput { vout: 0, value, owner }],
        spent: std::vec![spent],
        evidence: if block.is_some() {
            InclusionEvidence::Block
        } else {
            InclusionEvidence::Unconfirmed
        },
        why: HitReason::Matched,
        peer: Some("a peer".into()),
    }
}

fn at(height: u32) -> BlockAt {
    BlockAt { height, hash: BlockHash::hash(&height.to_le_bytes()) }
}

fn of(name: &str) -> WalletId {
    name.into()
}

/// A journal with a record of each kind that a running client writes, and the offset at which each
/// record ends.
fn journal() -> (Vec<u8>, Vec<usize>) {
    let (mut hits, mut bytes) = (Hits::default(), Vec::new());
    let mut ends = Vec::new();
    let mut step = |bytes: &mut Vec<u8>, does: &mut dyn FnMut(&mut Vec<u8>, &mut Hits)| {
        does(bytes, &mut hits);
        ends.push(bytes.len());
        assert_eq!(hits.length, bytes.len() as u64);
    };
    for (wallet, number, place) in
        [("a", 1, Some(at(1))), ("a", 2, Some(at(2))), ("b", 2, Some(at(2))), ("a", 3, None)]
    {
        step(&mut bytes, &mut |bytes, hits| {
            assert_eq!(hits.add(&of(wallet), &mut hit(number, place), 9, bytes), Novelty::New);
        });
    }
    let key = Key::of(&of("a"), &hit(1, Some(at(1))));
    step(&mut bytes, &mut |bytes, hits| hits.acknowledge(&key, bytes));
    step(&mut bytes, &mut |bytes, hits| assert_eq!(hits.roll_back(1, bytes).len(), 2));
    let key = Key::of(&of("a"), &hit(2, Some(at(2))));
    step(&mut bytes, &mut |bytes, hits| hits.acknowledge_withdrawal(&key, bytes));
    step(&mut bytes, &mut |bytes, hits| hits.forget(&of("b"), bytes));
    step(&mut bytes, &mut |bytes, hits| hits.add_item(&of("a"), item(1, 7), bytes));
    (bytes, ends)
}

/// A journal of each kind of record, laid out here by hand.
#[test]
fn the_format_is_the_documented_one() {
    let (place, found) = (at(258), hit(9, Some(at(258))));
    let mut of_hit =
        [&[1, 2, 1, 0, 0][..], place.hash.as_byte_array(), &[3, 0, 0, 0], &[1]].concat();
    of_hit.extend(bitcoin::consensus::serialize(&found.header.unwrap()));
    of_hit.extend(bitcoin::consensus::serialize(&found.transaction));
    of_hit.extend(b"\0\0\x06a peer\x01\0\0\0\0\0\0\0\x09\0\0\0\0\0\0\0");
    of_hit.extend([0, 0, 0, 0, 1, 1, 0, 0, 0, 1, 7, 0, 0, 0, 1, 1, 0x51]);
    of_hit.extend([&[1, 0, 0, 0, 0, 0, 0, 0][..], &[0; 32], &[0xff; 4], &[0, 0]].concat());
    let mut of_relayed = vec![0, 0];
    let relayed = Hit { peer: None, received: vec![], spent: vec![], ..hit(9, None) };
    of_relayed.extend(bitcoin::consensus::serialize(&relayed.transaction));
    of_relayed.extend([2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let (wallet, txid) = (Cow::<WalletId>::Owned(of("ab")), found.txid);
    let placed = Key { wallet: of("ab"), block: Some(place.hash), txid };
    let key = [&place.hash.as_byte_array()[..], txid.as_byte_array()].concat();
    let open = Key { wallet: of("ab"), block: None, txid };
    let open_key = [&[0; 32], &txid.as_byte_array()[..]].concat();
    let item = ItemRecord { key: [5; 32], from: 6, first_index: 7 };
    let records = [
        (
            Record::Hit(wallet.clone(), 300, Cow::Borrowed(&found)),
            b"\x01\x02ab\x2c\x01\0\0",
            of_hit,
        ),
        (Record::Gone(8), b"\x02\0\x08\0\0\0", vec![]),
        (Record::Acknowledged(Cow::Borrowed(&placed)), b"\x03\x02ab", key.clone()),
        (Record::Acknowledged(Cow::Borrowed(&open)), b"\x03\x02ab", open_key),
        (Record::Forgotten(wallet.clone()), b"\x04\x02ab", vec![]),
        (Record::Before(1 << 32), b"\x05\0\0\0\0\0\x01\0\0\0", vec![]),
        (Record::Withdrawn(wallet.clone(), Cow::Borrowed(&relayed)), b"\x06\x02ab", of_relayed),
        (Record::WithdrawalAcknowledged(Cow::Borrowed(&placed)), b"\x07\x02ab", key),
        (
            Record::Item(wallet, item),
            b"\x08\x02ab",
            [&[5; 32][..], &[6, 0, 0, 0, 7, 0, 0, 0]].concat(),
        ),
        (Record::Lost(8), b"\x09\0\x08\0\0\0", vec![]),
        (Record::Dropped(Cow::Borrowed(&open)), b"\x0a\x02ab", txid.as_byte_array().to_vec()),
    ] as [(_, &[u8], _); 11];
    let bodies = records.each_ref().map(|(_, head, rest)| [*head, &rest[..]].concat());
    let file = laid_out(*b"CSHJ\x02", &bodies);
    let mut written = records::start(NAME, VERSION).to_vec();
    let mut rest = &file[START_LEN..];
    for (record, ..) in &records {
        record.encode(&mut written);
        assert_eq!(Record::decode(&mut rest).as_ref(), Some(record));
    }
    assert_eq!((written, rest), (file.clone(), &[][..]));
}

fn item(key: u8, from: u32) -> ItemRecord {
    ItemRecord { key: [key; 32], from, first_index: 3 }
}

/// Replays a journal that is not damaged before its end.
fn replay(bytes: &[u8]) -> Hits {
    let (hits, is_damaged) = Hits::replay(bytes).unwrap();
    assert!(!is_damaged);
    hits
}

/// Contents of a journal: the hits with their acknowledgements, the withdrawals, and the number of
/// events.
fn says(hits: &Hits) -> (Vec<(Key, bool)>, Vec<Key>, u64) {
    let entries = hits.entries.iter().map(|(key, entry)| (key.clone(), entry.acknowledged));
    (entries.collect(), hits.withdrawn.keys().cloned().collect(), hits.events)
}

#[test]
fn a_journal_says_what_was_written() {
    let (bytes, _) = journal();
    let hits = replay(&bytes);
    assert_eq!(hits.length, bytes.len() as u64);
    let first = hit(1, Some(at(1)));
    let (open, unconfirmed) = (hits.open(&of("a")), hit(3, None));
    assert_eq!(open, (Vec::new(), std::vec![unconfirmed.clone()]));
    assert_eq!(hits.of(&of("a")).cloned().collect::<Vec<_>>(), [unconfirmed, first]);
    assert_eq!(hits.of(&of("b")).count() + hits.open(&of("b")).0.len(), 0);
    assert_eq!(hits.unconfirmed(&of("a")).count, 1);
}

#[test]
fn a_journal_that_is_cut_anywhere_keeps_its_whole_records() {
    let (bytes, ends) = journal();
    for length in 0..bytes.len() {
        let hits = replay(&bytes[..length]);
        let whole = ends.iter().copied().filter(|end| *end <= length).max();
        let expected = whole.unwrap_or(if length < START_LEN { 0 } else { START_LEN });
        assert_eq!(hits.length, expected as u64, "{length}");
        assert_eq!(says(&hits), says(&replay(&bytes[..expected])), "{length}");
    }
}

/// Damage before the last record is told. The records around it are kept.
#[test]
fn a_journal_with_any_bit_turned_keeps_the_other_records_and_says_so() {
    let (bytes, ends) = journal();
    let last = ends[ends.len() - 2];
    for place in 0..bytes.len() {
        for bit in 0..8 {
            let mut turned = bytes.clone();
            turned[place] ^= 1 << bit;
            let Ok((hits, is_damaged)) = Hits::replay(&turned) else {
                // Another version is refused.
                assert_eq!(place, NAME.len());
                continue;
            };
            assert_eq!(is_damaged, place < last, "byte {place}, bit {bit}");
            // The record that is damaged is lost, and no other.
            let lost = usize::from(place >= START_LEN);
            assert_eq!(hits.records, ends.len() - lost, "byte {place}, bit {bit}");
        }
    }
}

#[test]
fn a_rewritten_journal_says_the_same_of_hits_and_items() {
    let (bytes, ends) = journal();
    for end in ends {
        let mut hits = replay(&bytes[..end]);
        let before = says(&hits);
        let noted = hits.events;
        let rewritten = hits.rewrite(noted);
        assert_eq!(hits.length, rewritten.len() as u64);
        let again = replay(&rewritten);
        let after = says(&again);
        assert_eq!((&after.0, &after.1), (&before.0, &before.1));
        assert_eq!((again.events, again.lost_since(noted)), (hits.events, None));
        // Scan progress that was noted earlier may rely on events that the rewritten file no longer
        // contains.
        assert_eq!(again.lost_since(noted - 1), Some(1));
    }
}

/// The stored state covers an item if the item was recorded before the state was stored. Rewriting
/// the file does not change that.
#[test]
fn an_item_is_known_to_the_state_that_was_stored_after_it() {
    let (mut hits, mut bytes) = (Hits::default(), Vec::new());
    hits.add(&of("a"), &mut hit(1, Some(at(1))), 9, &mut bytes);
    hits.add_item(&of("a"), item(1, 7), &mut bytes);
    let stored = hits.events;
    hits.add(&of("a"), &mut hit(2, Some(at(2))), 9, &mut bytes);
    hits.add_item(&of("a"), item(2, 9), &mut bytes);
    let mut rewritten = replay(&bytes);
    let again = rewritten.rewrite(stored);
    for hits in [&hits, &replay(&bytes), &rewritten, &replay(&again)] {
        let known = |key: u8| hits.item_before(&of("a"), &[key; 32], stored);
        assert_eq!((known(1), known(2)), (Some(item(1, 7)), None));
        let known = |key: u8| hits.item_before(&of("a"), &[key; 32], hits.events);
        assert_eq!((known(1), known(2)), (Some(item(1, 7)), Some(item(2, 9))));
    }
    hits.forget(&of("a"), &mut bytes);
    assert_eq!(hits.items().count() + replay(&bytes).items().count(), 0);
}

#[test]
fn progress_counts_no_further_than_its_hits() {
    let (mut hits, mut bytes) = (Hits::default(), Vec::new());
    let mut last = 0;
    for height in 1..=6 {
        last = bytes.len();
        hits.add(&of("a"), &mut hit(height, Some(at(height))), 9, &mut bytes);
    }
    let noted = hits.events;
    let lost = |bytes: &[u8], noted| replay(bytes).lost_since(noted);
    assert_eq!(lost(&bytes, noted), None);
    // The whole file or its last hit was lost. Later events do not hide the loss.
    assert_eq!(lost(&[], noted), Some(0));
    let mut cut = replay(&bytes[..last]);
    cut.forget(&of("b"), &mut Vec::new());
    assert_eq!((cut.events, cut.lost_since(noted)), (noted, Some(0)));
    hits.roll_back(4, &mut bytes);
    assert_eq!((lost(&bytes, noted), lost(&bytes, hits.events)), (Some(5), None));
    hits.roll_back(2, &mut bytes);
    hits.add(&of("a"), &mut hit(30, Some(at(30))), 9, &mut bytes);
    let later = hits.events;
    hits.roll_back(20, &mut bytes);
    assert_eq!((lost(&bytes, noted), lost(&bytes, later)), (Some(3), Some(21)));
}

/// A hit is acknowledged, withdrawn and found again. A reader that has not acknowledged the
/// withdrawal gets the hit instead.
#[test]
fn a_hit_that_is_back_takes_the_place_of_its_withdrawal() {
    let (mut hits, mut bytes) = (Hits::default(), Vec::new());
    let first = hit(1, Some(at(5)));
    let key = Key::of(&of("a"), &first);
    assert_eq!(hits.add(&of("a"), &mut first.clone(), 9, &mut bytes), Novelty::New);
    hits.acknowledge(&key, &mut bytes);
    hits.roll_back(4, &mut bytes);
    assert_eq!(hits.open(&of("a")), (std::vec![first.clone()], Vec::new()));
    assert_eq!(hits.add(&of("a"), &mut first.clone(), 9, &mut bytes), Novelty::New);
    for hits in [&hits, &replay(&bytes)] {
        assert_eq!(hits.open(&of("a")), (Vec::new(), std::vec![first.clone()]));
    }
}

/// A scan that finds fewer details of a transaction than an earlier scan removes no delivered
/// details.
#[test]
fn less_is_not_news() {
    let (mut hits, mut bytes) = (Hits::default(), Vec::new());
    let mut whole = hit(1, Some(at(5)));
    let mut less = whole.clone();
    less.spent.clear();
    assert_eq!(hits.add(&of("a"), &mut less.clone(), 9, &mut bytes), Novelty::New);
    assert_eq!(hits.add(&of("a"), &mut whole.clone(), 9, &mut bytes), Novelty::More);
    assert_eq!(hits.add(&of("a"), &mut less, 9, &mut bytes), Novelty::Known);
    let mut certain = whole.clone();
    (certain.spent[0].certain, certain.received) = (true, Vec::new());
    assert_eq!(hits.add(&of("a"), &mut certain, 9, &mut bytes), Novelty::More);
    assert_eq!((certain.received, certain.spent[0].certain), (whole.received.clone(), true));
    assert_eq!(hits.add(&of("a"), &mut whole, 9, &mut bytes), Novelty::Known);
}

#[test]
fn a_confirmed_transaction_is_not_unconfirmed_again() {
    let (mut hits, mut bytes) = (Hits::default(), Vec::new());
    assert_eq!(hits.add(&of("a"), &mut hit(1, None), 9, &mut bytes), Novelty::New);
    assert_eq!(hits.add(&of("a"), &mut hit(1, Some(at(5))), 9, &mut bytes), Novelty::New);
    assert_eq!(hits.unconfirmed(&of("a")), Unconfirmed::default());
    assert_eq!(hits.add(&of("a"), &mut hit(1, None), 9, &mut bytes), Novelty::Known);
    assert_eq!(hits.add(&of("b"), &mut hit(1, None), 9, &mut bytes), Novelty::New);
    hits.roll_back(4, &mut bytes);
    assert_eq!(hits.add(&of("a"), &mut hit(1, None), 9, &mut bytes), Novelty::New);
}

#[test]
fn an_unconfirmed_hit_ends_with_a_conflict_or_with_time() {
    let spending = |number: u32, outpoint: OutPoint| {
        let mut hit = hit(number, None);
        let input = bitcoin::TxIn { previous_output: outpoint, ..bitcoin::TxIn::default() };
        hit.transaction.input.push(input);
        hit.txid = hit.transaction.compute_txid();
        hit
    };
    let coin = |vout| OutPoint { txid: Txid::from_byte_array([9; 32]), vout };
    let (mut hits, mut bytes) = (Hits::default(), Vec::new());
    for (wallet, number, vout, found_at) in [("a", 1, 1, 100), ("b", 2, 2, 100), ("a", 3, 3, 200)] {
        hits.add(&of(wallet), &mut spending(number, coin(vout)), found_at, &mut bytes);
    }
    // Another transaction spends the second coin.
    let other = spending(7, coin(2)).transaction;
    let gone = |gone: Vec<(Key, Hit)>| -> Vec<_> {
        gone.into_iter().map(|(key, hit)| (key.wallet, hit.received[0].value.to_sat())).collect()
    };
    let unrelated = [spending(8, coin(8)).transaction];
    assert_eq!(hits.withdraw_unconfirmed(&unrelated, 2_115, &mut bytes), []);
    let conflict = hits.withdraw_unconfirmed(&[other], 2_115, &mut bytes);
    assert_eq!(gone(conflict), [(of("b"), 2)]);
    // The first hit is two weeks old, the third is not.
    assert_eq!(gone(hits.withdraw_unconfirmed(&[], 2_116, &mut bytes)), [(of("a"), 1)]);
    for hits in [&hits, &replay(&bytes)] {
        assert_eq!(hits.unconfirmed(&of("a")).count, 1);
        assert_eq!(hits.unconfirmed(&of("b")), Unconfirmed::default());
        assert_eq!((hits.open(&of("a")).0.len(), hits.open(&of("b")).0.len()), (1, 1));
    }
}
