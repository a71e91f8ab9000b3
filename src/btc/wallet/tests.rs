//! Tests of the watch and of keychains. `tests/filter_audit` compares scans of blocks with a plain
//! walk over the chain, and `bip37::session` tests sessions.

use bitcoin::absolute::LockTime;
use bitcoin::hashes::Hash as _;
use bitcoin::script::Builder;
use bitcoin::transaction::Version;
use bitcoin::{
    Amount, OutPoint, PublicKey, ScriptBuf, Sequence, Transaction, TxIn, TxOut, Txid, WPubkeyHash,
    Witness,
};

use super::{History, Label, Spent, WatchedItems};

fn script(byte: u8) -> ScriptBuf {
    ScriptBuf::new_p2wpkh(&WPubkeyHash::from_byte_array([byte; 20]))
}

fn label(index: u32) -> Label {
    Label { keychain: 0, index }
}

fn tx(spends: &[(OutPoint, ScriptBuf)], pays: &[ScriptBuf]) -> Transaction {
    let input = |(previous_output, script_sig): &(OutPoint, ScriptBuf)| TxIn {
        previous_output: *previous_output,
        script_sig: script_sig.clone(),
        sequence: Sequence::MAX,
        witness: Witness::new(),
    };
    let output = |(sats, script): (u64, &ScriptBuf)| TxOut {
        value: Amount::from_sat(sats),
        script_pubkey: script.clone(),
    };
    Transaction {
        version: Version::TWO,
        lock_time: LockTime::ZERO,
        input: spends.iter().map(input).collect(),
        output: (1..).zip(pays).map(output).collect(),
    }
}

fn coin(byte: u8) -> OutPoint {
    OutPoint::new(Txid::from_byte_array([byte; 32]), 0)
}

/// Passes `tx` to the watch as a transaction of the block at `height`.
fn confirm(watch: &mut WatchedItems, tx: &Transaction, height: u32) -> usize {
    let relevance = watch.relevance(tx);
    watch.learn(tx.compute_txid(), &relevance, Some(height))
}

#[test]
fn a_removed_script_leaves_the_others_their_indices() {
    let mut watch = WatchedItems::new();
    for byte in 0..4 {
        let index = watch.add_script(script(byte), Some(label(byte.into())), History::Complete);
        assert_eq!(index, usize::from(byte));
    }
    let pays = tx(&[], &[script(1), script(2)]);
    confirm(&mut watch, &pays, 5);
    watch.learn_unconfirmed(coin(9).txid, &watch.relevance(&tx(&[], &[script(1)])));
    watch.add_outpoint(coin(1), Some(script(1)));
    watch.remove_scripts([1, 1, 17]);
    assert_eq!((watch.num_scripts(), watch.index_of(&script(1))), (3, None));
    assert!(watch.script(1).is_none());
    assert_eq!(watch.scripts().map(|(index, _)| index).collect::<Vec<_>>(), [0, 2, 3]);
    let relevance = watch.relevance(&pays);
    assert_eq!(
        relevance.received.iter().map(|it| (it.vout, it.script)).collect::<Vec<_>>(),
        [(1, 2)]
    );
    // The coins of the removed script are removed too. The coins of other scripts remain.
    let outputs: Vec<_> = watch.outputs().map(|(outpoint, _)| outpoint.vout).collect();
    assert_eq!(outputs, [1]);
    let spends = tx(&[(coin(1), ScriptBuf::new()), (coin(9), ScriptBuf::new())], &[]);
    assert!(watch.relevance(&spends).is_empty());
    // A removed script that is added again gets a new index.
    assert_eq!(watch.add_script(script(1), None, History::Complete), 4);
    assert_eq!(watch.add_script(script(2), Some(label(7)), History::Complete), 2);
    assert_eq!(watch.script(2).and_then(|script| script.label), Some(label(7)));
}

/// An input that contains the key is an uncertain spend, until the key is removed.
#[test]
fn a_key_and_its_scripts() {
    let key: PublicKey =
        "0279be667ef9dcbbac55a06295ce870b07029bfcdb2dce28d959f2815b16f81798".parse().unwrap();
    let scripts = [
        ScriptBuf::new_p2pkh(&key.pubkey_hash()),
        ScriptBuf::new_p2pk(&key),
        ScriptBuf::new_p2wpkh(&key.wpubkey_hash().unwrap()),
    ];
    let mut watch = WatchedItems::new();
    watch.add_script(script(9), None, History::Complete);
    assert_eq!(watch.add_key(&key, Some(label(3)), History::Complete), [1, 2, 3]);
    assert_eq!(watch.keys().collect::<Vec<_>>(), [&key]);
    let received = watch.relevance(&tx(&[], &scripts)).received;
    let found: Vec<_> = received.iter().map(|it| (it.script, it.label)).collect();
    assert_eq!(found, [(1, Some(label(3))), (2, Some(label(3))), (3, Some(label(3)))]);
    let shows = Builder::new().push_slice([1; 71]).push_key(&key).into_script();
    let spends = tx(&[(coin(4), shows)], &[]);
    let spent = Spent { vin: 0, outpoint: coin(4), script: Some(1), certain: false };
    assert_eq!(watch.relevance(&spends).spent, [spent]);
    watch.add_outpoint(coin(4), None);
    let certain = Spent { script: None, certain: true, ..spent };
    assert_eq!(watch.relevance(&spends).spent, [certain]);
    watch.remove_outpoint(&coin(4));
    watch.remove_scripts([1]);
    assert!(watch.relevance(&spends).is_empty());
    assert_eq!(watch.keys().count(), 0);
}

/// The number of found outputs is limited. Outputs added by the caller count towards the limit but
/// are always kept.
#[test]
fn outputs_are_bounded() {
    let mut watch = WatchedItems::with_output_limit(2);
    watch.add_script(script(0), None, History::Complete);
    watch.add_outpoint(coin(1), None);
    let three = tx(&[], &[script(0), script(0), script(0)]);
    assert_eq!(confirm(&mut watch, &three, 1), 2);
    // An output that is kept already is not counted again.
    assert_eq!(confirm(&mut watch, &three, 1), 2);
    watch.add_outpoint(coin(2), None);
    assert_eq!(watch.outputs().len(), 3);
    // The last 1,000 unconfirmed outputs are remembered.
    let txid = |number: u32| Txid::hash(&number.to_le_bytes());
    let pays = watch.relevance(&tx(&[], &[script(0)]));
    for number in 0..1_001 {
        watch.learn_unconfirmed(txid(number), &pays);
    }
    let is_known = |number| {
        let outpoint = OutPoint::new(txid(number), 0);
        !watch.relevance(&tx(&[(outpoint, ScriptBuf::new())], &[])).is_empty()
    };
    assert_eq!([0, 1, 1_000].map(is_known), [false, true, true]);
}

/// After a reorganisation, either the outputs are removed, or only their heights are removed.
#[test]
fn outputs_of_blocks_that_left_the_chain() {
    let mut watch = WatchedItems::new();
    watch.add_script(script(0), None, History::Complete);
    let (low, high) = (tx(&[], &[script(0)]), tx(&[(coin(7), ScriptBuf::new())], &[script(0)]));
    let [low_coin, high_coin] = [&low, &high].map(|tx| OutPoint::new(tx.compute_txid(), 0));
    let spend = tx(&[(low_coin, ScriptBuf::new())], &[]);
    for (tx, height) in [(&low, 5), (&high, 6), (&spend, 6)] {
        assert_eq!(confirm(&mut watch, tx, height), 0);
    }
    let heights = |watch: &WatchedItems, coin| watch.output(&coin).map(|it| (it.created, it.spent));
    assert_eq!(heights(&watch, low_coin), Some((Some(5), Some(6))));
    let mut rewound = watch.clone();
    rewound.rewind(5);
    assert_eq!(heights(&rewound, low_coin), Some((Some(5), None)));
    assert_eq!(heights(&rewound, high_coin), None);
    watch.unconfirm_from(6);
    assert_eq!(heights(&watch, low_coin), Some((Some(5), None)));
    assert_eq!(heights(&watch, high_coin), Some((None, None)));
    // The coin of a transaction whose block has left the chain has no height.
    let relevance = watch.relevance(&high);
    assert_eq!(watch.learn(high.compute_txid(), &relevance, None), 0);
    assert_eq!(heights(&watch, high_coin), Some((None, None)));
    assert_eq!(watch.output(&high_coin).and_then(|it| it.value), Some(Amount::from_sat(1)));
}

#[cfg(feature = "descriptors")]
mod keychains {
    use bitcoin::{Address, Network, ScriptBuf};

    use crate::btc::descriptors::{DescriptorError, DescriptorScript, descriptor_scripts};
    use crate::btc::wallet::{Keychains, Label, LookAhead};

    /// The test wallet of BIP84.
    const XPUB: &str = "xpub6CatWdiZiodmUeTDp8LT5or8nmbKNcuyvz7WyksVFkKB4RHwCD3XyuvPEbvqAQY3rAPshWcMLoP2fMFMKHPJ4ZeZXYVUhLv1VMrjPC7PW6V";

    fn indices(scripts: &[DescriptorScript]) -> Vec<u32> {
        scripts.iter().filter_map(|script| script.index).collect()
    }

    fn keychains(look_ahead: LookAhead) -> Keychains {
        let mut keychains = Keychains::new(look_ahead);
        let range = 0..=4;
        let descriptor = format!("wpkh({XPUB}/0/*)");
        let (number, scripts) = keychains.add(&descriptor, range.clone(), 3).unwrap();
        assert_eq!((number, indices(&scripts)), (0, range.collect()));
        keychains
    }

    fn used(index: u32) -> Label {
        Label { keychain: 0, index }
    }

    /// The addresses in BIP84: the first two receiving addresses and the first change address.
    #[test]
    fn the_scripts_of_bip84() {
        let mut keychains = Keychains::new(LookAhead::Sliding);
        let descriptor = format!("wpkh({XPUB}/<0;1>/*)");
        let (_, scripts) = keychains.add(&descriptor, 0..=1, 3).unwrap();
        let at = |path, index| {
            let is_it =
                |it: &&DescriptorScript| it.path == path && it.label(0) == Some(used(index));
            let script = &scripts.iter().find(is_it).unwrap().script;
            Address::from_script(script, Network::Bitcoin).unwrap().to_string()
        };
        assert_eq!(at(0, 0), "bc1qcr8te4kr609gcawutmrza0j4xv80jy8z306fyu");
        assert_eq!(at(0, 1), "bc1qnjg0jd8228aq7egyzacy8cys3knf9xvrerkf9g");
        assert_eq!(at(1, 0), "bc1q8c6fshw2dlwun7ekn9qwf37cu2rn755upcp6el");
        assert_eq!(scripts.len(), 4);
    }

    /// Five indices always follow the used index, as many as in the initial range.
    #[test]
    fn a_sliding_window() {
        let mut keychains = keychains(LookAhead::Sliding);
        assert_eq!(indices(&keychains.advance(used(0)).unwrap()), [5]);
        assert_eq!(keychains.advance(used(0)), Ok(vec![]));
        assert_eq!(indices(&keychains.advance(used(4)).unwrap()), [6, 7, 8, 9]);
        assert_eq!(keychains.advance(used(2)), Ok(vec![]));
        assert_eq!(keychains.next_indices(), [10]);
    }

    /// Nothing is derived while at least three indices follow the used index, since the gap is 3.
    /// Otherwise, indices are derived until six follow the used index.
    #[test]
    fn steps() {
        let mut keychains = keychains(LookAhead::InSteps);
        assert_eq!(keychains.advance(used(0)), Ok(vec![]));
        assert_eq!(keychains.advance(used(1)), Ok(vec![]));
        assert_eq!(indices(&keychains.advance(used(2)).unwrap()), [5, 6, 7, 8]);
        assert_eq!(keychains.advance(used(5)), Ok(vec![]));
        assert_eq!(keychains.next_indices(), [9]);
        // This keychain is unknown.
        assert_eq!(keychains.advance(Label { keychain: 1, index: 0 }), Ok(vec![]));
    }

    #[test]
    fn resumed_at_its_indices() {
        let mut keychains = keychains(LookAhead::InSteps);
        assert_eq!(indices(&keychains.extend_to(0, 8).unwrap()), [5, 6, 7]);
        assert_eq!(keychains.extend_to(0, 2), Ok(vec![]));
        assert_eq!(keychains.extend_to(1, 20), Ok(vec![]));
        assert_eq!(keychains.next_indices(), [8]);
    }

    #[test]
    fn a_descriptor_without_a_wildcard_never_advances() {
        let descriptor = format!("wpkh({XPUB}/0/1)");
        let mut keychains = Keychains::new(LookAhead::Sliding);
        let (_, scripts) = keychains.add(&descriptor, 3..=9, 5).unwrap();
        let script = ScriptBuf::from_hex("00149c90f934ea51fa0f6504177043e0908da6929983").unwrap();
        assert_eq!(scripts, [DescriptorScript { path: 0, index: None, script }]);
        assert_eq!(scripts[0].label(0), None);
        assert_eq!(keychains.advance(used(0)), Ok(vec![]));
        assert_eq!(keychains.extend_to(0, 50), Ok(vec![]));
    }

    #[test]
    fn the_last_index_is_the_end() {
        let descriptor = format!("wpkh({XPUB}/0/*)");
        let last = (1 << 31) - 1;
        let mut keychains = Keychains::new(LookAhead::Sliding);
        let error = keychains.add(&descriptor, 0..=last + 1, 3).unwrap_err();
        assert_eq!(error, DescriptorError::IndexTooLarge(last + 1));
        let malformed = keychains.add("wpkh(02)", 0..=0, 3);
        assert!(matches!(malformed, Err(DescriptorError::Malformed(_))));
        assert!(keychains.next_indices().is_empty());
        keychains.add(&descriptor, last - 2..=last - 1, 3).unwrap();
        let scripts = keychains.advance(used(last - 1)).unwrap();
        assert_eq!(indices(&scripts), [last]);
        assert_eq!(
            scripts[0].script,
            descriptor_scripts(&descriptor, last..=last).unwrap()[0].script
        );
        assert_eq!(keychains.advance(used(u32::MAX)), Ok(vec![]));
        assert_eq!(keychains.extend_to(0, u32::MAX), Ok(vec![]));
    }
}
