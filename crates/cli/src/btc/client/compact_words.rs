//! What the filters' state machine says, in words.

use chainsieve::bitcoin::bip158::FilterHash;
use chainsieve::btc::bip157::{Contradiction, Finding, Reason, Violation, Why};
use chainsieve::btc::headers::BlockAt;
use chainsieve::btc::peer::PeerId;

/// Why a peer is let go, and whether it misbehaved.
pub(super) fn reason(reason: &Reason) -> (String, bool) {
    let text = match reason {
        Reason::FalseFilter(filter) => {
            let how = match &filter.proof {
                Some(_) => "the block proves it",
                None => "the scripts that the block spends show it",
            };
            format!("its filter {} of {} is false: {how}", filter.hash, filter.at)
        }
        Reason::ContradictsItself(Contradiction::Filter { at, claimed, sent }) => {
            format!("it claimed filter {claimed} of {at}, and sent {sent}")
        }
        Reason::ContradictsItself(Contradiction::Headers { height, claimed, sent }) => {
            format!("it claimed filter header {claimed} at height {height}, and then {sent}")
        }
        Reason::ContradictsItself(_) => "it contradicts itself".into(),
        Reason::ContradictsCheckpoint { height, claimed, trusted } => {
            format!("it claims filter header {claimed} at height {height}, {trusted} is trusted")
        }
        Reason::Violation(violation) => self::violation(violation),
        Reason::FalseBlock(hash) => {
            format!("it sent a block {hash} whose transactions are not those of its header")
        }
        Reason::Stalled(waited) => {
            return (format!("no answer about filters in {} s", waited.as_secs()), false);
        }
        Reason::TooManyPeers(limit) => return (format!("more than {limit} peers"), false),
        _ => return ("not needed".into(), false),
    };
    (text, true)
}

fn violation(violation: &Violation) -> String {
    match violation {
        Violation::Unsolicited => "it answered about filters without being asked".into(),
        Violation::FilterType(kind) => format!("it answered with filters of type {kind}"),
        Violation::WrongBlock(hash) => format!("it answered about block {hash}, not asked for"),
        Violation::Count { sent, expected } => {
            format!("it answered with {sent} filter hashes, {expected} were asked for")
        }
        Violation::OversizedFilter { bytes, limit } => {
            format!("a filter of {bytes} bytes, the limit is {limit}")
        }
        _ => "it broke the protocol of filters".into(),
    }
}

/// The name of a reason for scanning a block.
pub(super) fn why(why: Why) -> &'static str {
    match why {
        Why::Matched => "matched",
        Why::Disputed => "disputed",
        Why::SpotAudit => "spot_audit",
        _ => "other",
    }
}

/// What is told of a finding: kind, block, text. `None` for what is no news.
pub(super) fn finding(
    finding: &Finding,
    name: impl Fn(PeerId) -> String,
) -> Option<(&'static str, Option<BlockAt>, String)> {
    Some(match finding {
        Finding::Disputed { at, claims } => {
            let claim = |(hash, peers): &(FilterHash, Vec<PeerId>)| {
                let peers = peers.iter().map(|peer| name(*peer)).collect::<Vec<_>>();
                let peers =
                    if peers.is_empty() { "earlier peers".into() } else { peers.join(", ") };
                format!("{hash} by {peers}")
            };
            let claims = claims.iter().map(claim).collect::<Vec<_>>().join("; ");
            ("disputed", Some(*at), format!("{at}: peers claim different filters: {claims}"))
        }
        Finding::Undecided(at) => (
            "undecided",
            Some(*at),
            format!("{at}: the block does not say which filter is its; it was looked at itself"),
        ),
        Finding::Suspicious(at) => (
            "suspicious",
            Some(*at),
            format!("{at}: the filter that all claim looks wrong; the block was looked at itself"),
        ),
        Finding::BlockUnavailable(at) => {
            ("block_unavailable", Some(*at), format!("{at}: no peer has sent it"))
        }
        Finding::FirstUnknown(first) => (
            "first_unknown",
            None,
            format!("the headers begin above height {first}, the first that is wanted"),
        ),
        _ => return None,
    })
}
