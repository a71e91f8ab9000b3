//! The public types of `chainsieve::btc` can be used by several threads, have `Debug`, and errors are
//! `std::error::Error`.

use std::error::Error;
use std::fmt::Debug;

use chainsieve::btc::*;

fn shared<T: Send + Sync + Debug>() {}
fn error<T: Error + Clone + PartialEq + Send + Sync + 'static>() {}

/// Checks types of a module; the arguments of a generic type are in brackets.
macro_rules! each {
    ($check:ident, $($module:ident)::+: $($types:tt)+) => {{
        use chainsieve::btc::$($module)::+ as of;
        each!(@ $check, of, $($types)+);
    }};
    (@ $check:ident, $of:ident, $($type:ident $([$($argument:tt)*])?),+ $(,)?) => {
        $($check::<$of::$type$(<$($argument)*>)?>();)+
    };
}

/// All public types but `bip158::audit::Prevouts`, which may borrow a function.
#[test]
fn types_are_send_sync_and_debug() {
    shared::<RawError>();
    shared::<chainsieve::UnknownName>();
    each!(
        shared, bip157:
        Action, Config, Event, FalseFilter, FilterSync, Finding, Limits, Reason, RestoreError,
        VerifiedFilter, ScanReason,
    );
    each!(
        shared, bip158:
        Acceptance, BindError, BlockFilter, BoundBlock['static], BuildError, DecodedFilter,
        GcsError, GcsFilter['static], GcsParams, Matcher, PreparedScripts, Witnesses,
    );
    each!(
        shared, bip158::audit:
        Basis, FilterEvidence, InvalidFilter, ProofError, ProvenTransaction, Refutation, Unknown,
        Verdict,
    );
    each!(
        shared, bip158::container:
        BatchReader[&'static [u8]], ContainerError, Header, Intact, RecordPlace, Records['static],
        Writer[Vec<u8>],
    );
    each!(
        shared, bip158::scan:
        Candidate, Commitment, ScanCursor, FilterItem['static], NoAnswer, CandidateReason,
        FilterScan, ScanError, Statistics, Wallets,
    );
    each!(
        shared, bip37:
        AddedData, BlockElements, BloomFilter, Elements, HeaderLink, Inclusion, MatchReason,
        MerkleBlock, MerkleBlockError, PayloadError, Policy, Proof, FilterError, TxMatch,
        UpdateMode,
    );
    each!(
        shared, bip37::session:
        Action, Config, Event, FilterPolicy, Finding, Ground, HeightEvidence, MatchStats, Message,
        Omission, OmissionEvidence, PrivacyReport, RefreshReason, Session,
    );
    each!(
        shared, client:
        Action, Birthday, BlockError, BroadcastNews, LightClient, Config, Event, InclusionEvidence,
        File, Finding, Graded, Hit, Item, ItemCause, ItemError, StoredFiles, News, OpenError, Owner,
        PeerInfo, Progress, Protocol, Reason, OwnedOutput, RestoreError, OwnedSpend, Update,
        UpdateId, Wallet, WalletId, HitReason, Write, WriteId,
    );
    each!(shared, descriptors: DescriptorError, DescriptorScript);
    each!(
        shared, headers:
        TrustedStart, BlockAt, HeaderRules, ChainEvent, HeaderChain, HeaderError, HeaderChainError,
        HeadersError,
    );
    each!(shared, merkle_tree: MerklePath, PathError, TransactionInBlock);
    each!(shared, peer: Grade, PeerId);
    each!(shared, proof_of_work: ProofOfWorkError);
    each!(shared, script: Op['static], ScriptType);
    each!(
        shared, server:
        Action, Added, BlockError, Config, Event, Mempool, Peer, Reason, ServedChain,
        TransactionError,
    );
    each!(shared, server::filters: FilterResponse, FilterStore, Reply);
    each!(
        shared, wallet:
        BlockScan, History, Keychains, Label, LookAhead, Outcome, TxPosition, Received, Relevance,
        RelevantTransaction, Spent, WatchedItems, WatchItem, WatchedOutput, WatchedScript,
    );
}

#[test]
fn errors_are_errors() {
    error::<RawError>();
    error::<chainsieve::UnknownName>();
    each!(error, bip157: RestoreError);
    each!(error, bip158: BindError, BuildError, GcsError);
    each!(error, bip158::audit: ProofError);
    each!(error, bip158::container: ContainerError);
    each!(error, bip158::scan: ScanError);
    each!(error, bip37: MerkleBlockError, PayloadError, FilterError);
    each!(error, client: BlockError, ItemError, OpenError, RestoreError);
    each!(error, descriptors: DescriptorError);
    each!(error, headers: HeaderError, HeaderChainError, HeadersError);
    each!(error, merkle_tree: PathError);
    each!(error, proof_of_work: ProofOfWorkError);
    each!(error, server: BlockError, TransactionError);
}
