//! What the headers of the audited chain commit to.

use chainsieve::alloy_primitives::U64;
use chainsieve::eth::chain_profile::{BloomSoundness, ChainProfile, ReceiptsScope};
use chainsieve_provider::{Node, RpcError};
use serde_json::json;

use super::ask::called;
use crate::audit::report::{AuditError, AuditReport, Difference};

/// Chain ids of the networks that test nodes make up: geth's `--dev` and ganache, hardhat and
/// anvil. Their blocks follow Ethereum's rules.
const LOCAL: [u64; 2] = [1337, 31_337];

/// The chain's profile, which states the rules that its nodes can be held to.
#[derive(Debug)]
pub(super) struct Chain {
    profile: ChainProfile,
}

impl Chain {
    /// Returns the chain with this profile, or with that of the node's chain id.
    ///
    /// On a chain without a profile, an honest node may have other headers, receipts and logs than
    /// Ethereum, so that nothing about them can be held against the node.
    pub(super) fn of(
        node: &Node,
        profile: Option<&ChainProfile>,
        report: &mut AuditReport,
    ) -> Result<Self, AuditError> {
        if let Some(profile) = profile {
            return Ok(Self { profile: profile.clone() });
        }
        let id = called(
            "eth_chainId",
            node.read("eth_chainId", &json!([]), |id| {
                serde_json::from_str(id).ok().map(|id: U64| id.to::<u64>())
            }),
        );
        let id = match id {
            Ok(id) => id,
            Err(AuditError::Rpc {
                error: RpcError::MethodMissing { .. } | RpcError::Node { .. },
                ..
            }) => None,
            Err(error) => return Err(error),
        };
        let (exact, every_log) = (BloomSoundness::Exact, ReceiptsScope::EveryLog);
        let profile = match id {
            Some(id) if LOCAL.contains(&id) => ChainProfile::assumed("local", exact, every_log),
            Some(id) => ChainProfile::of_chain_id(id)
                .unwrap_or_else(|| unknown(format!("chain {id} is unknown"), report)),
            None => unknown(String::from("the node names no chain id"), report),
        };
        Ok(Self { profile })
    }

    /// Returns `true` if the receipts root of a block commits to every log, and the hash of a
    /// header to its members, as on Ethereum.
    pub(super) fn commits_to_logs(&self, number: u64) -> bool {
        self.profile.at(number).receipts == ReceiptsScope::EveryLog
    }

    /// Returns the source of what is known about a block.
    pub(super) fn source(&self, number: u64) -> &str {
        &self.profile.at(number).source
    }

    /// Returns the relation of the header's filter to the logs of the block.
    pub(super) fn bloom(&self, number: u64) -> BloomSoundness {
        self.profile.at(number).bloom
    }

    /// Returns `true` if all receipts of the block have a status in place of a post-state.
    pub(super) fn has_statuses(&self, number: u64) -> bool {
        self.profile.has_statuses(number)
    }

    /// Counts a comparison by a rule that only chains like Ethereum have. On another chain, an
    /// honest node may differ, and the difference decides nothing.
    pub(super) fn judge(
        &self,
        report: &mut AuditReport,
        rule: &'static str,
        difference: Option<Difference>,
    ) {
        match difference {
            Some(difference) if !self.commits_to_logs(difference.block) => {
                let Difference { block, what, expected, got, .. } = difference;
                report.leave_undecided(|| {
                    let source = self.source(block);
                    format!(
                        "{rule}, block {block}: {what}: {got:?} in place of {expected}; {source}"
                    )
                });
            }
            difference => report.check(rule, difference),
        }
    }
}

/// Returns the profile of a chain about which nothing is known.
fn unknown(why: String, report: &mut AuditReport) -> ChainProfile {
    let (bloom, receipts) = (BloomSoundness::Unsound, ReceiptsScope::NotEveryLog);
    report.note(format!(
        "{why}: its filters, receipts and logs follow Ethereum's rules if you say so"
    ));
    ChainProfile::assumed("unknown", bloom, receipts).with_range(0, bloom, receipts, why)
}
