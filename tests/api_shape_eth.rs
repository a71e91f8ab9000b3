//! The public types of `eth` can be moved and shared between threads, and print as `Debug`. Errors
//! are `Error`s.
#![cfg(all(feature = "eth", feature = "std"))]

use std::error::Error;
use std::fmt::Debug;

use chainsieve::eth::index::Folder;

fn shared<T: Debug + Send + Sync>() {}
fn error<T: Error + Clone + PartialEq + Send + Sync + 'static>() {}

/// Checks types of a module; the arguments of a generic type are in brackets.
macro_rules! each {
    ($check:ident, $module:ident: $($type:ident $([$($argument:tt)*])?),+ $(,)?) => {
        $($check::<chainsieve::eth::$module::$type$(<$($argument)*>)?>();)+
    };
}

#[test]
fn types_can_be_shared_between_threads() {
    each!(
        shared, audit:
        Audit['static], AuditReport, Counts, Examined, Finding, FindingKind,
        ForgedLog, Forgery, Grounds, OmittedLog, AuditQuestion['static], Status, Undecidable, Verdict,
        WrongField,
    );
    each!(shared, bloom: BloomAnswer, BloomView['static], FillHistogram);
    each!(shared, certificate: Certificate, VerifiedCertificate);
    each!(shared, chain_profile: BloomSoundness, ChainProfile, ReceiptsScope, ProfileRange);
    each!(
        shared, columns:
        BlockColumns['static], BlockVerdict, Cell[u64], Check, Fault, Grade, HeaderBasis,
        HeaderRow['static], LogRow['static], Missing, Row, TransactionRow['static],
    );
    each!(
        shared, files:
        FileFormat, HeaderBatch, HeaderReader[&'static [u8]], Input[&'static [u8]], JsonValue,
        JsonValues[&'static [u8]], Position,
    );
    each!(
        shared, follow:
        Action, Answer['static], Config, Cursor, Event['static], Follower, Indexed, NextBlocks,
        FollowNote, Question, QuestionId, Removed, Started, StoreId, News, UpdateId,
    );
    each!(shared, forecast: ClauseForecast, Forecast);
    each!(
        shared, header:
        BlockRef, ChainBlock['static], HeaderBuf, LinkedHeaders, HeaderLayout, HeaderView['static],
        Linked,
    );
    each!(
        shared, index:
        Candidates, Damage, FileKind, Folder,
        Index[Folder], Part, QueryStats, SegmentFile, Settings,
        Verifier['static, Folder], Writer[Folder],
    );
    each!(shared, transactions: BlockTransactions, VerifiedTransactions);
    each!(shared, json: JsonPath);
    each!(shared, log: Difference['static], LocatedLog);
    each!(
        shared, log_query:
        BlockSelection, BlockTag, CompiledQuery, Heads, LogQuery, QueryLimits, ResolvedBlocks,
        Semantics, TopicSet,
    );
    each!(
        shared, receipts:
        BlockReceipts, BloomAgreement, Claims, Outcome, Receipt, ReceiptProof,
        VerifiedBlock['static], VerifiedLog['static], VerifiedReceipts['static],
    );
    each!(shared, scan: Hits, QuerySet, Scanner);
    #[cfg(feature = "anchor")]
    {
        use chainsieve::eth::anchor::{network, sync_committee};
        shared::<(network::Network, network::Fork, network::Preset)>();
        shared::<(sync_committee::LightClient, sync_committee::Anchor, sync_committee::Update)>();
        shared::<(sync_committee::Bootstrap, sync_committee::Update)>();
        shared::<(sync_committee::Action, sync_committee::Event<'static>)>();
        shared::<sync_committee::Request>();
    }
    #[cfg(feature = "era")]
    each!(
        shared, files:
        Archive[&'static [u8]], BlockEntries[&'static [u8]], Entry['static, &'static [u8]],
        EntryKind,
    );
    #[cfg(all(feature = "anchor", feature = "era"))]
    each!(shared, files: ArchiveHistory, HistoryReader[&'static [u8]]);
}

#[cfg(feature = "anchor")]
#[test]
fn types_of_anchors_can_be_shared() {
    use chainsieve::eth::anchor::Grade;
    use chainsieve::eth::anchor::{account_proof as account, header_proof, links};

    shared::<Grade>();
    shared::<(account::AccountProof, account::SlotProof)>();
    shared::<(account::ProofNodes, account::Account)>();
    shared::<(header_proof::HeaderProof, header_proof::ProofKind)>();
    shared::<(header_proof::History, header_proof::ForkSlots)>();
    shared::<(header_proof::SummariesProof, header_proof::HistoricalSummary)>();
    shared::<(links::Link, links::LinkKind, links::Origin, links::Anchored)>();
    error::<account::StateProofError>();
    error::<header_proof::HeaderProofError>();
    error::<links::LinkError>();
    error::<links::LinkProblem>();
}

#[test]
fn errors_are_errors() {
    each!(error, audit: AuditError, EvidenceError);
    each!(error, certificate: CertificateError);
    each!(error, files: FileError, FileProblem);
    each!(error, follow: AnswerError, Failure, Fault, StartError);
    each!(error, header: ChainError, HeaderError);
    each!(error, index: IndexError);
    each!(error, json: ValueProblem);
    each!(error, log: LogJsonError);
    each!(error, log_query: QueryError);
    each!(error, receipts: ReceiptsError);
    each!(error, transactions: TransactionsError);
    error::<chainsieve::UnknownName>();
    #[cfg(feature = "anchor")]
    {
        use chainsieve::eth::anchor::sync_committee;
        error::<sync_committee::DecodeError>();
        error::<sync_committee::LightClientError>();
    }
}
