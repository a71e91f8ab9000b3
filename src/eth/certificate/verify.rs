//! Certificates proven anew.

use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

use alloy_primitives::B256;

use super::Certificate;
use crate::eth::audit::{
    Action, Audit, AuditError, AuditReport, Event, Question, Rejection, Status, Undecidable,
    Verdict,
};
use crate::eth::chain_profile::ChainProfile;
use crate::eth::header::{ChainError, HeaderChain, HeaderView};
use crate::eth::log::{self, LocatedLog};
use crate::eth::log_query::{LogQuery, ResolvedBlocks, Semantics};
use crate::eth::receipts::{BlockReceipts, ReceiptsError};

/// What a verifier brings: nothing of it is taken from a certificate.
#[derive(Debug, Clone, Copy)]
pub struct Trust<'a> {
    /// Hashes that are trusted.
    pub anchors: &'a [B256],
    /// What the chain's headers commit to.
    pub profile: &'a ChainProfile,
    /// The query whose result is wanted.
    pub query: &'a LogQuery,
    /// By whose rules a log matches.
    pub semantics: Semantics,
    /// The query's blocks by number.
    pub blocks: ResolvedBlocks,
}

/// What is left of a certificate when everything is proven anew.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use = "a certificate may be without contradiction and yet prove little"]
pub struct VerifiedCertificate {
    /// The verifier's own audit.
    pub report: AuditReport,
    /// The result of the query, in the order of the chain, where it was derived from receipts or
    /// given, and is the one that the certificate binds.
    pub logs: Option<Vec<LocatedLog>>,
}

impl VerifiedCertificate {
    /// Whether the result is proven: every block is, and the logs are there.
    pub fn is_complete(&self) -> bool {
        self.logs.is_some() && self.report.status() == Status::Complete
    }

    /// The blocks of which the certificate's word is all there is, in order, and why.
    pub fn unverified(&self) -> impl Iterator<Item = (u64, Undecidable)> {
        self.report.undecided()
    }
}

/// Why a certificate does not hold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VerifyError {
    /// It is of another query.
    #[error("the certificate is of another query than the one asked about")]
    OtherQuery,
    /// It is by other rules.
    #[error("the certificate is by the rules of {found:?}, asked was for {expected:?}")]
    OtherSemantics {
        /// The verifier's.
        expected: Semantics,
        /// The certificate's.
        found: Semantics,
    },
    /// No headers are embedded, and none were given.
    #[error("no headers, neither embedded nor given")]
    NoHeaders,
    /// The embedded headers are no chain.
    #[error("embedded header {index}: {error}")]
    Headers {
        /// Which of them.
        index: usize,
        /// What is wrong.
        error: ChainError,
    },
    /// The headers are not enough for the query.
    #[error(transparent)]
    Audit(AuditError),
    /// A value that the certificate states differs from what follows from the data. Its name in the
    /// JSON is one of `chain.first`, `chain.last`, `chain.parentHash`, `chain.lastHash`,
    /// `counts.blocks`, `counts.examined`, `result.logs` and `result.digest`. `counts.examined` also
    /// differs if the verifier has another profile.
    #[error("the certificate's {0} is not what comes out of the headers, receipts and logs given")]
    NotSo(&'static str),
    /// Embedded receipts can't be read.
    #[error("embedded receipts of block {block_hash}: {error}")]
    Receipts {
        /// Hash of the block.
        block_hash: B256,
        /// What is wrong.
        error: ReceiptsError,
    },
    /// Embedded receipts are not the block's.
    #[error("embedded receipts of block {block_hash}: {why}")]
    OtherReceipts {
        /// Hash of the block.
        block_hash: B256,
        /// What is wrong.
        why: Rejection,
    },
    /// Embedded receipts belong to no block whose receipts are needed.
    #[error("embedded receipts of block {0}, whose receipts are not needed")]
    NeedlessReceipts(B256),
    /// The given result is not the right one, though the certificate binds it.
    #[error("the result has {} findings", .0.findings.len())]
    Refuted(Box<AuditReport>),
}

impl Certificate {
    /// Proves everything anew that headers, receipts and the result allow.
    ///
    /// `headers` are the verifier's own, else the embedded ones are taken: they are worth what the
    /// anchors are in any case. Receipts come from the certificate, else (or where those lack the
    /// post-states from before Byzantium) from `receipts`, which is
    /// asked for each block by number and hash and may be anyone's; what is not the block's is
    /// passed over. The `result`, if given, is audited like any answer; else it is derived, which
    /// takes all receipts.
    ///
    /// `Ok` means that nothing contradicts the certificate. What it proves, the
    /// [`VerifiedCertificate`] says.
    ///
    /// # Errors
    /// [`VerifyError`] names what is not so.
    pub fn verify(
        &self,
        trust: &Trust<'_>,
        headers: Option<&HeaderChain>,
        mut receipts: impl FnMut(u64, B256) -> Option<BlockReceipts>,
        result: Option<&[LocatedLog]>,
    ) -> Result<VerifiedCertificate, VerifyError> {
        if *trust.query != self.query {
            return Err(VerifyError::OtherQuery);
        }
        if trust.semantics != self.semantics {
            let (expected, found) = (trust.semantics, self.semantics);
            return Err(VerifyError::OtherSemantics { expected, found });
        }
        let embedded;
        let chain = if let Some(chain) = headers {
            chain
        } else {
            embedded = self.chain()?;
            &embedded
        };
        let question = Question {
            chain,
            anchors: trust.anchors,
            query: trust.query,
            blocks: trust.blocks,
            semantics: trust.semantics,
            profile: trust.profile,
        };
        let audit = match result {
            Some(logs) => Audit::new(question, logs),
            None => Audit::collecting(question),
        };
        let mut audit = audit.map_err(VerifyError::Audit)?;
        self.check_ends(chain, &trust.blocks)?;
        self.send_receipts(&mut audit, &mut receipts)?;
        let (report, collected, is_whole) = audit.end();
        if report.counts.blocks != self.blocks {
            return Err(VerifyError::NotSo("counts.blocks"));
        }
        if report.counts.examined != self.examined {
            return Err(VerifyError::NotSo("counts.examined"));
        }
        let logs = result.map(<[_]>::to_vec).or(is_whole.then_some(collected));
        if let Some(logs) = &logs {
            if logs.len() as u64 != self.logs {
                return Err(VerifyError::NotSo("result.logs"));
            }
            if log::digest(logs) != self.digest {
                return Err(VerifyError::NotSo("result.digest"));
            }
        }
        if report.status() == Status::Wrong {
            return Err(VerifyError::Refuted(Box::new(report)));
        }
        Ok(VerifiedCertificate { report, logs })
    }

    /// The embedded headers, linked. They are worth what is trusted of their hashes.
    ///
    /// # Errors
    /// [`VerifyError::NoHeaders`], and [`VerifyError::Headers`] where they are not a chain.
    pub fn chain(&self) -> Result<HeaderChain, VerifyError> {
        let headers = self.headers.as_ref().ok_or(VerifyError::NoHeaders)?;
        let decode = |(index, rlp)| {
            HeaderView::decode(rlp).map_err(|error| {
                let error = ChainError::Header { index, error };
                VerifyError::Headers { index, error }
            })
        };
        let rlp = headers.iter().map(|rlp| &rlp[..]).enumerate();
        let headers = rlp.map(decode).collect::<Result<Vec<_>, _>>()?;
        let mut chain = HeaderChain::new();
        chain
            .extend(&headers)
            .map_err(|error| VerifyError::Headers { index: chain.len(), error })?;
        Ok(chain)
    }

    /// Whether the first and the last queried block are the certificate's.
    fn check_ends(&self, chain: &HeaderChain, blocks: &ResolvedBlocks) -> Result<(), VerifyError> {
        let (first, last) = match *blocks {
            ResolvedBlocks::Range { first, last } => (first, last),
            ResolvedBlocks::AtHash(_) => (self.first, self.last),
        };
        let asked = |block: Option<B256>| match *blocks {
            ResolvedBlocks::AtHash(hash) => block == Some(hash),
            ResolvedBlocks::Range { .. } => true,
        };
        let hash = |number| chain.block(number).map(|block| block.hash);
        let claims = [
            ("chain.first", self.first == first && asked(hash(self.first))),
            ("chain.last", self.last == last && asked(hash(self.last))),
            ("chain.parentHash", parent_of(chain, self.first) == Some(self.parent_hash)),
            ("chain.lastHash", hash(self.last) == Some(self.last_hash)),
        ];
        match claims.into_iter().find(|(_, is_so)| !is_so) {
            Some((claim, _)) => Err(VerifyError::NotSo(claim)),
            None => Ok(()),
        }
    }

    fn send_receipts(
        &self,
        audit: &mut Audit<'_>,
        receipts: &mut impl FnMut(u64, B256) -> Option<BlockReceipts>,
    ) -> Result<(), VerifyError> {
        // A block without receipts needs none sent; that it has none may be said all the same.
        let is_empty = |hash: &B256| {
            let none = self.receipts.get(hash).is_some_and(Vec::is_empty);
            none && audit.is_examined(*hash)
        };
        let mut needless: BTreeSet<B256> =
            self.receipts.keys().filter(|hash| !is_empty(hash)).copied().collect();
        for action in audit.handle(Event::Begin) {
            let Action::FetchReceipts { number, block_hash } = action else { continue };
            if let Some(encodings) = self.receipts.get(&block_hash) {
                needless.remove(&block_hash);
                let receipts = BlockReceipts::from_encodings(encodings)
                    .map_err(|error| VerifyError::Receipts { block_hash, error })?;
                let actions = audit.handle(Event::Receipts { block_hash, receipts: &receipts });
                let mut is_decided = true;
                for action in actions {
                    match action {
                        Action::Rejected { block_hash, why } => {
                            return Err(VerifyError::OtherReceipts { block_hash, why });
                        }
                        Action::Settled { verdict, .. } => {
                            let missing = Verdict::Undecidable(Undecidable::PostStateMissing);
                            is_decided = verdict != missing;
                        }
                        Action::FetchReceipts { .. } => {}
                    }
                }
                if is_decided {
                    continue;
                }
            }
            if let Some(receipts) = receipts(number, block_hash) {
                let _ = audit.handle(Event::Receipts { block_hash, receipts: &receipts });
            }
        }
        match needless.first() {
            Some(&block_hash) => Err(VerifyError::NeedlessReceipts(block_hash)),
            None => Ok(()),
        }
    }
}

/// Parent hash of the block of this number.
pub(super) fn parent_of(chain: &HeaderChain, number: u64) -> Option<B256> {
    let numbers = chain.numbers()?;
    if number == *numbers.start() {
        chain.parent_hash()
    } else {
        chain.block(number.checked_sub(1)?).map(|block| block.hash)
    }
}
