//! Proofs that a filter is invalid: anyone can verify them, no changed proof verifies, and decoding
//! untrusted bytes is safe.

use std::collections::{BTreeMap, BTreeSet};

use chainsieve::bitcoin::hashes::Hash as _;
use chainsieve::bitcoin::{BlockHash, Network, Transaction, Witness};
use chainsieve::btc::bip158::audit::{
    FilterEvidence, InvalidFilter, Prevouts, ProofError, Refutation, Verdict, audit,
};

use crate::built::every_kind;
use crate::cases::{Case, corpus, fixtures, spends};
use testkit::Rng;

fn proof_of(case: &Case, filter: &[u8], prevouts: Prevouts<'_>) -> InvalidFilter {
    let verdict = audit(&case.bind(), filter, prevouts);
    let Verdict::Invalid(Refutation::Proof(proof)) = verdict else { panic!("{verdict}") };
    assert_eq!(proof.filter, filter);
    assert_eq!(proof.block_hash, case.block.block_hash());
    *proof
}

/// Returns the filter without one element.
fn lacking(case: &Case, element: &[u8]) -> Vec<u8> {
    let mut elements = case.elements();
    assert!(elements.remove(element));
    case.filter_of(&elements)
}

/// Returns one proof of each kind, for a built block whose scripts are all different.
fn one_of_each() -> (Case, Vec<(&'static str, InvalidFilter)>) {
    let case = every_kind(4, false);
    let output = &case.block.txdata[7].output[0].script_pubkey;
    let coinbase = &case.block.txdata[0].output[0].script_pubkey;
    let spent = |wanted: usize| {
        let (.., input) = spends(&case.block).nth(wanted).expect("an input");
        case.prevouts[&input.previous_output].as_bytes()
    };
    let wrapped = spends(&case.block)
        .position(|(.., input)| !input.script_sig.is_empty() && !input.witness.is_empty())
        .expect("one of them");
    let chained = every_kind(4, true);
    assert_eq!(chained.block.txdata.len(), case.block.txdata.len());
    let mut more = case.elements();
    more.insert(vec![0x51; 3]);
    let shown = Prevouts::ByTransactions(&case.previous);
    let proofs = vec![
        ("malformed", proof_of(&case, &[1], Prevouts::None)),
        ("output", proof_of(&case, &lacking(&case, output.as_bytes()), Prevouts::None)),
        ("coinbase output", proof_of(&case, &lacking(&case, coinbase.as_bytes()), Prevouts::None)),
        ("previous transaction", proof_of(&case, &lacking(&case, spent(0)), shown)),
        ("wrapped", proof_of(&case, &lacking(&case, spent(wrapped)), Prevouts::None)),
        ("unequal", proof_of(&case, &case.filter_of(&more), shown)),
    ];
    (case, proofs)
}

#[test]
fn proofs_of_each_kind_verify() {
    let (case, proofs) = one_of_each();
    let hash = case.block.block_hash();
    for (name, proof) in &proofs {
        assert_eq!(proof.verify(hash, Network::Regtest), Ok(()), "{name}");
        let bytes = proof.encode();
        assert_eq!(InvalidFilter::decode(&bytes).as_ref(), Ok(proof), "{name}");
        println!(
            "{name}: {} bytes, filter {}; {}",
            bytes.len(),
            proof.filter.len(),
            proof.evidence
        );
        // The proof does not verify against the honest filter.
        let honest = InvalidFilter { filter: case.filter.clone(), ..proof.clone() };
        assert!(honest.verify(hash, Network::Regtest).is_err(), "{name}");
        // The proof does not verify for another block or network.
        let other = every_kind(8, true).block.block_hash();
        let error = proof.verify(other, Network::Regtest);
        assert!(matches!(error, Err(ProofError::OtherBlock { .. })), "{name}");
        if *name != "malformed" {
            assert!(proof.verify(hash, Network::Bitcoin).is_err(), "{name}");
            let moved = InvalidFilter { block_hash: other, ..proof.clone() };
            assert!(moved.verify(other, Network::Regtest).is_err(), "{name}");
        }
    }
}

/// Changes every bit of every proof: the changed proof does not decode or does not verify. The
/// bytes of the filter are excluded, because a proof with other filter bytes concerns another
/// filter.
#[test]
fn no_bit_can_be_changed() {
    let (case, proofs) = one_of_each();
    let hash = case.block.block_hash();
    for (name, proof) in &proofs {
        let bytes = proof.encode();
        let filter = 34..35 + proof.filter.len();
        assert_eq!(bytes[filter.clone()][1..], proof.filter, "{name}");
        let [mut refused, mut read] = [0, 0];
        for at in (0..bytes.len()).filter(|at| !filter.contains(at)) {
            for bit in 0..8 {
                let mut changed = bytes.clone();
                changed[at] ^= 1 << bit;
                let Ok(changed) = InvalidFilter::decode(&changed) else {
                    refused += 1;
                    continue;
                };
                read += 1;
                let verified = changed.verify(hash, Network::Regtest);
                assert!(verified.is_err(), "{name}: bit {bit} of byte {at}");
            }
        }
        println!("{name}: {refused} refused, {read} read");
        assert!(read > 0, "{name}");
    }
}

/// Changes that flipping a bit does not reach: optional fields and lists.
#[test]
fn no_field_can_be_changed() {
    let (case, proofs) = one_of_each();
    let hash = case.block.block_hash();
    let check =
        |name: &str, proof: &InvalidFilter| proof.verify(hash, Network::Regtest).expect_err(name);
    let shown: BTreeMap<_, _> = proofs.iter().map(|(name, proof)| (*name, proof)).collect();
    for (name, proof) in &proofs {
        let mut proof = proof.clone();
        let (FilterEvidence::MissingOutput { transaction: shown, .. }
        | FilterEvidence::MissingPrevout { spending: shown, .. }
        | FilterEvidence::MissingWrapped { spending: shown, .. }) = &mut proof.evidence
        else {
            continue;
        };
        let honest = shown.clone();
        shown.coinbase.path.siblings.pop();
        check(name, &proof);
        let (FilterEvidence::MissingOutput { transaction: shown, .. }
        | FilterEvidence::MissingPrevout { spending: shown, .. }
        | FilterEvidence::MissingWrapped { spending: shown, .. }) = &mut proof.evidence
        else {
            continue;
        };
        *shown = honest.clone();
        shown.other = match honest.other {
            Some(_) => None,
            None => Some(honest.coinbase),
        };
        check(name, &proof);
    }

    // A proof may not contain a witness that nothing commits to.
    let mut proof = shown["output"].clone();
    let FilterEvidence::MissingOutput { transaction, .. } = &mut proof.evidence else { panic!() };
    transaction.coinbase.transaction.input[0].witness = Witness::from_slice(&[[1]]);
    assert!(matches!(check("witness", &proof), ProofError::UnprovenWitness(_)));

    let mut proof = shown["wrapped"].clone();
    let FilterEvidence::MissingWrapped { spending, .. } = &mut proof.evidence else { panic!() };
    let other = spending.other.as_mut().expect("not the coinbase");
    other.transaction.input[0].witness.push([1]);
    assert_eq!(check("wrapped", &proof), ProofError::WitnessCommitment);

    // A proof has exactly the previous transactions that it needs, in order and each once. The
    // transaction with the empty script is needed here, because the extra element could be its
    // script.
    for change in 0..4 {
        let mut proof = shown["unequal"].clone();
        let FilterEvidence::Unequal { previous, .. } = &mut proof.evidence else { panic!() };
        assert!(previous.is_sorted_by_key(Transaction::compute_txid));
        match change {
            0 => previous.retain(|tx| !tx.output[1].script_pubkey.is_empty()),
            1 => previous.swap(0, 1),
            2 => previous.insert(0, previous[0].clone()),
            _ => previous.push(case.block.txdata[1].clone()),
        }
        match (change, check("unequal", &proof)) {
            (0, ProofError::Consistent)
            | (1 | 2, ProofError::PreviousNotNeeded)
            | (3, ProofError::UnprovenWitness(_) | ProofError::PreviousNotNeeded) => {}
            (_, error) => panic!("{change}: {error}"),
        }
    }
}

/// No proof verifies against an honest filter, whatever element its evidence is about.
#[test]
fn honest_filters_are_met_by_no_proof() {
    let case = every_kind(6, true);
    let hash = case.block.block_hash();
    let mut met = 0;
    for element in case.elements() {
        let shown = Prevouts::ByTransactions(&case.previous);
        let mut proof = proof_of(&case, &lacking(&case, &element), shown);
        proof.verify(hash, Network::Regtest).expect("a proof");
        proof.filter.clone_from(&case.filter);
        assert_eq!(proof.verify(hash, Network::Regtest), Err(ProofError::NotMissing));
        met += 1;
    }
    assert!(met > 20, "{met}");
    // OP_RETURN and empty scripts are no elements, so their absence from a filter proves nothing.
    let mut proof = proof_of(&case, &case.filter_of(&BTreeSet::new()), Prevouts::None);
    for at in 1..3 {
        let FilterEvidence::MissingOutput { vout, .. } = &mut proof.evidence else { panic!() };
        *vout = at;
        let error = proof.verify(hash, Network::Regtest).expect_err("no element");
        let no = matches!(error, ProofError::NotAnElement | ProofError::NoOutput(_));
        assert!(no, "{error}");
    }
    let Case { filter, .. } = case;
    let proof = InvalidFilter { block_hash: hash, filter, evidence: FilterEvidence::Malformed };
    assert_eq!(proof.verify(hash, Network::Regtest), Err(ProofError::WellFormed));
}

/// Filters that no encoder produces are malformed, even where Bitcoin Core's reader accepts them.
#[test]
fn what_no_encoder_makes_is_malformed() {
    for case in fixtures() {
        let mut filters = vec![vec![], vec![0, 0], [&case.filter[..], &[0]].concat()];
        filters.push(case.filter[..case.filter.len() - 1].to_vec());
        let mut last_bit = case.filter.clone();
        *last_bit.last_mut().expect("not empty") |= 1;
        if last_bit != case.filter {
            filters.push(last_bit);
        }
        for filter in filters {
            let proof = proof_of(&case, &filter, Prevouts::None);
            assert_eq!(proof.verify(case.block.block_hash(), case.network), Ok(()));
            let small = proof.encode().len() - filter.len();
            if proof.evidence == FilterEvidence::Malformed {
                assert!(small < 40, "{small}");
            }
        }
    }
}

/// A proof about a real block takes less than 4,000 bytes in addition to the filter.
#[test]
fn proofs_are_small() {
    let Some(cases) = corpus() else { return };
    let case = cases.iter().find(|case| case.name.ends_with("866342")).expect("the block");
    let (index, _, input) = spends(&case.block)
        .find(|(.., input)| !input.script_sig.is_empty() && !input.witness.is_empty())
        .expect("a wrapped one");
    let small = case
        .block
        .txdata
        .iter()
        .skip(2_000)
        .find(|tx| tx.base_size() < 300 && tx.output[0].script_pubkey.is_p2wpkh());
    let elements = [
        ("output", &small.expect("one of them").output[0].script_pubkey),
        ("wrapped", &case.prevouts[&input.previous_output]),
    ];
    for (name, element) in elements {
        let proof = proof_of(case, &lacking(case, element.as_bytes()), Prevouts::None);
        assert_eq!(proof.verify(case.block.block_hash(), case.network), Ok(()));
        let size = proof.encode().len() - proof.filter.len();
        println!("{name}: {size} bytes and the filter's {}", proof.filter.len());
        assert!(size < 4_000, "{name}: {size}");
    }
    assert!(index > 0);
}

#[test]
fn hostile_bytes() {
    let (_, proofs) = one_of_each();
    let mut rng = Rng::new(1);
    let mut errors = BTreeSet::new();
    for (name, proof) in &proofs {
        let bytes = proof.encode();
        for end in 0..bytes.len() {
            assert!(InvalidFilter::decode(&bytes[..end]).is_err(), "{name}: cut at {end}");
        }
        let longer = [&bytes[..], &[0]].concat();
        assert_eq!(InvalidFilter::decode(&longer), Err(ProofError::TrailingBytes(1)));
        for at in 0..bytes.len() {
            for byte in [0, 0xfd, 0xfe, 0xff, rng.array::<1>()[0]] {
                let mut changed = bytes.clone();
                changed[at] = byte;
                match InvalidFilter::decode(&changed) {
                    Ok(proof) => assert_eq!(proof.encode(), changed, "{name}: byte {at}"),
                    Err(error) => {
                        let name = format!("{error:?}");
                        errors.insert(name.split(['(', ' ']).next().map(str::to_owned));
                    }
                }
            }
        }
    }
    println!("{errors:?}");
    assert!(errors.len() >= 7, "{errors:?}");
    // Lengths that exceed the remaining bytes.
    let head = [&[1, 0][..], BlockHash::all_zeros().as_byte_array()].concat();
    for length in [&[0xfe, 0, 0, 0, 2][..], &[0xff; 9], &[0xfd, 0xff, 0xff]] {
        assert!(InvalidFilter::decode(&[&head, length].concat()).is_err());
    }
    let head = [&[1, 4][..], BlockHash::all_zeros().as_byte_array(), &[0]].concat();
    let block = [&[0xfd, 89, 0][..], &[0; 80], &[0xff; 9]].concat();
    assert!(InvalidFilter::decode(&[head, block].concat()).is_err());
}
