//! Lines about events of the node: text for people on standard error, JSON on standard output.

use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};

use chainsieve::bitcoin::Network;
use chainsieve::bitcoin::p2p::ServiceFlags;
use chainsieve::btc::server::{Config, ServedChain};
use chainsieve_client::testnode::ConnectionNote;
use chainsieve_report::{Lines, count, grouped, json_line, print_log};
use chainsieve_report::args::network_name;
use serde_json::{Value, json};

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

    /// Prints that the node accepts connections, on standard output in both formats: a test waits
    /// for this line.
    pub(super) fn listening(&self, address: SocketAddr, chain: &ServedChain, config: Config) {
        let tip = chain.tip();
        let services = names(config.services(chain));
        if self.json {
            let members = json!({
                "address": address.to_string(),
                "network": network_name(self.network),
                "blocks": chain.len(),
                "height": tip.height,
                "tip": tip.hash.to_string(),
                "transactions": chain.mempool().len(),
                "services": services,
            });
            return self.print(&json_line("listening", members));
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
        let members = json!({
            "blocks": linked,
            "height": tip.height,
            "tip": tip.hash.to_string(),
            "disconnected": disconnected,
        });
        let left = match disconnected {
            0 => String::new(),
            left => format!(", {} removed from the chain", count(left, "block")),
        };
        let height = grouped(tip.height);
        let new = format!("{} new", count(linked, "block"));
        let text = format!("{new}{left}: tip {} at height {height}", tip.hash);
        self.event("chain", members, &text);
    }

    pub(super) fn mempool(&self, chain: &ServedChain) {
        let transactions = chain.mempool().len();
        let text = format!("mempool: {}", count(transactions, "transaction"));
        self.event("mempool", json!({ "transactions": transactions }), &text);
    }

    /// Prints an event of a connection.
    pub(super) fn note(&self, note: &ConnectionNote<'_>) {
        let (kind, members, text) = match note {
            ConnectionNote::Connected(peer, address) => (
                "connected",
                json!({ "peer": peer, "address": address.to_string() }),
                format!("peer {peer}: connected from {address}"),
            ),
            ConnectionNote::Ready(peer, met) => {
                let (agent, protocol) = (met.user_agent(), met.protocol());
                let members = json!({ "peer": peer, "user_agent": agent, "protocol": protocol });
                ("ready", members, format!("peer {peer}: {agent:?}, protocol {protocol}"))
            }
            ConnectionNote::Disconnected(peer, ended) => {
                let (reason, misbehaved) = (ended.to_string(), ended.is_misbehaviour());
                let members = json!({ "peer": peer, "reason": reason, "misbehaved": misbehaved });
                let why = if misbehaved { ", it broke the protocol" } else { "" };
                let text = format!("peer {peer}: disconnected{why}: {reason}");
                ("disconnected", members, text)
            }
            ConnectionNote::Refused(address, limit) => {
                let reason = format!("{limit} peers are connected, which is the limit");
                let members = json!({ "address": address.to_string(), "reason": reason });
                ("refused", members, format!("refused {address}: {reason}"))
            }
            ConnectionNote::Lost(error) => {
                return self.warning(&format!("a connection was lost: {error}"));
            }
            _ => return,
        };
        self.event(kind, members, &text);
    }

    pub(super) fn warning(&self, text: &str) {
        self.event("warning", json!({ "text": text }), &format!("warning: {text}"));
    }

    /// Prints one line: `members` if the format is JSON, otherwise `text`.
    fn event(&self, kind: &str, members: Value, text: &str) {
        if self.json {
            return self.print(&json_line(kind, members));
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
