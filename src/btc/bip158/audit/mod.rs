//! Whether a filter is the one of its block, and the proof for others where it is not.
//!
//! Filter headers are no part of consensus, so a block does not say what its filter is. It says
//! most of it: a block shows the scripts of its outputs, and names the outputs that it spends
//! without showing their scripts. What follows from that:
//!
//! | element of the filter | known from | without it the filter is |
//! |---|---|---|
//! | script of an output | the block | [`Invalid`](Verdict::Invalid) |
//! | spent, created in the same block | the block: it is an output too | `Invalid` |
//! | spent, witness program in P2SH | the block, with its witnesses | `Invalid` |
//! | spent, previous transaction shown | [`Prevouts::ByTransactions`] | `Invalid` |
//! | spent, script given by someone trusted | [`Prevouts::Trusted`] | `Invalid`, no proof for others |
//! | spent, hash or key shown by the input | a guess | [`Suspicious`](Verdict::Suspicious) |
//! | spent, anything else | nothing | [`Undecidable`](Verdict::Undecidable) |
//!
//! The number of elements is bounded too: from below by the different scripts that are known, from
//! above by as many more as there are inputs of unknown script. A filter with more or fewer is
//! `Invalid`, so it can hold no more elements too many than the block has such inputs. With all
//! scripts known the filter is computed, and nothing but the same bytes is
//! [`Valid`](Verdict::Valid).
//!
//! # What a proof assumes
//! That the block is in the chain: the proof shows the header's work, and whoever checks it says
//! which block hash they mean. For the spent output of a witness program in P2SH, that the block
//! is valid by segwit's rules. Nothing else: no honest node's filter is ever met by a proof.

mod guesses;
mod inclusion;
mod known;
mod proof;
mod proof_bytes;

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;

use bitcoin::{OutPoint, ScriptBuf, Transaction};

pub use inclusion::ProvenTransaction;
pub use proof::{Evidence, InvalidFilter, ProofError};
pub use proof_bytes::ProofDecodeError;

use self::known::{KnownInput, Script, Sources, is_consistent, known_inputs, output_elements};
use super::{Acceptance, BoundBlock, DecodedFilter, GcsFilter, GcsParams, filter_key};

/// What is known of the outputs that a block spends, besides what the block shows.
#[derive(Clone, Copy, Default)]
pub enum Prevouts<'a> {
    /// Nothing.
    #[default]
    None,
    /// Their scripts, from someone who is trusted: an own node, or undo data. `None` for one that
    /// is not known.
    Trusted(&'a dyn Fn(&OutPoint) -> Option<ScriptBuf>),
    /// The transactions that created them, in any order. Some may be missing, and others that
    /// nothing spends are passed over; nobody needs to be trusted for them.
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

/// What an audit finds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The block's filter, byte for byte.
    Valid(Basis),
    /// Not the block's filter, for certain.
    Invalid(Refutation),
    /// Nothing proves it wrong, but a script is missing that an input seems to spend. The filter
    /// of an honest node can meet with this.
    Suspicious(Suspicion),
    /// Nothing speaks against it, and not enough is known to say more.
    Undecidable(Unknown),
}

/// What it rests on that a filter is valid, besides the block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Basis {
    /// Scripts of spent outputs that were taken on trust.
    Trusted,
    /// The block alone, or transactions whose ids its inputs name: whoever is shown the same comes
    /// to the same.
    Transactions,
}

/// Why a filter is not the block's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refutation {
    /// With a proof for anyone.
    Proof(Box<InvalidFilter>),
    /// The trusted script of this spent output is missing. No proof for others.
    TrustedMissing(OutPoint),
    /// It has more, fewer or other elements than the block with the trusted scripts of spent
    /// outputs. No proof for others.
    TrustedUnequal,
}

impl Refutation {
    /// The proof for others, if there is one.
    pub fn proof(&self) -> Option<&InvalidFilter> {
        match self {
            Self::Proof(proof) => Some(proof),
            Self::TrustedMissing(_) | Self::TrustedUnequal => None,
        }
    }
}

/// Guesses that a filter does not bear out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suspicion {
    /// The inputs of which no guess is in the filter: position of the transaction, and of the
    /// input in it.
    pub inputs: Vec<(u32, u32)>,
    /// What is missing for a verdict.
    pub unknown: Unknown,
}

/// What is missing for a verdict.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unknown {
    /// The inputs that spend outputs of unknown script: those of [`unknown_prevouts`].
    pub inputs: usize,
    /// Those of them for which a guess is in the filter.
    pub guessed: usize,
    /// Elements of the filter that no known script explains, guesses not counted: at most as many
    /// as there are inputs of unknown script.
    pub elements: usize,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Valid(Basis::Trusted) => f.write_str("valid, by scripts taken on trust"),
            Self::Valid(Basis::Transactions) => f.write_str("valid"),
            Self::Invalid(Refutation::Proof(proof)) => write!(f, "invalid: {}", proof.evidence),
            Self::Invalid(Refutation::TrustedMissing(outpoint)) => {
                write!(f, "invalid: the script of {outpoint}, taken on trust, is missing")
            }
            Self::Invalid(Refutation::TrustedUnequal) => {
                f.write_str("invalid: not the elements of the block and the scripts taken on trust")
            }
            Self::Suspicious(Suspicion { inputs, unknown }) => {
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
        write!(f, "{inputs} inputs spend unknown scripts ({guessed} guessed right), ")?;
        write!(f, "{elements} elements are unexplained")
    }
}

/// Whether `filter` is the filter of `block`.
///
/// The filter is read strictly: what Bitcoin Core lets pass and no encoder produces, such as ones
/// in the padding, is not the one form that the block's filter has.
///
/// # Cost
/// The elements' hashes; for a proof, a merkle path.
///
/// # Examples
/// ```
/// use chainsieve::bitcoin::{Block, BlockHash, Network, OutPoint, ScriptBuf};
/// use chainsieve::btc::bip158::audit::{Prevouts, Refutation, Verdict, audit};
/// use chainsieve::btc::bip158::{BindError, BoundBlock};
/// /// Judges a filter by a block that some peer sent; `expected` is from the chain of headers.
/// fn judge(block: &Block, expected: BlockHash, filter: &[u8]) -> Result<bool, BindError> {
///     let block = BoundBlock::bind(block, expected, Network::Bitcoin)?;
///     Ok(match audit(&block, filter, Prevouts::None) {
///         // Bytes that anyone can check, whatever they think of the sender.
///         Verdict::Invalid(Refutation::Proof(proof)) => {
///             proof.verify(expected, Network::Bitcoin).expect("true for everyone");
///             false
///         }
///         Verdict::Invalid(_) => false,
///         Verdict::Valid(_) | Verdict::Suspicious(_) | Verdict::Undecidable(_) => true,
///     })
/// }
/// ```
pub fn audit(block: &BoundBlock<'_>, filter: &[u8], prevouts: Prevouts<'_>) -> Verdict {
    Audit::new(block, filter, prevouts).verdict()
}

/// The outputs that `block` spends and whose scripts are not known from the block and `prevouts`, in
/// the order of the inputs. With the transactions that created them, the audit decides.
///
/// # Cost
/// A look-up for each input.
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
        let Ok((set, decoded)) = read(&self.block.block_hash(), self.filter) else {
            return self.proven(Evidence::Malformed);
        };
        let inputs = known_inputs(self.block, &self.sources);
        let missing = |script: &[u8]| !script.is_empty() && !decoded.may_contain(script);
        if let Some(evidence) = self.missing_output(&decoded).or_else(|| {
            let mut proven = inputs.iter().filter(|input| input.script.is_proven());
            let input = proven.find(|input| missing(input.script.bytes()))?;
            Some(self.missing_prevout(input))
        }) {
            return self.proven(evidence);
        }
        if !is_consistent(self.block, &set, self.filter, &inputs, false) {
            return self.proven(self.unequal(&set, &inputs));
        }
        if let Some(input) = inputs.iter().find(|input| missing(input.script.bytes())) {
            return Verdict::Invalid(Refutation::TrustedMissing(input.outpoint));
        }
        let on_trust = inputs.iter().any(|input| input.script.is_trusted());
        if on_trust && !is_consistent(self.block, &set, self.filter, &inputs, true) {
            return Verdict::Invalid(Refutation::TrustedUnequal);
        }
        if inputs.iter().any(|input| !input.script.is_known()) {
            return guesses::verdict(self.block, &set, &decoded, &inputs);
        }
        Verdict::Valid(if on_trust { Basis::Trusted } else { Basis::Transactions })
    }

    /// The proof of the first output whose script is missing.
    fn missing_output(&self, decoded: &DecodedFilter) -> Option<Evidence> {
        (0_u32..).zip(&self.block.block().txdata).find_map(|(index, tx)| {
            let mut outputs = (0_u32..).zip(output_elements(tx));
            let (vout, _) = outputs
                .find(|(_, script)| script.is_some_and(|script| !decoded.may_contain(script)))?;
            let transaction = ProvenTransaction::without_witness(self.block, index);
            Some(Evidence::MissingOutput { transaction, vout })
        })
    }

    fn missing_prevout(&self, input: &KnownInput<'_>) -> Evidence {
        let &KnownInput { index, vin, .. } = input;
        if let Script::Of(previous, _) = input.script {
            let spending = ProvenTransaction::without_witness(self.block, index);
            let previous = inclusion::strip(previous.clone());
            return Evidence::MissingPrevout { spending, vin, previous };
        }
        let (spending, witness_path) = ProvenTransaction::with_witness(self.block, index);
        Evidence::MissingWrapped { spending, vin, witness_path }
    }

    /// The whole block, with the previous transactions if it takes them.
    fn unequal(&self, set: &GcsFilter<'_>, inputs: &[KnownInput<'_>]) -> Evidence {
        let alone = known_inputs(self.block, &Sources::new(self.block, Prevouts::None));
        let previous = if is_consistent(self.block, set, self.filter, &alone, false) {
            self.sources.shown_and_spent(inputs)
        } else {
            Vec::new()
        };
        Evidence::Unequal { block: self.block.block().clone(), previous }
    }

    fn proven(&self, evidence: Evidence) -> Verdict {
        let (block_hash, filter) = (self.block.block_hash(), self.filter.to_vec());
        let proof = InvalidFilter { block_hash, filter, evidence };
        Verdict::Invalid(Refutation::Proof(Box::new(proof)))
    }
}

/// Reads a filter as its one form asks for.
fn read<'f>(
    block_hash: &bitcoin::BlockHash,
    filter: &'f [u8],
) -> Result<(GcsFilter<'f>, DecodedFilter), super::GcsError> {
    let key = filter_key(block_hash);
    let set = GcsFilter::parse(GcsParams::BASIC, key, filter, Acceptance::Strict)?;
    let decoded = DecodedFilter::decode(&set)?;
    Ok((set, decoded))
}
