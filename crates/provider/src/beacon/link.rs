//! Links from the newest finalised block to an earlier block, fetched from untrusted nodes, beacon
//! servers and archives.

use chainsieve::alloy_primitives::{B256, Bytes};
use chainsieve::eth::anchor::account_proof::AccountProof;
use chainsieve::eth::anchor::header_proof::HeaderProof;
use chainsieve::eth::anchor::history_contract;
use chainsieve::eth::anchor::links::{self, Anchored, Link, LinkError, LinkVerifier, Origin};
use chainsieve::eth::anchor::network::Network;
use chainsieve::eth::anchor::sync_committee::Anchor;
use chainsieve::eth::header::{HeaderBuf, HeaderView};
use serde_json::json;

use super::client::{BeaconClient, BeaconError};
use super::plan::{Believed, Plan, Sources, Step, plan};
use crate::nodes::ask::{Unaccepted, ask};
use crate::nodes::{Node, RpcError};

/// Maximum number of headers that are fetched for one link, unless [`LinkOptions::max_headers`] sets
/// another: the number of blocks that the history contract reaches back.
const MAX_HEADERS: u64 = history_contract::SERVE_WINDOW;

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
