//! Links from the newest finalised block to an earlier block, fetched from untrusted nodes, beacon servers and
//! archives, on the cheapest way that these serve.

use chainsieve::alloy_primitives::{B256, Bytes};
use chainsieve::eth::anchor::account_proof::AccountProof;
use chainsieve::eth::anchor::header_proof::{HeaderProof, PERIOD_SLOTS};
use chainsieve::eth::anchor::history_contract::{self, SERVE_WINDOW};
use chainsieve::eth::anchor::links::{self, Anchored, Link, LinkError, LinkVerifier, Origin};
use chainsieve::eth::anchor::network::Network;
use chainsieve::eth::anchor::sync_committee::Anchor;
use chainsieve::eth::header::{HeaderBuf, HeaderView};
use serde_json::json;

use super::client::{BeaconClient, BeaconError};
use crate::nodes::ask::{Unaccepted, ask};
use crate::nodes::{Node, RpcError};

/// Maximum number of headers that are fetched for one link, unless [`LinkOptions::max_headers`] sets
/// another: the number of blocks that the history contract reaches back.
const MAX_HEADERS: u64 = SERVE_WINDOW;

/// Maximum size of an answer of `eth_getProof`, which has about 15 kB.
const MAX_PROOF: u64 = 1 << 20;

/// A block that is linked to a finalised block, with everything that another party needs to check the
/// links.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[non_exhaustive]
pub struct LinkedBlock {
    /// The block from which the links start. Another party compares it with the state of their own
    /// light client.
    pub origin: Origin,
    /// The links from the origin to the block.
    pub links: Vec<Link>,
}

impl LinkedBlock {
    /// Verifies the links, and returns the block to which they lead. `origin` is the block that the
    /// verifier trusts: only the party that fetched the links may use [`Self::origin`].
    ///
    /// # Errors
    /// Returns the first link that does not hold.
    pub fn verify(&self, origin: &Origin, network: &Network) -> Result<Anchored, LinkError> {
        links::verify(&self.links, origin, network.history())
    }
}

/// Looks for a block in archives. Each header and proof that an archive has for the block is passed to
/// the second argument, which returns `true` if they are right; the search then ends. If no archive
/// has the right header and proof, the error states why an archive cannot be used.
pub type FindProof<'a> =
    dyn FnMut(u64, &mut dyn FnMut(Bytes, HeaderProof) -> bool) -> Result<(), String> + 'a;

/// Where links may come from, in addition to a client's beacon servers.
pub struct LinkOptions<'a> {
    /// Nodes that are asked for headers and for `eth_getProof`, in this order.
    pub nodes: &'a [Node],
    /// Archives with proofs of headers, for blocks that are further back.
    pub proofs: Option<&'a mut FindProof<'a>>,
    /// Maximum number of headers that are fetched to reach a block by parent hashes; 8,191 by
    /// default.
    pub max_headers: u64,
}

debug_by!(LinkOptions<'_>: nodes, max_headers);

impl<'a> LinkOptions<'a> {
    /// Returns the options for links from these nodes alone.
    pub const fn new(nodes: &'a [Node]) -> Self {
        Self { nodes, proofs: None, max_headers: MAX_HEADERS }
    }
}

/// A source that failed, so that the next plan does not use it.
#[derive(Clone, Copy)]
enum Missing {
    State { depth: u64 },
    Summaries,
    Proofs,
    Headers,
    Stopped,
}

impl BeaconClient {
    /// Links a block to the newest finalised block, in the cheapest way that the sources allow:
    /// parent hashes, the history contract (EIP-2935), or a proof of the header. Returns the linked
    /// block and the links. Every link is verified.
    ///
    /// The light client is not advanced first: see [`sync`](Self::sync).
    ///
    /// # Errors
    /// Returns a [`BeaconError`] if the block is not final, or if no source leads to it.
    pub fn link(
        &self,
        number: u64,
        options: LinkOptions<'_>,
    ) -> Result<(Anchored, LinkedBlock), BeaconError> {
        let client = self.light_client().ok_or(BeaconError::NoStart)?;
        let anchor = client.finalized().clone();
        let network = client.network().clone();
        let head = head_of(&anchor, options.nodes)?;
        if number > head.view().number() {
            let finalized = head.view().number();
            return Err(BeaconError::NotFinal { number, finalized });
        }
        let (fetched, failures) = (Vec::new(), Vec::new());
        Search { client: self, network, anchor, head, options, fetched, failures }.run(number)
    }
}

/// Returns the header of the block that a beacon header binds.
fn head_of(anchor: &Anchor, nodes: &[Node]) -> Result<HeaderBuf, BeaconError> {
    let slot = anchor.beacon.slot;
    let hash = anchor.execution.bound_hash().ok_or(BeaconError::NoExecution { slot })?;
    let asked = ask(nodes, |node| Ok(node.header_by_hash(hash)?));
    asked.map_err(|unanswered| {
        if unanswered.is_stopped() {
            return BeaconError::Stopped;
        }
        let failed = unanswered.0.into_iter().filter_map(|(node, why)| Some((node, why?)));
        let failures = failed.map(|(node, why)| format!("{}: {why}", node.name())).collect();
        BeaconError::NoHead { hash, failures }
    })
}

struct Search<'a, 'b> {
    client: &'a BeaconClient,
    network: Network,
    anchor: Anchor,
    head: HeaderBuf,
    options: LinkOptions<'b>,
    /// The valid links of the last plan. The next plan may begin with the same steps.
    fetched: Vec<Fetched>,
    failures: Vec<String>,
}

/// A step of a plan that was carried out.
struct Fetched {
    step: Step,
    link: Link,
    /// Header of the block to which the links lead. The last step of a plan needs none.
    header: Option<HeaderBuf>,
}

impl Search<'_, '_> {
    fn run(mut self, number: u64) -> Result<(Anchored, LinkedBlock), BeaconError> {
        let at = Believed {
            number: self.head.view().number(),
            slot: self.anchor.beacon.slot,
            is_mainnet: self.network.is_mainnet(),
        };
        let mut sources = Sources {
            headers: true,
            state_depth: Some(u64::MAX),
            summaries: !self.client.servers().is_empty(),
            header_proofs: self.options.proofs.is_some(),
        };
        loop {
            let Some(planned) = plan(at, number, &sources) else {
                return Err(BeaconError::Unreachable { number, failures: self.failures });
            };
            let headers = headers_of(&planned);
            if headers > self.options.max_headers {
                let (limit, failures) = (self.options.max_headers, self.failures);
                return Err(BeaconError::TooManyHeaders { number, headers, limit, failures });
            }
            match self.fetch(&planned, at.number, number) {
                Ok(linked) => return Ok(linked),
                Err(Missing::State { depth: 0 }) => sources.state_depth = None,
                Err(Missing::State { depth }) => sources.state_depth = Some(depth - 1),
                Err(Missing::Summaries) => sources.summaries = false,
                Err(Missing::Proofs) => sources.header_proofs = false,
                Err(Missing::Headers) => sources.headers = false,
                Err(Missing::Stopped) => return Err(BeaconError::Stopped),
            }
        }
    }

    /// Fetches the links of a plan, and verifies them one after the other.
    fn fetch(
        &mut self,
        planned: &Plan,
        top: u64,
        wanted: u64,
    ) -> Result<(Anchored, LinkedBlock), Missing> {
        let origin = Origin::from(&self.anchor);
        let mut verifier = LinkVerifier::new(origin, self.network.history());
        let same =
            self.fetched.iter().zip(&planned.steps).take_while(|(own, step)| own.step == **step);
        self.fetched.truncate(same.count());
        // The block up to which the links lead.
        let mut header = self.head.clone();
        for (index, step) in planned.steps.iter().enumerate() {
            let missing = match step {
                // The plan's number: depths then shrink with each plan, whatever nodes send.
                Step::HistoryContract { at, .. } => {
                    Missing::State { depth: top.saturating_sub(*at) }
                }
                Step::Summaries => Missing::Summaries,
                Step::HeaderProof { .. } => Missing::Proofs,
                Step::Parents { .. } => Missing::Headers,
            };
            if let Some(fetched) = self.fetched.get(index) {
                let followed = verifier.follow(&fetched.link);
                followed.map_err(|error| self.failed(Some(error.to_string()), missing))?;
            } else {
                let link = self.link(step, &header, &mut verifier);
                let link = link.map_err(|why| self.failed(why, missing))?;
                self.fetched.push(Fetched { step: *step, link, header: None });
            }
            let fetched = &self.fetched[index];
            if index + 1 == planned.steps.len() {
                let found = verifier.block().and_then(|block| block.number);
                if found != Some(wanted) {
                    let why = format!("the links lead to block {}", found.unwrap_or_default());
                    self.fetched.truncate(index);
                    return Err(self.failed(Some(why), missing));
                }
            } else if let (None, Some(block), false) =
                (&fetched.header, verifier.block(), matches!(step, Step::Summaries))
            {
                let included = header_in(&fetched.link);
                let next = included.map_or_else(|| self.header(block.hash), Ok);
                let next = next.map_err(|why| self.failed(why, missing))?;
                self.fetched[index].header = Some(next);
            }
            header = self.fetched[index].header.clone().unwrap_or(header);
        }
        let mut links: Vec<Link> =
            self.fetched.iter().map(|fetched| fetched.link.clone()).collect();
        if links.is_empty() {
            // The block is the finalised one.
            let headers = vec![Bytes::copy_from_slice(self.head.view().rlp())];
            let link = Link::Parents { headers };
            let followed = verifier.follow(&link);
            followed.map_err(|error| self.failed(Some(error.to_string()), Missing::Headers))?;
            links.push(link);
        }
        let shown = verifier.end();
        let shown =
            shown.map_err(|error| self.failed(Some(error.to_string()), Missing::Headers))?;
        Ok((shown, LinkedBlock { origin, links }))
    }

    /// Fetches the link of a step that starts from the block of this header. Of several answers, the
    /// first valid link is used.
    fn link(
        &mut self,
        step: &Step,
        header: &HeaderBuf,
        verifier: &mut LinkVerifier,
    ) -> Result<Link, Option<String>> {
        match step {
            Step::Parents { to, .. } => self.parents(header, *to, verifier),
            Step::HistoryContract { number, .. } => self.contract(header, *number, verifier),
            Step::Summaries => self.summaries(verifier),
            Step::HeaderProof { number } => self.proof(*number, verifier),
        }
    }

    /// Notes why a source failed. Without a reason, the client was stopped.
    fn failed(&mut self, why: Option<String>, missing: Missing) -> Missing {
        match why {
            Some(why) => {
                self.failures.push(why);
                missing
            }
            None => Missing::Stopped,
        }
    }

    /// Asks the nodes in turn, until `accept` returns a value for an answer. The error is `None` if
    /// the client was stopped, and otherwise has the reason of each node.
    fn first<T, U>(
        &self,
        what: &str,
        request: impl Fn(&Node) -> Result<Option<T>, RpcError>,
        mut accept: impl FnMut(T) -> Result<U, String>,
    ) -> Result<U, Option<String>> {
        let asked = ask(self.options.nodes, |node| {
            let accepted = request(node)?.map(&mut accept).transpose();
            accepted.map_err(Unaccepted::Answer)
        });
        asked.map_err(|unanswered| {
            if unanswered.is_stopped() {
                return None;
            }
            let line = |(node, why): &(Node, Option<Unaccepted>)| match (node.name(), why) {
                (name, None) => format!("{name}: the node does not have {what}"),
                (name, Some(why)) => format!("{name}, {what}: {why}"),
            };
            let failed: Vec<String> = unanswered.0.iter().map(line).collect();
            Some(reasons(&failed, || format!("no node to ask for {what}")))
        })
    }

    fn header(&self, hash: B256) -> Result<HeaderBuf, Option<String>> {
        self.first(
            &format!("the header of block {hash}"),
            |node| node.header_by_hash(hash),
            Ok::<_, String>,
        )
    }

    fn parents(
        &self,
        from: &HeaderBuf,
        to: u64,
        verifier: &mut LinkVerifier,
    ) -> Result<Link, Option<String>> {
        let last = from.view().number().saturating_sub(1);
        let rlp = |header: &HeaderBuf| Bytes::copy_from_slice(header.rlp());
        let what = format!("the headers from block {to} to {last}");
        let ask = |node: &Node| {
            let mut headers = Vec::new();
            node.headers(to..=last, |part| {
                headers.extend(part.iter().map(rlp));
                Ok::<_, RpcError>(())
            })?;
            headers.push(rlp(from));
            headers.reverse();
            Ok(Some(Link::Parents { headers }))
        };
        self.first(&what, ask, |link| followed(verifier, link))
    }

    fn contract(
        &self,
        under: &HeaderBuf,
        number: u64,
        verifier: &mut LinkVerifier,
    ) -> Result<Link, Option<String>> {
        let header = under.view();
        let what = format!("eth_getProof of block {}", header.number());
        let slots = [history_contract::slot(number)];
        let params = json!([history_contract::ADDRESS, slots, format!("{:#x}", header.number())]);
        let ask = |node: &Node| {
            let proof = node.with_max_answer(MAX_PROOF).read(
                "eth_getProof",
                &params,
                AccountProof::from_json,
            )?;
            // The text may repeat a part of the answer, and so a key of the URL.
            let malformed = |error: String| {
                RpcError::Malformed(RpcError::words(&node.endpoint().scrub(&error)))
            };
            let proof = proof.map_err(|error| malformed(error.to_string()))?;
            proof.verify(header.state_root()).map_err(|error| malformed(error.to_string()))?;
            Ok(Some(proof.nodes()))
        };
        self.first(&what, ask, |nodes| {
            let header = Bytes::copy_from_slice(header.rlp());
            followed(verifier, Link::HistoryContract { header, number, nodes })
        })
    }

    fn summaries(&self, verifier: &mut LinkVerifier) -> Result<Link, Option<String>> {
        let mut failed = Vec::new();
        for server in self.client.servers() {
            let why = match server.historical_summaries(self.anchor.beacon.state_root) {
                Ok(proof) => match followed(verifier, Link::Summaries(proof)) {
                    Ok(link) => return Ok(link),
                    Err(error) => error,
                },
                Err(RpcError::Stopped) => return Err(None),
                Err(error) => error.to_string(),
            };
            failed.push(format!("{}, historical summaries: {why}", server.endpoint()));
        }
        Err(Some(reasons(&failed, || "no server of historical summaries".to_owned())))
    }

    fn proof(&mut self, number: u64, verifier: &mut LinkVerifier) -> Result<Link, Option<String>> {
        let missing = || format!("no archive has a proof of block {number}");
        let find = self.options.proofs.as_mut().ok_or_else(|| Some(missing()))?;
        let mut held = None;
        let mut failed = Vec::new();
        let found = find(number, &mut |header, proof| {
            // The proof of another block holds too, and leads elsewhere.
            let other = HeaderView::decode(&header).map(|header| header.number());
            if let Some(other) = other.ok().filter(|&other| other != number) {
                failed.push(format!("an archive names block {other} as block {number}"));
                return false;
            }
            match followed(verifier, Link::HeaderProof { header, proof }) {
                Ok(link) => held = Some(link),
                Err(error) => failed.push(error),
            }
            held.is_some()
        });
        failed.extend(found.err());
        held.ok_or_else(|| Some(reasons(&failed, missing)))
    }
}

/// Verifies a link from the current block, and returns it if it is valid.
fn followed(verifier: &mut LinkVerifier, link: Link) -> Result<Link, String> {
    verifier.follow(&link).map_err(|error| error.to_string())?;
    Ok(link)
}

fn reasons(failed: &[String], none: impl FnOnce() -> String) -> String {
    if failed.is_empty() { none() } else { failed.join("; ") }
}

/// Returns the header of the block to which a link leads, if the link includes it.
fn header_in(link: &Link) -> Option<HeaderBuf> {
    let rlp = match link {
        Link::Parents { headers } => headers.last()?,
        Link::HeaderProof { header, .. } => header,
        _ => return None,
    };
    HeaderBuf::from_rlp(rlp.to_vec()).ok()
}

/// Returns the number of headers that a plan fetches by parent hashes.
fn headers_of(planned: &Plan) -> u64 {
    let headers = planned.steps.iter().map(|step| match step {
        Step::Parents { from, to } => from.saturating_sub(*to),
        _ => 0,
    });
    headers.sum()
}

/// The data that the sources serve.
#[derive(Debug, Clone, Copy)]
struct Sources {
    /// Headers by number or hash. The header of the believed block is taken to be known.
    headers: bool,
    /// Answers to `eth_getProof`: the number of blocks before the believed block whose state is
    /// served. 0 means that block only, and `u64::MAX` an archive. `None` if no state is served,
    /// because the believed block is already too old for a node.
    state_depth: Option<u64>,
    /// Historical summaries.
    summaries: bool,
    /// Proofs of headers.
    header_proofs: bool,
}

/// A believed block, and what is known of its network.
#[derive(Debug, Clone, Copy)]
struct Believed {
    /// Number of the execution block.
    number: u64,
    /// Slot of the beacon block that binds it.
    slot: u64,
    /// `true` on the Ethereum mainnet. The block numbers of other networks are not known here: plans for
    /// these networks have no header proofs, and may use the history contract before it exists, where no
    /// node can serve its state.
    is_mainnet: bool,
}

/// Mainnet's first block of Capella, from which on header proofs need historical summaries.
const CAPELLA: u64 = 17_034_870;
/// First slot of Capella on mainnet. Block [`CAPELLA`] is at slot 6,209,538.
const CAPELLA_SLOT: u64 = 6_209_536;
/// Mainnet's first block whose hash the history contract has: the parent of the first block of Prague.
const HISTORY_CONTRACT: u64 = 22_431_083;

/// Something to fetch and to verify.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// The headers from block `from`, whose hash is proven, back to block `to`, both included.
    Parents { from: u64, to: u64 },
    /// The hash of block `number` in the state of block `at`, by one `eth_getProof`. The header of `at` is
    /// part of the link.
    HistoryContract { at: u64, number: u64 },
    /// The historical summaries.
    Summaries,
    /// The header and the proof of a block.
    HeaderProof { number: u64 },
}

/// Steps to an earlier block, in the order in which they can be carried out.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Plan {
    steps: Vec<Step>,
    /// Estimated number of requests.
    requests: u64,
    /// Estimated bytes of the evidence that another party needs. JSON takes about twice as many.
    bytes: u64,
}

/// Bytes of a header; mainnet's have up to 652.
const HEADER: u64 = 650;
/// Bytes of the nodes from the state root to a slot of the contract, in September 2026.
const STATE: u64 = 3764 + 1779;
/// Bytes of the largest header proof before Gloas.
const PROOF: u64 = 840;
/// Bytes of a summary.
const SUMMARY: u64 = 64;
/// Maximum number of hops, which are 300 years of blocks: memory is bounded for any numbers.
const MAX_HOPS: u64 = 100_000;
/// Bytes that take as long as a request without data: 40 ms at 100 kB a second.
const REQUEST: u64 = 4000;

impl Plan {
    /// Returns the value by which plans are compared.
    const fn weight(&self) -> u64 {
        self.requests.saturating_mul(REQUEST).saturating_add(self.bytes)
    }

    /// Adds the steps of a plan that starts where this plan ends.
    fn then(mut self, next: Self) -> Self {
        self.steps.extend(next.steps);
        self.requests = self.requests.saturating_add(next.requests);
        self.bytes = self.bytes.saturating_add(next.bytes);
        self
    }
}

/// Returns the cheapest steps from a believed block to block `number`. Returns `None` if no source leads
/// to the block, for example because it is above the trusted block.
///
/// The result depends on estimates of size. If a source fails to serve a step, plan again without
/// that source.
///
/// | way | needs | evidence |
/// |---|---|---|
/// | parent hashes | headers of all blocks between | 650 bytes a block |
/// | history contract | the state of the believed block | 6.2 kB, at most 8,191 blocks back |
/// | hops over the contract | the state of older blocks | 6.2 kB for each 8,191 blocks back |
/// | header proof | a server of proofs, and from Capella on the summaries, for complete periods | 1.5 kB with the header, 64 bytes for each period |
///
/// One list of summaries replaces all hops: from September 2026 back to Prague these are about 440.
fn plan(head: Believed, number: u64, sources: &Sources) -> Option<Plan> {
    if number == head.number {
        return Some(Plan::default());
    }
    let direct = [
        by_parents(head.number, number, sources),
        by_contract(head, number, sources),
        by_proof(head, number, sources),
    ];
    // The lowest block that the contract leads to: parent hashes below it may start there.
    let reach = sources.state_depth.map(|depth| {
        let hops = (depth / SERVE_WINDOW).min(MAX_HOPS - 1) + 1;
        head.number.saturating_sub(hops * SERVE_WINDOW).max(first_in_contract(head))
    });
    let from_reach =
        reach.filter(|&reach| number < reach && reach < head.number).and_then(|reach| {
            let shown = [by_contract(head, reach, sources), by_proof(head, reach, sources)];
            let shown = shown.into_iter().flatten().min_by_key(Plan::weight)?;
            Some(shown.then(by_parents(reach, number, sources)?))
        });
    direct.into_iter().flatten().chain(from_reach).min_by_key(Plan::weight)
}

const fn first_in_contract(head: Believed) -> u64 {
    if head.is_mainnet { HISTORY_CONTRACT } else { 0 }
}

fn by_parents(from: u64, to: u64, sources: &Sources) -> Option<Plan> {
    let blocks = from.checked_sub(to).filter(|_| sources.headers)?;
    // The header at the start is counted, because nothing but its hash is shown.
    let requests = blocks.saturating_add(1);
    let bytes = requests.saturating_mul(HEADER);
    Some(Plan { steps: vec![Step::Parents { from, to }], requests, bytes })
}

fn by_contract(head: Believed, number: u64, sources: &Sources) -> Option<Plan> {
    let depth = sources.state_depth.filter(|_| number >= first_in_contract(head))?;
    // Block `head - 8191` is the last one in reach of the head itself.
    let hops = head.number.checked_sub(number)?.saturating_sub(1) / SERVE_WINDOW;
    // Each further hop starts from a header that is not known yet.
    if hops >= MAX_HOPS || hops * SERVE_WINDOW > depth || (hops > 0 && !sources.headers) {
        return None;
    }
    let at = |hop: u64| head.number - hop * SERVE_WINDOW;
    let step = |hop| Step::HistoryContract {
        at: at(hop),
        number: if hop < hops { at(hop + 1) } else { number },
    };
    // Each hop needs the header of its block, and a proof of that block's hash.
    let (requests, bytes) = (2 * (hops + 1), (hops + 1) * (HEADER + STATE));
    Some(Plan { steps: (0..=hops).map(step).collect(), requests, bytes })
}

fn by_proof(head: Believed, number: u64, sources: &Sources) -> Option<Plan> {
    let back = head.number.checked_sub(number)?;
    if !sources.header_proofs || !head.is_mainnet {
        return None;
    }
    let steps = vec![Step::HeaderProof { number }];
    let proof = Plan { steps, requests: 1, bytes: PROOF + HEADER };
    if number < CAPELLA {
        return Some(proof);
    }
    // Only complete periods have a summary. A block is at least one slot after its parent, so a
    // block this far back is surely in an earlier period. Nearer blocks may be, but their slots are
    // not known here.
    if !sources.summaries || back <= head.slot % PERIOD_SLOTS {
        return None;
    }
    let periods = head.slot.saturating_sub(CAPELLA_SLOT) / PERIOD_SLOTS;
    let bytes = periods.saturating_mul(SUMMARY);
    Some(Plan { steps: vec![Step::Summaries], requests: 1, bytes }.then(proof))
}

#[cfg(test)]
mod tests;
