//! Audits whether a filter is the filter of its block, and builds a proof for others if it is not.
//!
//! Filter headers are not part of consensus, so a block does not commit to its filter. The block
//! still reveals most elements of the filter, because the block contains the scripts of its
//! outputs. For the outputs that the block spends, the block contains only the outpoints, not the
//! scripts. The table shows the verdict if an element is missing:
//!
//! | element of the filter | known from | verdict if it is missing |
//! |---|---|---|
//! | script of an output | the block | [`Invalid`](Verdict::Invalid) |
//! | spent script, created in the same block | the block | `Invalid` |
//! | spent script, witness program in P2SH | the block, with its witnesses | `Invalid` |
//! | spent script, previous transaction given | [`Prevouts::ByTransactions`] | `Invalid` |
//! | spent script, given by a trusted source | [`Prevouts::Trusted`] | `Invalid`, no proof for others |
//! | spent script, hash or key revealed by the input | a guess | [`Suspicious`](Verdict::Suspicious) |
//! | any other spent script | nothing | [`Undecidable`](Verdict::Undecidable) |
//!
//! The number of elements is bounded too. The lower bound is the number of distinct known scripts.
//! The upper bound adds one for each input whose script is unknown. A filter outside these bounds
//! is `Invalid`, so the number of extra elements in a filter is at most the number of inputs whose
//! script is unknown. If all scripts are known, the filter is computed from them, and only
//! identical bytes are [`Valid`](Verdict::Valid).
//!
//! # What a proof assumes
//! A proof assumes that the block is in the chain. The proof shows the header's proof of work, and
//! the verifier passes the block hash that it expects. For the spent output of a witness program in
//! P2SH, the proof also assumes that the block is valid by segwit's rules. No proof can be made
//! against an honest node's filter.

mod inclusion;
mod known;
mod proof;

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

use bitcoin::{OutPoint, ScriptBuf, Transaction, TxIn, Witness};

pub use inclusion::ProvenTransaction;
pub use proof::{FilterEvidence, InvalidFilter, ProofError};

use self::known::{
    KnownInput, Script, Sources, distinct, is_consistent, known_inputs, output_elements,
};
use super::revealed::any_candidate;
use super::{Acceptance, BoundBlock, DecodedFilter, GcsFilter, GcsParams, filter_key};
use crate::btc::names::names;
use crate::btc::script::{is_well_formed, ops};

/// The caller's knowledge of the outputs that a block spends. The value is neither `Send` nor
/// `Sync`, since it may borrow a function.
#[derive(Clone, Copy, Default)]
#[non_exhaustive]
pub enum Prevouts<'a> {
    /// The caller knows nothing about the spent outputs.
    #[default]
    None,
    /// The scripts of the spent outputs, from a trusted source: the caller's own node, or undo
    /// data. The function returns `None` for an unknown script.
    Trusted(&'a dyn Fn(&OutPoint) -> Option<ScriptBuf>),
    /// The transactions that created the spent outputs, in any order. Some transactions may be
    /// missing, and superfluous transactions are ignored. No trust is needed: the ids of the
    /// transactions are checked.
    ByTransactions(&'a [Transaction]),
}

impl fmt::Debug for Prevouts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("None"),
            Self::Trusted(_) => f.write_str("Trusted(..)"),
            Self::ByTransactions(transactions) => {
                f.debug_tuple("ByTransactions").field(&transactions.len()).finish()
            }
        }
    }
}

/// The result of an audit.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(tag = "verdict", rename_all = "snake_case")
)]
pub enum Verdict {
    /// The bytes are exactly the block's filter.
    #[cfg_attr(feature = "serde", serde(with = "crate::btc::json::basis"))]
    Valid(Basis),
    /// The bytes are certainly not the block's filter.
    Invalid(Refutation),
    /// Nothing proves the filter wrong, but it lacks a script that an input seems to spend. An
    /// honest node's filter can get this verdict too.
    Suspicious {
        /// The inputs for which the filter contains none of the guessed scripts: position of the
        /// transaction in the block, and position of the input in the transaction.
        #[cfg_attr(feature = "serde", serde(with = "crate::btc::json::inputs"))]
        inputs: Vec<(u32, u32)>,
        /// The facts that are missing for a verdict.
        unknown: Unknown,
    },
    /// Nothing contradicts the filter, and too little is known to decide.
    Undecidable(Unknown),
}

/// The data that shows a filter to be valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Basis {
    /// Scripts of spent outputs from a trusted source.
    Trusted,
    /// The data is the block alone, or the block and transactions whose ids are in the inputs of
    /// the block. Everyone who has the same data gets the same verdict.
    Transactions,
}

names! { Basis, "a basis": Trusted = "trusted", Transactions = "transactions" }

/// Reason why a filter is not the block's filter.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(tag = "refutation", rename_all = "snake_case")
)]
pub enum Refutation {
    /// The reason comes with a proof that anyone can verify.
    #[cfg_attr(feature = "serde", serde(with = "crate::btc::json::proof"))]
    Proof(Box<InvalidFilter>),
    /// The filter lacks the trusted script of this spent output. There is no proof for others.
    #[cfg_attr(feature = "serde", serde(with = "crate::btc::json::outpoint"))]
    TrustedMissing(OutPoint),
    /// The filter's elements differ from those of the block and the trusted scripts. There is no
    /// proof for others.
    TrustedUnequal,
}

impl Refutation {
    /// Returns the proof for others, if there is one.
    pub fn proof(&self) -> Option<&InvalidFilter> {
        match self {
            Self::Proof(proof) => Some(proof),
            Self::TrustedMissing(_) | Self::TrustedUnequal => None,
        }
    }
}

/// The facts that are missing for a verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Unknown {
    /// The number of inputs that spend outputs of unknown script: the outputs that
    /// [`unknown_prevouts`] returns.
    pub inputs: usize,
    /// The number of inputs of unknown script for which a guessed script is in the filter.
    pub guessed: usize,
    /// The number of elements that no known script explains, not counting guesses. There is at most
    /// one such element for each input of unknown script.
    pub elements: usize,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Valid(Basis::Trusted) => f.write_str("valid, by scripts from a trusted source"),
            Self::Valid(Basis::Transactions) => f.write_str("valid"),
            Self::Invalid(Refutation::Proof(proof)) => write!(f, "invalid: {}", proof.evidence),
            Self::Invalid(Refutation::TrustedMissing(outpoint)) => {
                write!(f, "invalid: the trusted script of {outpoint} is missing")
            }
            Self::Invalid(Refutation::TrustedUnequal) => {
                f.write_str("invalid: the elements differ from the block and the trusted scripts")
            }
            Self::Suspicious { inputs, unknown } => {
                let count = inputs.len();
                write!(
                    f,
                    "suspicious: the scripts that {count} inputs seem to spend are missing; "
                )?;
                unknown.fmt(f)
            }
            Self::Undecidable(unknown) => write!(f, "undecidable: {unknown}"),
        }
    }
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { inputs, guessed, elements } = self;
        write!(
            f,
            "inputs that spend an unknown script: {inputs} (for {guessed} of them, the filter has a guessed \
             script); elements of the filter that match no known script: {elements}"
        )
    }
}

/// Audits whether `filter` is the filter of `block`.
///
/// The filter is decoded strictly. The block's filter has exactly one encoding, so bytes that only
/// Bitcoin Core's decoder accepts, such as nonzero padding, are invalid.
///
/// # Cost
/// Hashes the elements; for a proof, also computes a merkle path.
///
/// # Examples
/// ```
/// use chainsieve::bitcoin::{Block, BlockHash, Network, OutPoint, ScriptBuf};
/// use chainsieve::btc::bip158::audit::{Prevouts, Refutation, Verdict, audit};
/// use chainsieve::btc::bip158::{BindError, BoundBlock};
/// /// Audits a filter with a block from a peer; `expected` is from the header chain.
/// fn judge(block: &Block, expected: BlockHash, filter: &[u8]) -> Result<bool, BindError> {
///     let block = BoundBlock::bind(block, expected, Network::Bitcoin)?;
///     Ok(match audit(&block, filter, Prevouts::None) {
///         // Anyone can verify this proof, without trusting the sender.
///         Verdict::Invalid(Refutation::Proof(proof)) => {
///             proof.verify(expected, Network::Bitcoin).expect("true for everyone");
///             false
///         }
///         Verdict::Invalid(_) => false,
///         Verdict::Valid(_) | Verdict::Suspicious { .. } | Verdict::Undecidable(_) => true,
///     })
/// }
/// ```
pub fn audit(block: &BoundBlock<'_>, filter: &[u8], prevouts: Prevouts<'_>) -> Verdict {
    Audit::new(block, filter, prevouts).verdict()
}

/// Returns the outputs that `block` spends and whose scripts are unknown, in the order of the
/// inputs. With the transactions that created these outputs, the audit can decide.
///
/// # Cost
/// One look-up for each input.
pub fn unknown_prevouts(block: &BoundBlock<'_>, prevouts: Prevouts<'_>) -> Vec<OutPoint> {
    let inputs = known_inputs(block, &Sources::new(block, prevouts));
    let unknown = inputs.iter().filter(|input| !input.script.is_known());
    unknown.map(|input| input.outpoint).collect()
}

struct Audit<'a> {
    block: &'a BoundBlock<'a>,
    filter: &'a [u8],
    sources: Sources<'a>,
}

impl<'a> Audit<'a> {
    fn new(block: &'a BoundBlock<'a>, filter: &'a [u8], prevouts: Prevouts<'a>) -> Self {
        Self { block, filter, sources: Sources::new(block, prevouts) }
    }

    fn verdict(&self) -> Verdict {
        // A verifier can repeat strict decoding, so malformed bytes are evidence by themselves.
        let Ok((set, decoded)) = read(&self.block.block_hash(), self.filter) else {
            return self.proven(FilterEvidence::Malformed);
        };
        let inputs = known_inputs(self.block, &self.sources);
        let missing = |script: &[u8]| !script.is_empty() && !decoded.may_contain(script);
        // Proven elements come first: their absence can be shown to others, with a small proof.
        if let Some(evidence) = self.missing_output(&decoded).or_else(|| {
            let mut proven = inputs.iter().filter(|input| input.script.is_proven());
            let input = proven.find(|input| missing(input.script.bytes()))?;
            Some(self.missing_prevout(input))
        }) {
            return self.proven(evidence);
        }
        // This check uses no trusted scripts, so that the result can be proven to others.
        if !is_consistent(self.block, &set, self.filter, &inputs, false) {
            return self.proven(self.unequal(&set, &inputs));
        }
        // The checks from here on use trusted scripts, so they give no proof for others.
        if let Some(input) = inputs.iter().find(|input| missing(input.script.bytes())) {
            return Verdict::Invalid(Refutation::TrustedMissing(input.outpoint));
        }
        let on_trust = inputs.iter().any(|input| input.script.is_trusted());
        if on_trust && !is_consistent(self.block, &set, self.filter, &inputs, true) {
            return Verdict::Invalid(Refutation::TrustedUnequal);
        }
        // If a spent script is unknown, the filter cannot be computed, and the script can only be
        // guessed.
        if inputs.iter().any(|input| !input.script.is_known()) {
            return verdict_by_guesses(self.block, &set, &decoded, &inputs);
        }
        Verdict::Valid(if on_trust { Basis::Trusted } else { Basis::Transactions })
    }

    /// Returns evidence for the first output whose script is missing.
    fn missing_output(&self, decoded: &DecodedFilter) -> Option<FilterEvidence> {
        (0_u32..).zip(&self.block.block().txdata).find_map(|(index, tx)| {
            let mut outputs = (0_u32..).zip(output_elements(tx));
            let (vout, _) = outputs
                .find(|(_, script)| script.is_some_and(|script| !decoded.may_contain(script)))?;
            let transaction = ProvenTransaction::without_witness(self.block, index);
            Some(FilterEvidence::MissingOutput { transaction, vout })
        })
    }

    fn missing_prevout(&self, input: &KnownInput<'_>) -> FilterEvidence {
        let &KnownInput { index, vin, .. } = input;
        if let Script::Of(previous, _) = input.script {
            let spending = ProvenTransaction::without_witness(self.block, index);
            let previous = inclusion::strip(previous.clone());
            return FilterEvidence::MissingPrevout { spending, vin, previous };
        }
        let (spending, witness_path) = ProvenTransaction::with_witness(self.block, index);
        FilterEvidence::MissingWrapped { spending, vin, witness_path }
    }

    /// Returns the whole block as evidence, with the previous transactions only if they are needed.
    fn unequal(&self, set: &GcsFilter<'_>, inputs: &[KnownInput<'_>]) -> FilterEvidence {
        // If the block alone contradicts the filter, the previous transactions are left out, and
        // the proof is smaller.
        let alone = known_inputs(self.block, &Sources::new(self.block, Prevouts::None));
        let previous = if is_consistent(self.block, set, self.filter, &alone, false) {
            self.sources.shown_and_spent(inputs)
        } else {
            Vec::new()
        };
        FilterEvidence::Unequal { block: self.block.block().clone(), previous }
    }

    fn proven(&self, evidence: FilterEvidence) -> Verdict {
        let (block_hash, filter) = (self.block.block_hash(), self.filter.to_vec());
        let proof = InvalidFilter { block_hash, filter, evidence };
        Verdict::Invalid(Refutation::Proof(Box::new(proof)))
    }
}

/// Decodes a filter strictly.
fn read<'f>(
    block_hash: &bitcoin::BlockHash,
    filter: &'f [u8],
) -> Result<(GcsFilter<'f>, DecodedFilter), super::GcsError> {
    let key = filter_key(block_hash);
    let set = GcsFilter::parse(GcsParams::BASIC, key, filter, Acceptance::Strict)?;
    let decoded = DecodedFilter::decode(&set)?;
    Ok((set, decoded))
}

/// Returns the verdict on a filter that is consistent with all known scripts.
fn verdict_by_guesses(
    block: &BoundBlock<'_>,
    set: &GcsFilter<'_>,
    decoded: &DecodedFilter,
    inputs: &[KnownInput<'_>],
) -> Verdict {
    let known: Vec<_> = inputs.iter().map(|input| input.script.bytes()).collect();
    let known_elements = distinct(block, &known).len();
    let mut unknown = Unknown {
        inputs: 0,
        guessed: 0,
        elements: (set.num_elements() as usize).saturating_sub(known_elements),
    };
    let mut suspicious = Vec::new();
    for KnownInput { index, vin, input, .. } in inputs.iter().filter(|i| !i.script.is_known()) {
        unknown.inputs += 1;
        // If the input is a usual spend, it is suspicious that the filter lacks all guessed
        // scripts. If the input is not a usual spend, a missing script proves nothing.
        if !is_guess_plausible(input) {
            continue;
        }
        if any_candidate(input, true, |script| decoded.may_contain(script.as_bytes())) {
            unknown.guessed += 1;
        } else {
            suspicious.push((*index, *vin));
        }
    }
    if suspicious.is_empty() {
        return Verdict::Undecidable(unknown);
    }
    Verdict::Suspicious { inputs: suspicious, unknown }
}

/// Returns `true` if the input looks like a usual spend of a hash or of a taproot script path. For
/// a usual spend, one of the candidate scripts should be in the filter.
fn is_guess_plausible(input: &TxIn) -> bool {
    if !input.witness.is_empty() {
        return input.script_sig.is_empty() && is_witness_guess_plausible(&input.witness);
    }
    if !input.script_sig.is_push_only() {
        return false;
    }
    let pushes: Vec<_> = ops(input.script_sig.as_bytes()).map(|op| op.data).collect();
    match pushes[..] {
        // P2PKH: a signature and a key.
        [signature, key] if is_signature(signature) && is_key(key) => true,
        // P2SH of a witness program whose witness may have been stripped.
        [program] if bitcoin::Script::from_bytes(program).is_witness_program() => true,
        // P2SH: the last push is the redeem script.
        [.., script] => is_signature_script(script) && !is_signature(script) && !is_key(script),
        [] => false,
    }
}

fn is_witness_guess_plausible(witness: &Witness) -> bool {
    let last = witness.last().unwrap_or_default();
    let first = witness.nth(0).unwrap_or_default();
    let is_control = |control: &[u8]| control.len() % 32 == 1 && control[0] >= 0xc0;
    let is_key_path = witness.len() - usize::from(witness.taproot_annex().is_some()) == 1
        && matches!(first.len(), 64 | 65);
    // The signature of a key-path spend may parse as a script.
    !is_key_path
        && (witness.len() == 2 && is_signature(first) && last.len() == 33 && is_key(last)
            || is_signature_script(last)
            || witness.taproot_control_block().is_some_and(is_control))
}

/// Returns `true` if the data may be an ECDSA signature in DER, with its sighash type.
fn is_signature(data: &[u8]) -> bool {
    data.first() == Some(&0x30) && (9..=73).contains(&data.len())
}

/// Returns `true` if the data may be a public key.
fn is_key(data: &[u8]) -> bool {
    matches!((data.first(), data.len()), (Some(2 | 3), 33) | (Some(4 | 6 | 7), 65))
}

/// Returns `true` if the data is a well-formed script that checks a signature.
fn is_signature_script(data: &[u8]) -> bool {
    // OP_CHECKSIG (0xac) to OP_CHECKMULTISIGVERIFY (0xaf).
    ops(data).any(|op| (0xac..=0xaf).contains(&op.opcode)) && is_well_formed(data)
}
