//! What happens, line by line: for people on standard error, for programs on standard output.

use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};

use chainsieve::bitcoin::p2p::ServiceFlags;
use chainsieve::btc::server::{Config, Peer, ServedChain};
use chainsieve_client::testnode::{Ended, Note};
use serde_json::{Value, json};

use crate::args::Chain;
use crate::output::{Lines, count, grouped, print_log};

/// Prints lines whole, from whichever thread.
pub(super) struct Log {
    json: bool,
    network: Chain,
    lines: Mutex<Lines>,
}

impl Log {
    pub(super) fn new(json: bool, network: Chain) -> Self {
        Self { json, network, lines: Mutex::new(Lines::default()) }
    }

    /// The node can be connected to: on standard output in either form, since a test waits for it.
    pub(super) fn listening(&self, address: SocketAddr, chain: &ServedChain, config: Config) {
        let tip = chain.tip();
        let services = names(config.services(chain));
        let event = json!({
            "listening": {
                "address": address.to_string(),
                "network": self.network.to_string(),
                "blocks": chain.len(),
                "height": tip.height,
                "tip": tip.hash.to_string(),
                "transactions": chain.mempool().len(),
                "services": services,
            },
        });
        if self.json {
            return self.print(&format!("{event}\n"));
        }
        self.print(&format!(
            "listening at {address}: {}, {}, tip {} at height {}, {}\n",
            self.network,
            count(chain.len(), "block"),
            tip.hash,
            grouped(tip.height.into()),
            services.join(", ")
        ));
    }

    pub(super) fn chain(&self, chain: &ServedChain, linked: usize, disconnected: usize) {
        let tip = chain.tip();
        let event = json!({
            "chain": {
                "blocks": linked,
                "height": tip.height,
                "tip": tip.hash.to_string(),
                "disconnected": disconnected,
            },
        });
        let left = match disconnected {
            0 => String::new(),
            left => format!(", {} left the chain", count(left, "block")),
        };
        let height = grouped(tip.height.into());
        let new = format!("{} new", count(linked, "block"));
        self.event(&event, &format!("{new}{left}: tip {} at height {height}", tip.hash));
    }

    pub(super) fn mempool(&self, chain: &ServedChain) {
        let transactions = chain.mempool().len();
        let event = json!({ "mempool": { "transactions": transactions } });
        self.event(&event, &format!("mempool: {}", count(transactions, "transaction")));
    }

    /// What happens to connections.
    pub(super) fn note(&self, note: &Note<'_>) {
        match note {
            Note::Connected(peer, address) => self.connected(*peer, *address),
            Note::Ready(peer, met) => self.ready(*peer, met),
            Note::Disconnected(peer, ended) => self.disconnected(*peer, ended),
            Note::Refused(address, limit) => {
                self.refused(*address, &format!("{limit} are connected, the limit"));
            }
            Note::Lost(error) => self.warning(&format!("a connection was lost: {error}")),
            _ => {}
        }
    }

    fn connected(&self, peer: u64, address: SocketAddr) {
        let event = json!({ "connected": { "peer": peer, "address": address.to_string() } });
        self.event(&event, &format!("peer {peer}: connected from {address}"));
    }

    fn ready(&self, peer: u64, met: &Peer) {
        let (agent, protocol) = (met.user_agent(), met.protocol());
        let event = json!({ "ready": { "peer": peer, "user_agent": agent, "protocol": protocol } });
        self.event(&event, &format!("peer {peer}: {agent:?}, protocol {protocol}"));
    }

    fn disconnected(&self, peer: u64, ended: &Ended) {
        let (reason, misbehaved) = (ended.to_string(), ended.is_misbehaviour());
        let event = json!({
            "disconnected": { "peer": peer, "reason": reason, "misbehaved": misbehaved },
        });
        let word = if misbehaved { "disconnected, it broke the protocol" } else { "disconnected" };
        self.event(&event, &format!("peer {peer}: {word}: {reason}"));
    }

    fn refused(&self, address: SocketAddr, reason: &str) {
        let event = json!({ "refused": { "address": address.to_string(), "reason": reason } });
        self.event(&event, &format!("refused {address}: {reason}"));
    }

    pub(super) fn warning(&self, text: &str) {
        self.event(&json!({ "warning": text }), &format!("warning: {text}"));
    }

    pub(super) fn warnings(&self, texts: &[String]) {
        for text in texts {
            self.warning(text);
        }
    }

    fn event(&self, event: &Value, text: &str) {
        if self.json {
            return self.print(&format!("{event}\n"));
        }
        print_log(text);
    }

    fn print(&self, text: &str) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        // The node goes on without a reader: peers are what it is for.
        drop(lines.print(text));
    }
}

fn names(services: ServiceFlags) -> Vec<&'static str> {
    let known = [
        (ServiceFlags::NETWORK, "network"),
        (ServiceFlags::BLOOM, "bloom"),
        (ServiceFlags::WITNESS, "witness"),
        (ServiceFlags::COMPACT_FILTERS, "compact_filters"),
    ];
    known.into_iter().filter(|(flag, _)| services.has(*flag)).map(|(_, name)| name).collect()
}
