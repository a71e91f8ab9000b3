//! Small made blocks, each of which shows one rule of Bitcoin Core's matching.

use bitcoin::absolute::LockTime;
use bitcoin::blockdata::transaction::Version;
use bitcoin::consensus::encode::serialize;
use bitcoin::hashes::Hash as _;
use bitcoin::{Amount, Block, OutPoint, ScriptBuf, Sequence, Transaction, TxIn, TxOut, Witness};
use serde_json::json;

use crate::bloom::Filter;
use crate::match_area::made_block;
use crate::match_rules::{expect, is_quirk};
use crate::pack::{Case, Expect, QUIRK};

const NONE: u8 = 0;
const ALL: u8 = 1;
const P2PUBKEY_ONLY: u8 = 2;

fn script(hex: &str) -> ScriptBuf {
    ScriptBuf::from_hex(hex).expect("hex")
}

/// A transaction that spends an output that exists nowhere.
fn transaction(outputs: &[&str]) -> Transaction {
    let spent = OutPoint { txid: bitcoin::Txid::from_byte_array([0x77; 32]), vout: 1 };
    Transaction {
        version: Version::TWO,
        lock_time: LockTime::ZERO,
        input: vec![spending(spent)],
        output: outputs
            .iter()
            .map(|hex| TxOut { value: Amount::from_sat(1_000), script_pubkey: script(hex) })
            .collect(),
    }
}

fn spending(previous_output: OutPoint) -> TxIn {
    TxIn {
        previous_output,
        script_sig: ScriptBuf::new(),
        sequence: Sequence::MAX,
        witness: Witness::new(),
    }
}

/// The spend of an output of a transaction.
fn spend(of: &Transaction, vout: u32) -> Transaction {
    let mut spend = transaction(&["51"]);
    spend.input[0].previous_output = OutPoint { txid: of.compute_txid(), vout };
    spend
}

/// A filter of 64 bytes with some elements: false positives are rare, and the assertions of Core's
/// rules below are made with it.
fn filter(flags: u8, elements: &[&[u8]]) -> Filter {
    let mut filter = Filter { data: vec![0; 64], hash_funcs: 11, tweak: 5, flags };
    for element in elements {
        filter.insert(element);
    }
    filter
}

const AS_READ: &str = "Bitcoin Core 28.1, CBloomFilter::IsRelevantAndUpdate, as read";
const BOTH: &str = "Bitcoin Core 28.1, CBloomFilter::IsRelevantAndUpdate, as read; the text of BIP37 for `bip-text`";

struct Trap {
    name: &'static str,
    comment: &'static str,
    flags: Vec<&'static str>,
    filter: Filter,
    transactions: Vec<Transaction>,
    matched: &'static [usize],
    /// Outputs that the filter takes in.
    inserted: Vec<OutPoint>,
}

impl Trap {
    fn case(self) -> Case {
        let mut after = self.filter.clone();
        for outpoint in &self.inserted {
            after.insert(&serialize(outpoint));
        }
        let block: Block = made_block(self.transactions);
        let expect = expect(&self.filter, &block, self.matched, Some(&after.payload()));
        let differs = matches!(expect, Expect::AnyOf(_));
        let input =
            json!({ "filter": self.filter.payload(), "block": hex::encode(serialize(&block)) });
        let case = Case::new(self.comment, input, expect)
            .named(self.name)
            .source(if differs { BOTH } else { AS_READ })
            .flag_if(is_quirk(&self.filter), QUIRK)
            .flag_if(differs, "IdAndOutput");
        self.flags.into_iter().fold(case, Case::flag)
    }
}

fn outpoint(of: &Transaction, vout: u32) -> OutPoint {
    OutPoint { txid: of.compute_txid(), vout }
}

pub(crate) fn cases() -> Vec<Case> {
    let key = format!("02{}", "3c".repeat(32));
    let other_key = format!("03{}", "4d".repeat(32));
    let bare_key = format!("21{key}ac");
    let odd_key = format!("05{}", "3c".repeat(32));
    let bare_odd_key = format!("21{odd_key}ac");
    let multisig = format!("5121{key}51ae");
    let two_keys = format!("5121{key}21{other_key}52ae");
    let hash = "5a".repeat(20);
    let p2pkh = format!("76a914{hash}88ac");
    let p2wpkh = format!("0014{hash}");
    let bytes = |hex: &str| hex::decode(hex).expect("hex");
    // One push for each output, of lengths around those that a reader may treat in groups.
    let lengths = [60, 75, 76, 100, 127, 128, 131, 132, 136, 255, 520];
    let pushes = lengths.map(|length| vec![u8::try_from(length % 251).expect("a byte"); length]);
    let outputs = pushes.clone().map(|push| match push.len() {
        length @ ..=75 => format!("{length:02x}{}", hex::encode(push)),
        length @ ..=255 => format!("4c{length:02x}{}", hex::encode(push)),
        length => format!(
            "4d{:04x}{}",
            u16::try_from(length).expect("small").swap_bytes(),
            hex::encode(push)
        ),
    });
    let to_long_pushes = transaction(&outputs.each_ref().map(String::as_str));
    let long_pushes = pushes.each_ref().map(Vec::as_slice);
    let mut of_long_pushes = Filter { data: vec![0; 512], ..filter(ALL, &[]) };
    for push in long_pushes {
        of_long_pushes.insert(push);
    }
    let long_outpoints = (0..11).map(|vout| outpoint(&to_long_pushes, vout)).collect();
    let (key, odd_key, hash) = (bytes(&key), bytes(&odd_key), bytes(&hash));
    let other_key = bytes(&other_key);
    let to_two_keys = transaction(&["51", &two_keys]);
    let pays = transaction(&[&p2pkh]);
    let txid = pays.compute_txid().to_byte_array();
    let mut display = txid;
    display.reverse();
    let both = transaction(&["51", &p2pkh]);
    let spent = serialize(&pays.input[0].previous_output);
    let mut with_witness = transaction(&["51"]);
    with_witness.input[0].witness.push(&key);
    let mut with_signature = transaction(&["51"]);
    with_signature.input[0].script_sig = script(&format!("03aabbcc21{}", hex::encode(&key)));
    let mut with_empty_pushes = transaction(&["51"]);
    with_empty_pushes.input[0].script_sig = script("004c004d00004e00000000");
    let mut with_small_numbers = transaction(&["51"]);
    with_small_numbers.input[0].script_sig = script("4f5160");
    let mut nested = transaction(&["51"]);
    nested.input[0].script_sig = script(&format!("160014{}", hex::encode(&hash)));
    let mut coinbase = transaction(&["51"]);
    coinbase.input[0] = spending(OutPoint::null());
    coinbase.input[0].script_sig = script("0401020304");
    let trap = |name, comment, filter, transactions: &[&Transaction], matched, inserted| Trap {
        name,
        comment,
        flags: Vec::new(),
        filter,
        transactions: transactions.iter().map(|tx| (*tx).clone()).collect(),
        matched,
        inserted,
    };
    let flagged = |flag, trap: Trap| Trap { flags: [vec![flag], trap.flags].concat(), ..trap };
    let to_bare_key = transaction(&[&bare_key]);
    let to_odd_key = transaction(&[&bare_odd_key]);
    let to_multisig = transaction(&[&multisig]);
    let empty = Filter { data: Vec::new(), hash_funcs: 5, tweak: 1, flags: ALL };
    let no_functions = Filter { hash_funcs: 0, ..filter(NONE, &[]) };
    let full = Filter { data: vec![0xff; 8], hash_funcs: 3, tweak: 1, flags: NONE };
    let traps = vec![
        flagged(
            "NoData",
            trap(
                "no-data",
                "no data: everything matches, nothing is taken in",
                empty,
                &[&pays],
                &[0],
                vec![],
            ),
        ),
        flagged(
            "NoFunctions",
            trap(
                "no-functions",
                "no hash functions: everything matches",
                no_functions,
                &[&pays],
                &[0],
                vec![],
            ),
        ),
        flagged(
            "Full",
            trap("all-ones", "all bits are set: everything matches", full, &[&pays], &[0], vec![]),
        ),
        trap(
            "long-pushes",
            "outputs with a push of 60 to 520 bytes: each is looked at as a whole",
            of_long_pushes,
            &[&to_long_pushes],
            &[0],
            long_outpoints,
        ),
        trap(
            "two-keys-of-an-output",
            "two keys of one output match: the outpoint is taken in once",
            filter(ALL, &[&key, &other_key]),
            &[&to_two_keys],
            &[0],
            vec![outpoint(&to_two_keys, 1)],
        ),
        trap(
            "nothing",
            "an empty filter that has bits: not the same as one without data",
            filter(ALL, &[]),
            &[&pays],
            &[],
            vec![],
        ),
        trap(
            "txid",
            "the transaction id, in wire order",
            filter(ALL, &[&txid]),
            &[&pays],
            &[0],
            vec![],
        ),
        trap(
            "txid-in-display-order",
            "the transaction id in display order is another element",
            filter(ALL, &[&display]),
            &[&pays],
            &[],
            vec![],
        ),
        trap(
            "txid-and-output",
            "the id matches: Core tests the outputs all the same and takes the outpoint in, the text of BIP37 ends here",
            filter(ALL, &[&txid, &hash]),
            &[&pays],
            &[0],
            vec![outpoint(&pays, 0)],
        ),
        trap(
            "output",
            "a key hash at the second output: the outpoint has its index",
            filter(ALL, &[&hash]),
            &[&both],
            &[0],
            vec![outpoint(&both, 1)],
        ),
        trap(
            "output-without-update",
            "flags 0: nothing is taken in",
            filter(NONE, &[&hash]),
            &[&both],
            &[0],
            vec![],
        ),
        trap(
            "witness-program",
            "the program of P2WPKH is data like any other",
            filter(ALL, &[&hash]),
            &[&transaction(&[&p2wpkh])],
            &[0],
            vec![outpoint(&transaction(&[&p2wpkh]), 0)],
        ),
        trap(
            "whole-script",
            "the script as a whole is no element",
            filter(ALL, &[&bytes(&p2pkh)]),
            &[&pays],
            &[],
            vec![],
        ),
        trap(
            "op-return",
            "data after OP_RETURN is tested: it is how some protocols mark payments",
            filter(ALL, &[&[0xca, 0xfe]]),
            &[&transaction(&["6a02cafe"])],
            &[0],
            vec![outpoint(&transaction(&["6a02cafe"]), 0)],
        ),
        trap(
            "before-a-malformed-push",
            "a push before a malformed one counts: readers that refuse such scripts miss a payment",
            filter(NONE, &[&[0xaa]]),
            &[&transaction(&["01aa02bb"])],
            &[0],
            vec![],
        ),
        trap(
            "malformed-push",
            "the bytes of a malformed push are no element",
            filter(NONE, &[&[0xbb]]),
            &[&transaction(&["01aa02bb"])],
            &[],
            vec![],
        ),
        trap(
            "empty-push",
            "an empty push is no element",
            filter(NONE, &[&[]]),
            &[&transaction(&["00"])],
            &[],
            vec![],
        ),
        trap(
            "small-number",
            "OP_1 is no push of 01",
            filter(NONE, &[&[1]]),
            &[&transaction(&["51"])],
            &[],
            vec![],
        ),
        flagged(
            "PublicKeyOnly",
            trap(
                "key-only-p2pkh",
                "flags 2: a key hash is no key",
                filter(P2PUBKEY_ONLY, &[&hash]),
                &[&pays],
                &[0],
                vec![],
            ),
        ),
        flagged(
            "PublicKeyOnly",
            trap(
                "key-only-bare-key",
                "flags 2: a bare key is why this mode exists",
                filter(P2PUBKEY_ONLY, &[&key]),
                &[&to_bare_key],
                &[0],
                vec![outpoint(&to_bare_key, 0)],
            ),
        ),
        flagged(
            "PublicKeyOnly",
            trap(
                "key-only-odd-key",
                "flags 2: 33 bytes that do not begin with 02 or 03 are no key",
                filter(P2PUBKEY_ONLY, &[&odd_key]),
                &[&to_odd_key],
                &[0],
                vec![],
            ),
        ),
        flagged(
            "PublicKeyOnly",
            trap(
                "key-only-multisig",
                "flags 2: bare multisig counts as keys",
                filter(P2PUBKEY_ONLY, &[&key]),
                &[&to_multisig],
                &[0],
                vec![outpoint(&to_multisig, 0)],
            ),
        ),
        flagged(
            "ReservedFlags",
            trap(
                "flags-3",
                "flags 3: nothing is taken in, and it is not refused",
                filter(3, &[&hash]),
                &[&pays],
                &[0],
                vec![],
            ),
        ),
        flagged(
            "ReservedFlags",
            trap(
                "flags-0x81",
                "flags 0x81 are 1: only two bits count",
                filter(0x81, &[&hash]),
                &[&pays],
                &[0],
                vec![outpoint(&pays, 0)],
            ),
        ),
        flagged(
            "ReservedFlags",
            flagged(
                "PublicKeyOnly",
                trap(
                    "flags-0x82",
                    "flags 0x82 are 2: only two bits count",
                    filter(0x82, &[&hash]),
                    &[&pays],
                    &[0],
                    vec![],
                ),
            ),
        ),
        flagged(
            "ReservedFlags",
            trap(
                "flags-4",
                "flags 4 are 0: only two bits count",
                filter(4, &[&hash]),
                &[&pays],
                &[0],
                vec![],
            ),
        ),
        flagged(
            "InsertedOutpoint",
            trap(
                "spend-in-the-block",
                "a spend of an output that has just been taken in: the reason for updates",
                filter(ALL, &[&hash]),
                &[&pays, &spend(&pays, 0)],
                &[0, 1],
                vec![outpoint(&pays, 0)],
            ),
        ),
        trap(
            "spend-before-the-payment",
            "a spend that comes before its payment: the filter did not know",
            filter(ALL, &[&hash]),
            &[&spend(&pays, 0), &pays],
            &[1],
            vec![outpoint(&pays, 0)],
        ),
        trap(
            "spend-of-another-output",
            "a spend of another output of the same transaction: only the matching one is taken in",
            filter(ALL, &[&hash]),
            &[&both, &spend(&both, 0)],
            &[0],
            vec![outpoint(&both, 1)],
        ),
        trap(
            "outpoint",
            "a spent outpoint: id, then index in 4 bytes, little-endian",
            filter(ALL, &[&spent]),
            &[&pays],
            &[0],
            vec![],
        ),
        trap(
            "signature-script",
            "a push of the input's script; nothing is taken in for inputs",
            filter(ALL, &[&key]),
            &[&with_signature],
            &[0],
            vec![],
        ),
        trap(
            "signature-script-empty-pushes",
            "empty pushes of an input's script are no elements: most inputs would match",
            filter(ALL, &[&[]]),
            &[&with_empty_pushes],
            &[],
            vec![],
        ),
        trap(
            "signature-script-small-numbers",
            "OP_1NEGATE, OP_1 and OP_16 in an input's script push no data that is tested",
            filter(ALL, &[&[0x81], &[1], &[16]]),
            &[&with_small_numbers],
            &[],
            vec![],
        ),
        trap(
            "empty-pushdata1",
            "OP_PUSHDATA1 of 0 bytes is no element either",
            filter(NONE, &[&[]]),
            &[&transaction(&["4c00"])],
            &[],
            vec![],
        ),
        trap(
            "witness",
            "witnesses are never tested",
            filter(ALL, &[&key]),
            &[&with_witness],
            &[],
            vec![],
        ),
        trap(
            "nested-program",
            "P2SH-P2WPKH: the input pushes the program with its two bytes before it, so the key hash alone does not match",
            filter(ALL, &[&hash]),
            &[&nested],
            &[],
            vec![],
        ),
        trap(
            "coinbase-script",
            "the script of a coinbase is tested, too",
            filter(ALL, &[&[1, 2, 3, 4]]),
            &[&coinbase],
            &[0],
            vec![],
        ),
        trap(
            "coinbase-outpoint",
            "so is the outpoint of a coinbase",
            filter(ALL, &[&serialize(&OutPoint::null())]),
            &[&coinbase],
            &[0],
            vec![],
        ),
    ];
    traps.into_iter().map(Trap::case).collect()
}
