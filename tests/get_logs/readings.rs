//! Reads a filter with the library and applies it to a chain.

use chainsieve::eth::audit::{Audit, AuditError, AuditQuestion};
use chainsieve::eth::bloom::BloomAnswer;
use chainsieve::eth::chain_profile::ChainProfile;
use chainsieve::eth::json::{JsonPath, ValueProblem};
use chainsieve::eth::log::LocatedLog;
use chainsieve::eth::log_query::{LogQuery, QueryError, ResolvedBlocks, Semantics};

use testkit::eth::log_chains::Chain;

/// The semantics of geth and of alloy.
pub(crate) const BOTH: [Semantics; 2] = [Semantics::Geth, Semantics::Alloy];

/// A filter as the library reads it, and the logs that it selects, in the order of the chain.
pub(crate) struct Reading<'a> {
    pub(crate) query: LogQuery,
    pub(crate) semantics: Semantics,
    pub(crate) blocks: ResolvedBlocks,
    pub(crate) logs: Vec<&'a LocatedLog>,
    /// Numbers of the blocks of the whole chain that are ruled out by the bloom in their header.
    pub(crate) ruled_out: Vec<u64>,
}

/// The reason why a filter is rejected.
#[derive(Debug)]
pub(crate) enum Refusal {
    Query(QueryError),
    Blocks(QueryError),
    Audit(AuditError),
}

impl<'a> Reading<'a> {
    /// Reads a filter, resolves its blocks, and tests every log of the chain.
    ///
    /// # Panics
    /// If the bloom of a header rules out a log that matches.
    pub(crate) fn of(chain: &'a Chain, json: &str, semantics: Semantics) -> Result<Self, Refusal> {
        let query = LogQuery::from_json(json, semantics).map_err(Refusal::Query)?;
        let blocks = query.resolve(&chain.heads()).map_err(Refusal::Blocks)?;
        let mut reading =
            Self { query, semantics, blocks, logs: Vec::new(), ruled_out: Vec::new() };
        // A block hash is resolved without the chain, so an unknown hash is only found here.
        let (anchors, profile) = ([chain.run.tip()], ChainProfile::ethereum());
        Audit::new(reading.question(chain, &anchors, &profile), &[]).map_err(Refusal::Audit)?;
        let compiled = reading.query.compile();
        for block in &chain.run.blocks {
            let bloom = block.view().logs_bloom();
            let ruled_out = match bloom.bytes().map(|bloom| compiled.answer(bloom)) {
                Some(BloomAnswer::No) => true,
                Some(BloomAnswer::Maybe) => false,
                other => panic!("block {}: {other:?}", block.number),
            };
            let matching =
                block.logs.iter().filter(|log| reading.query.matches(&log.log, semantics));
            let matching: Vec<_> = matching.collect();
            assert!(matching.is_empty() || !ruled_out, "block {} is lost: {json}", block.number);
            reading.ruled_out.extend(ruled_out.then_some(block.number));
            if reading.blocks.contains(block.number, &block.hash) {
                reading.logs.extend(matching);
            }
        }
        Ok(reading)
    }

    /// Returns the question of an audit under these semantics.
    pub(crate) fn question<'q>(
        &'q self,
        chain: &'q Chain,
        anchors: &'q [alloy_primitives::B256],
        profile: &'q ChainProfile,
    ) -> AuditQuestion<'q> {
        let Self { query, semantics, blocks, .. } = self;
        let question = chain.run.question(query, anchors, profile);
        AuditQuestion { blocks: *blocks, semantics: *semantics, ..question }
    }

    /// Returns the block number and log index of each log, as in the corpus.
    pub(crate) fn places(&self) -> Vec<[u64; 2]> {
        self.logs.iter().map(|log| [log.block_number, log.log_index]).collect()
    }
}

impl Refusal {
    /// Returns `true` if the filter could be read, but its blocks could not be resolved.
    pub(crate) fn is_of_blocks(&self) -> bool {
        !matches!(self, Self::Query(_))
    }

    /// Returns `true` if this is the error that the corpus describes as `said`.
    ///
    /// # Panics
    /// If no test knows the description.
    pub(crate) fn is(&self, said: &str) -> bool {
        use QueryError as Q;
        use ValueProblem as P;
        let value = match self {
            Self::Query(Q::Value { place, problem }) => Some((place, problem)),
            _ => None,
        };
        let of_field =
            |field: &str| value.filter(|(JsonPath { field: found, .. }, _)| *found == field);
        let problem = |field| of_field(field).map(|(_, problem)| problem);
        match said {
            "more than four topics" => {
                matches!(self, Self::Query(Q::TooManyPositions { found: 5 }))
            }
            "unknown field" => {
                matches!(self, Self::Query(Q::UnknownField(field)) if field == "limit")
            }
            "blockHash with fromBlock or toBlock" => matches!(self, Self::Query(Q::HashAndRange)),
            "hex number with leading zero digits" => {
                matches!(problem("fromBlock"), Some(P::LeadingZero { .. }))
            }
            "block number" => {
                matches!(problem("fromBlock"), Some(P::NotABlock { .. } | P::WrongKind { .. }))
            }
            "hex string without 0x prefix or empty" => {
                matches!(problem("fromBlock"), Some(P::WrongKind { found: "a number", .. }))
            }
            "non-string address" => {
                matches!(problem("address"), Some(P::WrongKind { found: "null", .. }))
            }
            "address length" => {
                matches!(problem("address"), Some(P::Length { expected: 20, found: 1, .. }))
            }
            "topic length" => {
                matches!(problem("topics"), Some(P::Length { expected: 32, found: 1, .. }))
            }
            "pending logs are not supported" => {
                matches!(self, Self::Blocks(QueryError::Pending))
            }
            "invalid block range" => matches!(self, Self::Blocks(QueryError::Reversed { .. })),
            "block range extends beyond current head block" => {
                matches!(self, Self::Blocks(QueryError::BeyondHead { .. }))
            }
            "unknown block" => matches!(self, Self::Audit(AuditError::NotOnChain { .. })),
            other => panic!("no test knows the error {other:?}"),
        }
    }
}
