//! The audit over Bitcoin's peer-to-peer protocol: `cfheaders`, `cfcheckpt`, `cfilter` and blocks.

use std::collections::HashMap;
use std::net::{SocketAddr, TcpStream};
use std::ops::RangeInclusive;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use chainsieve::bitcoin::bip158::FilterHeader;
use chainsieve::bitcoin::hashes::Hash as _;
use chainsieve::bitcoin::p2p::ServiceFlags;
use chainsieve::bitcoin::p2p::message::NetworkMessage;
use chainsieve::bitcoin::p2p::message_blockdata::{GetHeadersMessage, Inventory};
use chainsieve::bitcoin::p2p::message_filter::{
    CFCheckpt, CFHeaders, GetCFCheckpt, GetCFHeaders, GetCFilters,
};
use chainsieve::bitcoin::{Block, BlockHash, Network};
use chainsieve::btc::bip157::{BASIC_FILTER, CHECKPOINT_INTERVAL};
use chainsieve::btc::headers::{HeaderChain, HeaderError};
use chainsieve::btc::protocol::PROTOCOL_VERSION;
use chainsieve_client::peers::frame::Timed;
use chainsieve_client::peers::frame::{FrameError, read_message, write_message};
use chainsieve_client::peers::handshake::{Ours, shake_hands};

use super::filters::{Answers, FilterCheck};
use crate::audit::report::{AuditError, AuditReport, Difference, length, rules};

/// Number of blocks whose filters are requested at once; BIP157 allows 1,000.
const BATCH: usize = 100;
/// Maximum number of messages that are read for one answer: announcements may come in between.
const MAX_MESSAGES: usize = 10_000;

/// Audits the filters and filter headers of a peer. `progress` gets the number of blocks so far.
///
/// Headers are checked from the genesis block on. The peer does not send the scripts of spent
/// outputs, so filters can be decided completely only if the range contains the blocks that
/// created the spent outputs.
///
/// # Errors
/// Returns an error if the peer cannot be reached, does not answer within `timeout`, or does not
/// offer compact filters.
pub fn audit_peer(
    address: SocketAddr,
    network: Network,
    range: RangeInclusive<u64>,
    timeout: Duration,
    mut progress: impl FnMut(u64),
) -> Result<AuditReport, AuditError> {
    length(&range)?;
    let mut report = AuditReport::new(&range);
    let mut peer = Peer::connect(address, network, timeout)?;
    let Some(chain) = peer.headers(&range, &mut report)? else { return Ok(report) };
    let tip = u64::from(chain.tip().height);
    if *range.end() > tip {
        return Err(AuditError::BeyondTip { to: *range.end(), last: tip });
    }
    let hashes = range.clone().filter_map(|height| chain.hash_at(u32::try_from(height).ok()?));
    let blocks: Vec<(u64, BlockHash)> = range.clone().zip(hashes).collect();
    let mut check: Option<FilterCheck> = None;
    let mut headers = HashMap::new();
    for batch in blocks.chunks(BATCH) {
        let (first, stop) = (batch[0].0, batch[batch.len() - 1].1);
        let claimed = peer.filter_headers(first, stop, batch.len())?;
        let check = match &mut check {
            Some(check) => check,
            None if first == 0 => {
                check.insert(FilterCheck::new(network, FilterHeader::all_zeros()))
            }
            None => {
                report.note(format!("the filter header of block {} is the peer's word", first - 1));
                check.insert(FilterCheck::new(network, claimed.previous_filter_header))
            }
        };
        if let Some(difference) = previous_differs(first, check.previous(), &claimed) {
            report.check(rules::FILTER_HEADER, Some(difference));
            return Ok(report);
        }
        let mut before = claimed.previous_filter_header;
        let mut filters = peer.filters(first, stop, batch)?;
        for (&(height, hash), filter_hash) in batch.iter().zip(&claimed.filter_hashes) {
            let header = filter_hash.filter_header(&before);
            before = header;
            headers.insert(height, header);
            let filter = filters.remove(&hash).unwrap_or_default();
            let block = peer.block(hash)?;
            let (prevouts, block, filter) = (HashMap::new(), &block, filter.as_slice());
            let answers = Answers { height, hash, block, prevouts, filter, header };
            if !check.check(&answers, &mut report) {
                return Ok(report);
            }
            progress(report.blocks);
        }
    }
    peer.checkpoints(&blocks, &headers, &mut report)?;
    Ok(report)
}

/// Compares the filter header before a batch, as the peer claims it, with the one that was computed.
fn previous_differs(first: u64, previous: FilterHeader, claimed: &CFHeaders) -> Option<Difference> {
    let got = claimed.previous_filter_header;
    (got != previous).then(|| {
        let what = "the filter header before the batch";
        Difference::new(rules::FILTER_HEADER, first, what, (previous, got))
    })
}

/// A connection to the peer.
struct Peer {
    stream: TcpStream,
    network: Network,
    timeout: Duration,
}

impl Peer {
    fn connect(
        address: SocketAddr,
        network: Network,
        timeout: Duration,
    ) -> Result<Self, AuditError> {
        let mut stream = TcpStream::connect_timeout(&address, timeout)?;
        stream.set_read_timeout(Some(timeout))?;
        stream.set_nodelay(true)?;
        let ours = Ours {
            magic: network.magic(),
            services: ServiceFlags::NONE,
            start_height: 0,
            user_agent: concat!("/chainsieve-conformance:", env!("CARGO_PKG_VERSION"), "/").into(),
            relay: false,
            nonce: 0,
        };
        let theirs = shake_hands(&mut stream, &ours, Some(address))?;
        if !theirs.services.has(ServiceFlags::COMPACT_FILTERS) {
            return Err(AuditError::NotOffered("compact filters (BIP157)"));
        }
        Ok(Self { stream, network, timeout })
    }

    /// Sends a request, and reads messages until `take` returns an answer. All messages together
    /// must arrive within the timeout.
    fn ask<T>(
        &mut self,
        what: &'static str,
        request: NetworkMessage,
        mut take: impl FnMut(NetworkMessage) -> Option<Result<T, AuditError>>,
    ) -> Result<T, AuditError> {
        let magic = self.network.magic();
        let failed = |error: FrameError| AuditError::Frame { what, error };
        let mut timed = Timed::new(&self.stream, Instant::now() + self.timeout);
        write_message(&mut timed, magic, request).map_err(|error| failed(error.into()))?;
        for _ in 0..MAX_MESSAGES {
            match read_message(&mut timed, magic).map_err(failed)? {
                NetworkMessage::Ping(nonce) => {
                    let pong = NetworkMessage::Pong(nonce);
                    write_message(&mut timed, magic, pong).map_err(|error| failed(error.into()))?;
                }
                message => {
                    if let Some(answer) = take(message) {
                        return answer;
                    }
                }
            }
        }
        Err(AuditError::NoAnswer(what))
    }

    /// Downloads the headers up to the end of the range. Returns `None` if a header breaks a rule.
    fn headers(
        &mut self,
        range: &RangeInclusive<u64>,
        report: &mut AuditReport,
    ) -> Result<Option<HeaderChain>, AuditError> {
        let mut chain = HeaderChain::new(self.network);
        while u64::from(chain.tip().height) < *range.end() {
            let request = GetHeadersMessage {
                version: PROTOCOL_VERSION,
                locator_hashes: chain.locator(),
                stop_hash: BlockHash::all_zeros(),
            };
            let headers =
                self.ask(
                    "headers",
                    NetworkMessage::GetHeaders(request),
                    |message| match message {
                        NetworkMessage::Headers(headers) => Some(Ok(headers)),
                        _ => None,
                    },
                )?;
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
            let before = chain.tip().height;
            let refused = chain.accept(&headers, now).err();
            if let Some(error) = refused.as_ref().filter(|it| is_early(&it.cause)) {
                // The headers before it are accepted, and may be all that the range needs.
                if u64::from(chain.tip().height) >= *range.end() {
                    break;
                }
                // One of the two clocks is wrong, and the header may become valid.
                report.leave_undecided(|| error.to_string());
                return Ok(None);
            }
            let difference = refused.map(|error| {
                let height = u64::from(before) + 1 + error.index as u64;
                let values = ("a header that follows the rules of consensus", &error);
                Difference::new(rules::BITCOIN_HEADER, height, "an invalid header", values)
            });
            let is_invalid = difference.is_some();
            report.check(rules::BITCOIN_HEADER, difference);
            if is_invalid {
                return Ok(None);
            }
            // A node that has no more headers answers with none, or with known ones.
            if chain.tip().height == before {
                break;
            }
        }
        Ok(Some(chain))
    }

    fn filter_headers(
        &mut self,
        first: u64,
        stop_hash: BlockHash,
        count: usize,
    ) -> Result<CFHeaders, AuditError> {
        let request = GetCFHeaders {
            filter_type: BASIC_FILTER,
            start_height: u32::try_from(first).unwrap_or(u32::MAX),
            stop_hash,
        };
        let fits = |message: &CFHeaders| {
            message.filter_type == BASIC_FILTER
                && message.stop_hash == stop_hash
                && message.filter_hashes.len() == count
        };
        self.ask("cfheaders", NetworkMessage::GetCFHeaders(request), |message| match message {
            NetworkMessage::CFHeaders(message) if fits(&message) => Some(Ok(message)),
            NetworkMessage::CFHeaders(_) => Some(Err(AuditError::NoAnswer("cfheaders"))),
            _ => None,
        })
    }

    fn filters(
        &mut self,
        first: u64,
        stop_hash: BlockHash,
        batch: &[(u64, BlockHash)],
    ) -> Result<HashMap<BlockHash, Vec<u8>>, AuditError> {
        let request = GetCFilters {
            filter_type: BASIC_FILTER,
            start_height: u32::try_from(first).unwrap_or(u32::MAX),
            stop_hash,
        };
        let mut filters = HashMap::new();
        self.ask("cfilter", NetworkMessage::GetCFilters(request), |message| {
            if let NetworkMessage::CFilter(message) = message
                && batch.iter().any(|(_, hash)| *hash == message.block_hash)
            {
                filters.insert(message.block_hash, message.filter);
            }
            (filters.len() == batch.len()).then(|| Ok(std::mem::take(&mut filters)))
        })
    }

    fn block(&mut self, hash: BlockHash) -> Result<Block, AuditError> {
        let request = NetworkMessage::GetData(vec![Inventory::WitnessBlock(hash)]);
        self.ask("block", request, |message| match message {
            NetworkMessage::Block(block) if block.block_hash() == hash => Some(Ok(block)),
            NetworkMessage::NotFound(_) => Some(Err(AuditError::NotOffered("the block"))),
            _ => None,
        })
    }

    /// Compares the checkpoints in the range with the filter headers of the same blocks.
    fn checkpoints(
        &mut self,
        blocks: &[(u64, BlockHash)],
        headers: &HashMap<u64, FilterHeader>,
        report: &mut AuditReport,
    ) -> Result<(), AuditError> {
        let Some(&(last, stop_hash)) = blocks.last() else { return Ok(()) };
        let request = GetCFCheckpt { filter_type: BASIC_FILTER, stop_hash };
        let request = NetworkMessage::GetCFCheckpt(request);
        let message: CFCheckpt = self.ask("cfcheckpt", request, |message| match message {
            NetworkMessage::CFCheckpt(message) => Some(Ok(message)),
            _ => None,
        })?;
        let interval = u64::from(CHECKPOINT_INTERVAL);
        let (count, got) = (last / interval, message.filter_headers.len() as u64);
        if got != count {
            let what = "the number of checkpoints";
            let difference = Difference::new(rules::FILTER_HEADER, last, what, (count, got));
            report.check(rules::FILTER_HEADER, Some(difference));
        }
        for (height, got) in (1..).map(|index| index * interval).zip(message.filter_headers) {
            let Some(expected) = headers.get(&height) else { continue };
            let difference = (*expected != got).then(|| {
                Difference::new(rules::FILTER_HEADER, height, "a checkpoint", (expected, got))
            });
            report.check(rules::FILTER_HEADER, difference);
        }
        Ok(())
    }
}

/// Returns `true` if a header only has to wait until its time.
fn is_early(cause: &HeaderError) -> bool {
    matches!(cause, HeaderError::TimeTooNew { .. })
}
