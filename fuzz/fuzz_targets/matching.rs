//! A block of made-up scripts against a made-up filter: the slow matcher and the library agree, on
//! the whole block and transaction by transaction, on every backend.
#![no_main]

use bitcoin::absolute::LockTime;
use bitcoin::hashes::Hash as _;
use bitcoin::transaction::Version;
use bitcoin::{
    Amount, OutPoint, ScriptBuf, Sequence, Transaction, TxIn, TxOut, Txid, Witness, consensus,
};
use chainsieve::btc::bip37::{BloomFilter, Elements, MatchReason};
use chainsieve::simd::Backend;
use libfuzzer_sys::fuzz_target;

use testkit::btc::slow_bip37::script::non_empty_pushes;
use testkit::btc::slow_bip37::{Reason, SlowFilter, outpoint_bytes};

/// Reads the input as parameters, and as zeros after its end.
struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn byte(&mut self) -> u8 {
        let Some((byte, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *byte
    }

    fn bytes(&mut self) -> &'a [u8] {
        let length = usize::from(self.byte()) + usize::from(self.byte() & 3) * 256;
        let (bytes, rest) = self.0.split_at(length.min(self.0.len()));
        self.0 = rest;
        bytes
    }

    fn script(&mut self) -> ScriptBuf {
        ScriptBuf::from(self.bytes().to_vec())
    }
}

fn transactions(input: &mut Input<'_>) -> Vec<Transaction> {
    let mut transactions: Vec<Transaction> = Vec::new();
    for _ in 0..=input.byte() % 12 {
        let inputs = (0..input.byte() % 4).map(|_| {
            let (which, vout) = (input.byte(), u32::from(input.byte() % 3));
            let earlier = transactions.get(usize::from(which));
            let txid =
                earlier.map_or(Txid::from_byte_array([which; 32]), Transaction::compute_txid);
            TxIn {
                previous_output: OutPoint { txid, vout },
                script_sig: input.script(),
                sequence: Sequence::MAX,
                witness: Witness::new(),
            }
        });
        let inputs = inputs.collect();
        let outputs = (0..input.byte() % 4)
            .map(|_| TxOut { value: Amount::ZERO, script_pubkey: input.script() });
        let outputs = outputs.collect();
        transactions.push(Transaction {
            version: Version::ONE,
            lock_time: LockTime::ZERO,
            input: inputs,
            output: outputs,
        });
    }
    transactions
}

/// Returns a filter of random bytes, or a filter with some of the transactions' elements.
fn filter(input: &mut Input<'_>, transactions: &[Transaction]) -> SlowFilter {
    let hash_funcs = u32::from(input.byte() % 52);
    let tweak = u32::from_le_bytes([input.byte(), input.byte(), input.byte(), input.byte()]);
    let flags = input.byte();
    let bytes = input.bytes();
    if input.byte() & 1 == 0 {
        return SlowFilter { data: bytes.to_vec(), hash_funcs, tweak, flags };
    }
    let mut filter = SlowFilter { data: vec![0; bytes.len() + 1], hash_funcs, tweak, flags };
    let mut insert = |element: &[u8]| {
        if input.byte() & 7 == 1 {
            filter.insert(element);
        }
    };
    for tx in transactions {
        insert(tx.compute_txid().as_ref());
        for output in &tx.output {
            non_empty_pushes(output.script_pubkey.as_bytes()).into_iter().for_each(&mut insert);
        }
        for txin in &tx.input {
            insert(&outpoint_bytes(&txin.previous_output));
            non_empty_pushes(txin.script_sig.as_bytes()).into_iter().for_each(&mut insert);
        }
    }
    filter
}

fn reason(reason: &MatchReason) -> Reason {
    let at = |n: u32| n as usize;
    match *reason {
        MatchReason::Everything => Reason::EmptyFilter,
        MatchReason::Txid => Reason::Txid,
        MatchReason::Output { vout, push, inserted } => {
            Reason::Output { output: at(vout), push: at(push), inserted }
        }
        MatchReason::Spent { vin } => Reason::Outpoint { input: at(vin) },
        MatchReason::InputData { vin, push } => {
            Reason::ScriptSig { input: at(vin), push: at(push) }
        }
        _ => panic!("an unknown reason: {reason:?}"),
    }
}

fuzz_target!(|bytes: &[u8]| {
    let mut input = Input(bytes);
    let transactions = transactions(&mut input);
    let mut slow = filter(&mut input, &transactions);
    let filterload = slow.payload();
    let expected: Vec<_> = transactions.iter().map(|tx| slow.match_and_update(tx)).collect();

    for backend in Backend::available() {
        let (filter, _) = BloomFilter::decode_any_size(&filterload).expect("a valid payload");
        let mut filter = filter.with_backend(backend);
        for (tx, expected) in transactions.iter().zip(&expected) {
            let found = filter.match_transaction(tx).map(|found| found.reasons).unwrap_or_default();
            let found: Vec<_> = found.iter().map(reason).collect();
            assert_eq!(found, *expected, "{}", backend.name());
        }
        assert_eq!(filter.encode(), slow.payload(), "{}", backend.name());
    }
    // Match the whole block as one batch, after a header of zeros.
    let mut raw = vec![0; 80];
    raw.push(u8::try_from(transactions.len()).expect("few"));
    for tx in &transactions {
        raw.extend(consensus::serialize(tx));
    }
    let block = chainsieve::btc::bip37::BlockElements::from_raw(&raw).expect("a valid block");
    let elements: &Elements = block.elements();
    for backend in Backend::available() {
        let (filter, _) = BloomFilter::decode_any_size(&filterload).expect("a valid payload");
        let mut filter = filter.with_backend(backend);
        let mut found = vec![Vec::new(); transactions.len()];
        for matched in filter.match_elements(elements) {
            found[matched.index as usize] = matched.reasons.iter().map(reason).collect();
        }
        assert_eq!(found, expected, "{}, whole", backend.name());
        assert_eq!(filter.encode(), slow.payload(), "{}, whole", backend.name());
    }
});
