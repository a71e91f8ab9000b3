//! Forecast of a query's cost from nothing but headers, before any receipt is fetched.
//!
//! The number of candidate blocks is exact, because the headers are available. The number of false
//! candidates is estimated from the fill of each filter. The numbers of receipts and of bytes are
//! estimated from the gas used and from the fill. The factors of these estimates are means over 33
//! mainnet blocks of the years 2019 to 2025 with 5,469 receipts. For each of these blocks, the true
//! number of bytes is 0.69 to 1.44 times the estimate, and the true number of receipts is 0.38 to
//! 1.54 times the estimate.

#![expect(clippy::cast_precision_loss, reason = "counts become shares and sums of estimates")]

use alloc::vec::Vec;

use alloy_primitives::Bloom;
use serde::ser::SerializeStruct as _;

use super::bloom;
use super::bloom::FillHistogram;
use super::header::{ChainBlock, LinkedHeaders};
use super::log_query::CompiledQuery;
use super::scan;

/// Mean gas used for each receipt: 564.8 million gas over 5,469 mainnet receipts.
const GAS_PER_RECEIPT: f64 = 103_000.0;

/// Minimum gas that a mainnet transaction can use: half of 21,000, because before London, refunds
/// returned at most half of the gas.
const LEAST_GAS: u64 = 10_500;

/// Mean bytes of receipts for each distinct address or topic, without the bytes of filters.
///
/// The number of distinct values is estimated from the filter. Measured over 33 mainnet blocks.
const BYTES_PER_VALUE: f64 = 176.0;

/// Mean bytes of receipts for each unit of gas, without the bytes of filters. The constant is used
/// for blocks whose filter carries no information. Measured over 33 mainnet blocks.
const BYTES_PER_GAS: f64 = 0.0048;

/// Bytes that the filter adds to a receipt's RLP: 256 bytes, and a length prefix of 3 bytes.
const BLOOM_BYTES: f64 = 259.0;

/// Bytes that JSON-RPC adds to a receipt, besides writing each byte as two hex digits.
///
/// About 650 bytes are names and hashes of the receipt. About 430 bytes are added for each log, and
/// a mainnet receipt has about 2.5 logs.
const JSON_BYTES: f64 = 1_700.0;

/// [`ClauseForecast::selects_nothing`] returns `true` if at least this share of blocks passes the
/// clause.
const SELECTS_NOTHING: f64 = 0.9;

/// Largest number of values in a query for which each value is tested against every block.
///
/// For queries with more values than this number, each value is tested against a sample of the
/// blocks.
const VALUES_COUNTED_EVERYWHERE: usize = 8;
/// The sample contains every 64th block.
const SAMPLE: usize = 64;

/// A forecast of a query's cost, built from the headers of one or several ranges of blocks.
///
/// `serde` writes an object whose members have the names of the methods `blocks`, `candidates`,
/// `expected_false`, `receipts`, `most_receipts`, `slim_bytes`, `consensus_bytes` and `clauses`.
#[derive(Debug, Clone, PartialEq)]
pub struct Forecast {
    query: CompiledQuery,
    fills: FillHistogram,
    candidates: u64,
    clauses: Vec<ClauseForecast>,
    receipts: f64,
    bytes: f64,
    /// Upper bound of the gas that all candidates used together.
    gas_of_candidates: u64,
}

/// Estimates the size in bytes of a block's receipts as JSON-RPC sends them.
///
/// The size is twice the RLP, plus the JSON names and hashes. The estimate uses the gas that the
/// block used and the fill of its filter.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "rounded, not negative"
)]
pub fn json_bytes(block: &ChainBlock<'_>) -> u64 {
    let gas = block.gas_used as f64;
    let receipts = gas / GAS_PER_RECEIPT;
    let slim = slim_bytes(bloom::count_ones(block.bloom), 1.0, gas);
    (2.0 * (slim + receipts * BLOOM_BYTES) + receipts * JSON_BYTES) as u64
}

/// Estimates the bytes of the receipts in `count` blocks, without the bytes of filters.
///
/// `ones` is the number of set bits in the filter of each block, and `gas` is the gas that all
/// these blocks used together.
fn slim_bytes(ones: u32, count: f64, gas: f64) -> f64 {
    let values = bloom::estimated_values(ones);
    if values.is_finite() { values * BYTES_PER_VALUE * count } else { gas * BYTES_PER_GAS }
}

/// Forecast of the blocks that one clause of a query selects by itself.
///
/// A clause is the set of addresses, or the set of topics at one position.
///
/// `serde` writes an object whose members have the names of the methods `candidates`, `share`,
/// `values` and `selects_nothing`.
#[derive(Debug, Clone, PartialEq)]
pub struct ClauseForecast {
    candidates: u64,
    blocks: u64,
    values: Vec<u64>,
    sampled: u64,
}

impl ClauseForecast {
    /// Returns the number of blocks that pass this clause.
    pub fn candidates(&self) -> u64 {
        self.candidates
    }

    /// Returns the share of blocks that pass this clause, 0 to 1.
    pub fn share(&self) -> f64 {
        share(self.candidates, self.blocks)
    }

    /// Returns a share for each value of the clause: the share of blocks, 0 to 1, that may contain
    /// the value.
    ///
    /// The shares have the order of the values in [`CompiledQuery::clauses`]. For queries with more
    /// than 8 values, the share is measured on a sample: every 64th block.
    pub fn values(&self) -> impl ExactSizeIterator<Item = f64> {
        self.values.iter().map(|&passed| share(passed, self.sampled))
    }

    /// Returns `true` if at least 90 % of the blocks pass the clause, so that the clause adds cost
    /// but rules out few blocks.
    pub fn selects_nothing(&self) -> bool {
        self.share() >= SELECTS_NOTHING
    }
}

fn share(part: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { part as f64 / of as f64 }
}

impl Forecast {
    /// Creates the forecast of a query; the forecast contains no blocks yet.
    pub fn new(query: CompiledQuery) -> Self {
        let clause = |values: &Vec<[u16; 3]>| ClauseForecast {
            candidates: 0,
            blocks: 0,
            values: alloc::vec![0; values.len()],
            sampled: 0,
        };
        let clauses = query.clauses().iter().map(clause).collect();
        Self {
            query,
            fills: FillHistogram::default(),
            candidates: 0,
            clauses,
            receipts: 0.0,
            bytes: 0.0,
            gas_of_candidates: 0,
        }
    }

    /// Adds the blocks of a chain. A block that is added twice is counted twice.
    ///
    /// # Cost
    /// Makes one scan for the query, one scan for each clause, and one scan for each value. If the
    /// query has more than 8 values, the scans for single values read only every 64th block.
    pub fn add(&mut self, chain: &LinkedHeaders) {
        let blooms = chain.blooms();
        self.fills.add(blooms);
        for block in chain.candidates(&self.query) {
            self.candidates += 1;
            self.add_costs(bloom::count_ones(block.bloom), 1.0, block.gas_used as f64);
            self.gas_of_candidates = self.gas_of_candidates.saturating_add(block.gas_used);
        }

        // With many values, a full scan for each value would take too long: use a sample.
        let num_values: usize = self.query.clauses().iter().map(Vec::len).sum();
        let sample: Vec<_>;
        let sampled = if num_values > VALUES_COUNTED_EVERYWHERE {
            sample = blooms.iter().step_by(SAMPLE).copied().collect();
            &sample[..]
        } else {
            blooms
        };
        for (clause, values) in self.clauses.iter_mut().zip(self.query.clauses()) {
            let count = |values: &[[u16; 3]], blooms: &[Bloom]| {
                let query = CompiledQuery::new(alloc::vec![values.to_vec()]);
                scan::candidates(&query, blooms).len() as u64
            };
            clause.blocks += blooms.len() as u64;
            clause.candidates += count(values, blooms);
            clause.sampled += sampled.len() as u64;
            for (passed, value) in clause.values.iter_mut().zip(values) {
                *passed += count(core::slice::from_ref(value), sampled);
            }
        }
    }

    /// Adds the estimated receipts and bytes of `count` candidates.
    ///
    /// `ones` is the number of set bits in the filter of each candidate, and `gas` is the gas that
    /// all candidates used together.
    fn add_costs(&mut self, ones: u32, count: f64, gas: f64) {
        self.receipts += gas / GAS_PER_RECEIPT;
        self.bytes += slim_bytes(ones, count, gas);
    }

    /// Returns the number of blocks that were added.
    pub fn blocks(&self) -> u64 {
        self.fills.filters()
    }

    /// Returns the histogram of all added blocks, by the fill of their filters.
    pub fn fills(&self) -> &FillHistogram {
        &self.fills
    }

    /// Returns the number of blocks that must be checked, because their filters do not rule out a
    /// match.
    ///
    /// This number is exact.
    pub fn candidates(&self) -> u64 {
        self.candidates
    }

    /// Estimates how many blocks would be candidates if no block contained a match: see
    /// [`expected_false`].
    pub fn expected_false(&self) -> f64 {
        expected_false(&self.query, &self.fills)
    }

    /// Returns the forecast of each clause by itself, in the order of [`CompiledQuery::clauses`].
    pub fn clauses(&self) -> &[ClauseForecast] {
        &self.clauses
    }

    /// Estimates how many receipts the candidates have, from the gas that the candidates used.
    pub fn receipts(&self) -> f64 {
        self.receipts
    }

    /// Returns an upper bound of the number of receipts that the candidates can have.
    ///
    /// A mainnet transaction costs at least 21,000 gas, but before London, refunds returned at most
    /// half of this gas (Yellow Paper, 6.2 and appendix G; EIP-3529). The bound does not hold for
    /// chains with free or cheaper transactions.
    pub fn most_receipts(&self) -> u64 {
        self.gas_of_candidates / LEAST_GAS
    }

    /// Estimates the bytes of the candidates' receipts in the slim encoding of eth/69.
    ///
    /// Slim receipts have no filters. The estimate is based on the fill of the blocks' filters.
    pub fn slim_bytes(&self) -> f64 {
        self.bytes
    }

    /// Estimates the bytes of the candidates' receipts in consensus RLP, with a filter in each
    /// receipt.
    pub fn consensus_bytes(&self) -> f64 {
        self.bytes + self.receipts * BLOOM_BYTES
    }
}

/// Estimates how many blocks are candidates by chance, given the fills of their filters.
///
/// The result is a sum over all blocks: each block adds the probability that its filter passes the
/// query if the block contains no match. For a query without alternatives, this probability is the
/// filter's fill to the power of the number of distinct bits of the query. A clause with
/// alternatives contributes the probability that at least one of its values passes. The number
/// of a scan's candidates that contain no match is close to this estimate.
pub fn expected_false(query: &CompiledQuery, fills: &FillHistogram) -> f64 {
    fills.sum(chance(query))
}

/// Returns a function that computes, from the number of set bits of a filter, the probability that
/// the filter passes the query if its block contains no match.
fn chance(query: &CompiledQuery) -> impl Fn(u32) -> f64 {
    // Clauses with one value must all pass, so together they need the union of their bits.
    let mut fixed: Vec<u16> = Vec::new();
    for values in query.clauses() {
        if let [value] = values.as_slice() {
            fixed.extend(value);
        }
    }
    let fixed = distinct(&mut fixed);
    // For each clause with alternatives: number of values with one, two and three distinct bits.
    let mut alternatives: Vec<[usize; 3]> = Vec::new();
    for values in query.clauses().iter().filter(|values| values.len() != 1) {
        let mut counts = [0; 3];
        for value in values {
            counts[distinct(&mut value.to_vec()) - 1] += 1;
        }
        alternatives.push(counts);
    }
    move |ones| {
        let fill = f64::from(ones) / 2048.0;
        alternatives.iter().fold(libm::pow(fill, fixed as f64), |rate, counts| {
            let none = (1..).zip(counts).fold(1.0, |none, (bits, &values)| {
                none * libm::pow(1.0 - libm::pow(fill, f64::from(bits)), values as f64)
            });
            rate * (1.0 - none)
        })
    }
}

/// Returns the number of distinct positions.
fn distinct(positions: &mut Vec<u16>) -> usize {
    positions.sort_unstable();
    positions.dedup();
    positions.len()
}

impl serde::Serialize for Forecast {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_struct("Forecast", 8)?;
        object.serialize_field("blocks", &self.blocks())?;
        object.serialize_field("candidates", &self.candidates())?;
        object.serialize_field("expected_false", &self.expected_false())?;
        object.serialize_field("receipts", &self.receipts())?;
        object.serialize_field("most_receipts", &self.most_receipts())?;
        object.serialize_field("slim_bytes", &self.slim_bytes())?;
        object.serialize_field("consensus_bytes", &self.consensus_bytes())?;
        object.serialize_field("clauses", self.clauses())?;
        object.end()
    }
}

impl serde::Serialize for ClauseForecast {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut object = serializer.serialize_struct("ClauseForecast", 4)?;
        object.serialize_field("candidates", &self.candidates())?;
        object.serialize_field("share", &self.share())?;
        object.serialize_field("values", &self.values().collect::<Vec<_>>())?;
        object.serialize_field("selects_nothing", &self.selects_nothing())?;
        object.end()
    }
}

#[cfg(test)]
mod tests {
    use chainsieve_lanes::hash::keccak256;

    use super::*;
    use alloy_primitives::hex;
    use bloom::positions;

    /// The sequences of linked headers in `fixtures/`, from the years 2020, 2023 and 2025.
    fn runs() -> Vec<LinkedHeaders> {
        let json = include_str!("../../fixtures/ethereum/headers.json");
        let rows: Vec<serde_json::Value> = serde_json::from_str(json).unwrap();
        let of = |first: u64, last: u64| {
            let mut rlp = Vec::new();
            for number in first..=last {
                let is = |row: &&serde_json::Value| {
                    row["chain"] == "mainnet" && row["number"].as_u64() == Some(number)
                };
                let row = rows.iter().find(is).unwrap();
                rlp.extend(hex::decode(row["header"].as_str().unwrap()).unwrap());
            }
            let mut chain = LinkedHeaders::new();
            chain.extend_from_rlp(&rlp).unwrap();
            chain
        };
        alloc::vec![
            of(10_234_001, 10_234_007),
            of(18_090_205, 18_090_213),
            of(22_431_080, 22_431_086)
        ]
    }

    fn absent(seed: u32, name: &str) -> [u16; 3] {
        positions(&[name.as_bytes(), &seed.to_be_bytes()].concat())
    }

    /// Values that are in no block pass as often as the forecast estimates: for one clause, for two
    /// clauses and for alternatives.
    #[test]
    fn false_candidates_are_as_many_as_expected() {
        let shapes: [&dyn Fn(u32) -> CompiledQuery; 3] = [
            &|seed| CompiledQuery::new(alloc::vec![alloc::vec![absent(seed, "address")]]),
            &|seed| {
                CompiledQuery::new(alloc::vec![
                    alloc::vec![absent(seed, "address")],
                    alloc::vec![absent(seed, "topic")],
                ])
            },
            &|seed| {
                let any = (0..5).map(|i| absent(seed * 5 + i, "one of five")).collect();
                CompiledQuery::new(alloc::vec![any, alloc::vec![absent(seed, "topic")]])
            },
        ];
        let runs = runs();
        for (shape, tolerance) in shapes.into_iter().zip([0.03, 0.1, 0.06]) {
            let (mut expected, mut observed) = (0.0, 0.0);
            for seed in 0..4_000 {
                let mut forecast = Forecast::new(shape(seed));
                for chain in &runs {
                    forecast.add(chain);
                }
                assert_eq!(forecast.blocks(), 23);
                expected += forecast.expected_false();
                observed += forecast.candidates() as f64;
            }
            let ratio = observed / expected;
            assert!((ratio - 1.0).abs() < tolerance, "{observed} of {expected}");
        }
    }

    #[test]
    fn an_element_of_every_block_selects_nothing() {
        let hash = |signature: &str| positions(&keccak256(signature.as_bytes()));
        let transfer = hash("Transfer(address,address,uint256)");
        let query = CompiledQuery::new(alloc::vec![
            alloc::vec![absent(1, "address"), absent(2, "address")],
            alloc::vec![transfer],
        ]);
        let mut forecast = Forecast::new(query);
        for chain in runs() {
            forecast.add(&chain);
        }
        let [addresses, topic] = forecast.clauses() else { panic!("two clauses") };
        assert!(!addresses.selects_nothing() && topic.selects_nothing());
        assert!(topic.candidates() >= 22 && topic.values().all(|share| share > 0.95));
        assert_eq!(addresses.values().len(), 2);
        assert!(addresses.candidates() < topic.candidates());
    }

    /// Size of the JSON that geth writes for these receipts: 1,150 bytes for each receipt, plus its
    /// logs.
    fn json_bytes(encodings: &[Vec<u8>]) -> usize {
        use crate::eth::log::LocatedLog;
        use alloy_primitives::B256;

        let receipts = crate::eth::receipts::BlockReceipts::from_encodings(encodings).unwrap();
        let located = |log: &alloy_primitives::Log| LocatedLog {
            log: log.clone(),
            block_number: 17_686_111,
            block_hash: B256::ZERO,
            block_timestamp: Some(1_700_000_000),
            transaction_hash: Some(B256::ZERO),
            claimed_transaction_hash: None,
            transaction_index: 100,
            log_index: 200,
            removed: false,
        };
        let logs = receipts.iter().flat_map(|receipt| &receipt.logs);
        1_150 * receipts.len() + logs.map(|log| located(log).to_json().len() + 1).sum::<usize>()
    }

    /// Compares the receipts of real blocks with the estimates from their headers.
    #[test]
    fn receipts_and_bytes_are_of_the_right_size() {
        for block in [
            include_str!("../../fixtures/ethereum/blocks/mainnet_17686111.json"),
            include_str!("../../fixtures/ethereum/blocks/mainnet_17686112.json"),
            include_str!("../../fixtures/ethereum/blocks/mainnet_7000000.json"),
            include_str!("../../fixtures/ethereum/blocks/mainnet_14764013.json"),
        ] {
            let block: serde_json::Value = serde_json::from_str(block).unwrap();
            let header = hex::decode(block["header"].as_str().unwrap()).unwrap();
            let receipts = block["receipts"].as_array().unwrap();
            let hex_digits = |receipt: &serde_json::Value| receipt.as_str().unwrap().len() - 2;
            let bytes = receipts.iter().map(hex_digits).sum::<usize>() as f64 / 2.0;
            let mut chain = LinkedHeaders::new();
            chain.extend_from_rlp(&header).unwrap();
            let mut forecast = Forecast::new(CompiledQuery::new(Vec::new()));
            forecast.add(&chain);
            assert_eq!((forecast.blocks(), forecast.candidates()), (1, 1));
            let (factor, place) = (forecast.consensus_bytes() / bytes, &block["number"]);
            assert!((0.5..2.0).contains(&factor), "{place}: {factor}");
            let factor = forecast.receipts() / receipts.len() as f64;
            assert!((0.4..2.6).contains(&factor), "{place}: {factor}");
            assert!(forecast.most_receipts() >= receipts.len() as u64);
            assert!(forecast.slim_bytes() < forecast.consensus_bytes());
            let estimate = super::json_bytes(&chain.blocks().next().unwrap()) as f64;
            let of_rlp = 2.0 * forecast.consensus_bytes() + forecast.receipts() * JSON_BYTES;
            assert!((estimate - of_rlp).abs() < 2.0, "{place}: {estimate} {of_rlp}");
            let encodings: Vec<_> =
                receipts.iter().map(|hex| hex::decode(hex.as_str().unwrap()).unwrap()).collect();
            let factor = estimate / json_bytes(&encodings) as f64;
            assert!((0.5..2.0).contains(&factor), "{place}: {factor}");
        }
    }

    /// Transaction 112 of mainnet block 12,505,500 used 19,989 gas, because the rest of its gas was
    /// refunded.
    #[test]
    fn a_refunded_transaction_has_a_receipt_too() {
        let header = alloy_consensus::Header { gas_used: 19_989, ..Default::default() };
        let mut chain = LinkedHeaders::new();
        chain.extend_from_rlp(&alloy_rlp::encode(&header)).unwrap();
        let mut forecast = Forecast::new(CompiledQuery::new(Vec::new()));
        forecast.add(&chain);
        assert_eq!(forecast.most_receipts(), 1);
    }

    #[test]
    fn fills_of_nothing_are_zero() {
        let fills = FillHistogram::default();
        let figures = [fills.mean_fill(), fills.quantile(0.5), fills.false_positive_rate(3)];
        assert!(figures.iter().all(|&figure| figure.to_bits() == 0), "{figures:?}");
        let mut fills = FillHistogram::default();
        fills.add(&[[0_u8; 256], [0xff; 256], [0x0f; 256]]);
        assert_eq!((fills.filters(), fills.empty(), fills.uninformative()), (3, 1, 1));
        assert!(
            (fills.mean_fill() - 0.5).abs() < 1e-12 && (fills.quantile(0.5) - 0.5).abs() < 1e-12
        );
        assert!((fills.false_positive_rate(3) - (1.0 + 0.125) / 3.0).abs() < 1e-12);
        assert!((fills.estimated_values() - bloom::estimated_values(1024)).abs() < 1e-9);
    }
}
