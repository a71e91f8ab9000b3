//! Assertions of the fuzz targets for compact filters; each function takes arbitrary bytes.

use std::collections::HashMap;

use chainsieve::bitcoin::bip158::{BlockFilter as TheirFilter, Error};
use chainsieve::bitcoin::consensus::{deserialize_partial, serialize};
use chainsieve::bitcoin::{Block, OutPoint, ScriptBuf, Transaction, TxIn};
use chainsieve::btc::bip158::{BlockFilter, BuildError};

use crate::btc::bitcoin_sets::{Flaws, written_by_bitcoin};
use crate::btc::naive_gcs::{Coding, basic_elements};

/// Reads a coding from the first six bytes.
fn coding(data: &[u8]) -> Option<(Coding, &[u8])> {
    let ([p, key, m @ ..], rest) = data.split_first_chunk::<6>()?;
    let p = p % 33;
    // For most values of P, M is limited to the size that suits P.
    let most = if p < 28 { 16 << p } else { u32::MAX };
    let m = u32::from_le_bytes(*m).checked_rem(most).map_or(1, |m| m.max(1));
    Some((Coding { k0: u64::from(*key), k1: u64::MAX - u64::from(*key), p, m }, rest))
}

/// Splits bytes into pieces, each preceded by its length.
fn pieces(mut data: &[u8]) -> Vec<Vec<u8>> {
    let mut pieces = Vec::new();
    while let Some((length, rest)) = data.split_first() {
        let (piece, rest) = rest.split_at(rest.len().min(usize::from(*length)));
        pieces.push(piece.to_vec());
        data = rest;
    }
    pieces
}

/// Treats the bytes as a set. Reads the set by the strict rules, by Core's rules, and with the
/// `bitcoin` crate, whose known flaws are allowed. Runs three queries on the set. Returns the
/// number of values if Core accepts the set.
pub fn set_is_read_alike(data: &[u8]) -> Option<usize> {
    let (coding, bytes) = coding(data)?;
    let queries = [b"one".to_vec(), b"".to_vec(), b"a third, of more than eight bytes".to_vec()];
    let overflows = |(count, _)| count > u64::MAX / u64::from(coding.m);
    if !coding.prefix(bytes).is_ok_and(overflows) {
        Flaws::default().check(coding, bytes, &queries);
    }
    let reading = coding.check_reading(bytes).ok()?;
    let canonical = coding.encode_values(&reading.values) == bytes;
    assert_eq!(reading.is_canonical(), canonical && !reading.over_range);
    Some(reading.values.len())
}

/// Treats the bytes as elements and queries. Checks that the library encodes the elements as the
/// BIP's text and the `bitcoin` crate do, and that every element is found in the encoded set.
/// Returns the number of queries that match.
pub fn elements_come_back(data: &[u8]) -> Option<usize> {
    let (coding, rest) = coding(data)?;
    let pieces = pieces(rest);
    let (elements, strangers) = pieces.split_at(pieces.len() * 3 / 4);
    let bytes = coding.written(elements);
    assert_eq!(bytes, coding.encode(elements));
    let not_empty: Vec<_> =
        elements.iter().filter(|element| !element.is_empty()).cloned().collect();
    assert_eq!(coding.written(&not_empty), written_by_bitcoin(coding, &not_empty));
    let found = coding.check_matching(&bytes, elements);
    assert_eq!(found, Some((0..elements.len()).collect()));
    Flaws::default().check(coding, &bytes, strangers);
    coding.check_matching(&bytes, &pieces).map(|found| found.len())
}

/// Treats the bytes as a raw block, followed by scripts that it spends from other blocks. Checks
/// that the library builds the same filter of the block as the BIP's text and the `bitcoin` crate
/// do. Returns the number of elements.
pub fn block_has_its_filter(data: &[u8]) -> Option<usize> {
    let (mut block, used) = deserialize_partial::<Block>(data).ok()?;
    if !block.coinbase().is_some_and(Transaction::is_coinbase) {
        let filter = BlockFilter::new(&block, |_| Some(ScriptBuf::new()));
        assert_eq!(filter, Err(BuildError::CoinbaseMissing));
        let raw = BlockFilter::from_raw_block::<ScriptBuf>(&data[..used], &[]);
        assert_eq!(raw, Err(BuildError::CoinbaseMissing));
        block.txdata.first_mut()?.input = vec![TxIn::default()];
    }
    let mut given = pieces(&data[used..]).into_iter().map(ScriptBuf::from);
    let mut scripts: HashMap<OutPoint, ScriptBuf> = HashMap::new();
    for tx in &block.txdata {
        let txid = tx.compute_txid();
        for (output, vout) in tx.output.iter().zip(0..) {
            scripts.insert(OutPoint { txid, vout }, output.script_pubkey.clone());
        }
    }
    let inputs: Vec<_> = block.txdata.iter().skip(1).flat_map(|tx| &tx.input).collect();
    for input in &inputs {
        let script = scripts.entry(input.previous_output);
        script.or_insert_with(|| given.next().unwrap_or_default());
    }
    let spent: Vec<_> =
        inputs.iter().map(|input| scripts[&input.previous_output].clone()).collect();

    let filter = BlockFilter::new(&block, |outpoint| scripts.get(outpoint).cloned());
    assert_eq!(BlockFilter::from_raw_block(&serialize(&block), &spent), filter);
    let filter = filter.expect("all scripts are given");
    assert_eq!(BlockFilter::from_prevout_scripts(&block, &spent), Ok(filter.clone()));
    let theirs = TheirFilter::new_script_filter(&block, |outpoint| {
        scripts.get(outpoint).cloned().ok_or(Error::UtxoMissing(*outpoint))
    });
    assert_eq!(theirs.expect("all scripts are given").content, filter.content);

    let coding = Coding::basic(filter.block_hash.as_ref());
    let elements: Vec<_> = basic_elements(&block, &spent).into_iter().collect();
    assert_eq!(coding.encode(&elements), filter.content);
    let found = coding.check_matching(&filter.content, &elements);
    assert_eq!(found, Some((0..elements.len()).collect()));
    Some(elements.len())
}
