//! Lines about events of the node: text for people on standard error, JSON on standard output.

use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};

use chainsieve::bitcoin::Network;
use chainsieve::bitcoin::p2p::ServiceFlags;
use chainsieve::btc::server::{Config, ServedChain};
use chainsieve_client::testnode::Note;
use serde_json::{Value, json};

use crate::args::network_name;
use crate::output::{Lines, count, grouped, print_log};

/// Prints complete lines from any thread.
pub(super) struct Log {
    json: bool,
    network: Network,
    lines: Mutex<Lines>,
}

impl Log {
    pub(super) fn new(json: bool, network: Network) -> Self {
        Self { json, network, lines: Mutex::new(Lines::default()) }
    }

    /// Prints that the node accepts connections, on standard output in both formats: a test waits for
    /// this line.
    pub(super) fn listening(&self, address: SocketAddr, chain: &ServedChain, config: Config) {
        let tip = chain.tip();
        let services = names(config.services(chain));
        let event = json!({
            "listening": {
                "address": address.to_string(),
                "network": network_name(self.network),
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
            network_name(self.network),
            count(chain.len(), "block"),
            tip.hash,
            grouped(tip.height),
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
        let height = grouped(tip.height);
        let new = format!("{} new", count(linked, "block"));
        self.event(&event, &format!("{new}{left}: tip {} at height {height}", tip.hash));
    }

    pub(super) fn mempool(&self, chain: &ServedChain) {
        let transactions = chain.mempool().len();
        let event = json!({ "mempool": { "transactions": transactions } });
        self.event(&event, &format!("mempool: {}", count(transactions, "transaction")));
    }

    /// Prints an event of a connection.
    pub(super) fn note(&self, note: &Note<'_>) {
        let (event, text) = match note {
            Note::Connected(peer, address) => (
                json!({ "connected": { "peer": peer, "address": address.to_string() } }),
                format!("peer {peer}: connected from {address}"),
            ),
            Note::Ready(peer, met) => {
                let (agent, protocol) = (met.user_agent(), met.protocol());
                let met = json!({ "peer": peer, "user_agent": agent, "protocol": protocol });
                (json!({ "ready": met }), format!("peer {peer}: {agent:?}, protocol {protocol}"))
            }
            Note::Disconnected(peer, ended) => {
                let (reason, misbehaved) = (ended.to_string(), ended.is_misbehaviour());
                let event = json!({ "peer": peer, "reason": reason, "misbehaved": misbehaved });
                let why = if misbehaved { ", it broke the protocol" } else { "" };
                let text = format!("peer {peer}: disconnected{why}: {reason}");
                (json!({ "disconnected": event }), text)
            }
            Note::Refused(address, limit) => {
                let reason = format!("the limit of {limit} connections is reached");
                let event = json!({ "address": address.to_string(), "reason": reason });
                (json!({ "refused": event }), format!("refused {address}: {reason}"))
            }
            Note::Lost(error) => return self.warning(&format!("a connection was lost: {error}")),
            _ => return,
        };
        self.event(&event, &text);
    }

    pub(super) fn warning(&self, text: &str) {
        self.event(&json!({ "warning": text }), &format!("warning: {text}"));
    }

    fn event(&self, event: &Value, text: &str) {
        if self.json {
            return self.print(&format!("{event}\n"));
        }
        print_log(text);
    }

    fn print(&self, text: &str) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        // The node continues without a reader of its log, because its purpose is to serve peers.
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
