//! The receipts of blocks from their rows: roots and filters of several blocks together.

use alloc::vec::Vec;
use core::ops::Range;

use alloy_primitives::B256;
use alloy_rlp::{EMPTY_LIST_CODE, EMPTY_STRING_CODE, Encodable as _, length_of_length};
use chainsieve_lanes::hash::keccak256_each;
use chainsieve_lanes::simd::Backend;

use super::header::{HeaderFacts, HeaderHash};
use super::rows::Rows;
use super::verdict::{BlockVerdict, Check, Grade, HeaderBasis, Row};
use super::{BlockColumns, LogRow, TransactionRow};
use crate::eth::bloom;
use crate::eth::chain_profile::{BloomSoundness, ChainProfile, ReceiptsScope};
use crate::eth::receipts::rlp::{LogBlooms, ReceiptFields, is_known};
use crate::eth::receipts::{DEPOSIT_TYPE, Outcome};
use crate::eth::trie::{Items, OrderedTries};

/// A block on the way to its verdict.
struct Block<'a> {
    facts: HeaderFacts<'a>,
    rows: Rows<'a>,
    verdict: BlockVerdict,
    bloom: BloomSoundness,
    has_equal_bloom: bool,
    is_filtered: bool,
    /// The header commits to all rows of the block.
    commits: bool,
    hash: Option<(HeaderHash, Range<usize>)>,
    receipts: Result<Receipts, &'static str>,
    /// The block's groups of values in [`LogBlooms`]: a group for each transaction, and one for the logs of
    /// no transaction.
    groups: Range<usize>,
}

/// What the encodings of receipts need beside the rows.
struct Receipts {
    /// For each transaction, where its logs end.
    ends: Vec<usize>,
    outcomes: Vec<Outcome>,
    cumulative_gas_used: Vec<u64>,
    /// The column that could be the reason for another root: its usual value was taken.
    excuse: Option<&'static str>,
}

/// Verifies blocks, and appends their verdicts.
pub(super) fn verify(
    backend: Backend,
    blocks: &[BlockColumns<'_>],
    profile: Option<&ChainProfile>,
    verdicts: &mut Vec<BlockVerdict>,
) {
    let mut headers = Vec::new();
    let mut groups = 0;
    let mut work: Vec<_> = blocks
        .iter()
        .map(|block| {
            let block = Block::of(block, profile, groups, &mut headers);
            groups = block.groups.end;
            block
        })
        .collect();

    let encoded = work.iter().filter_map(|block| Some(&headers[block.hash.as_ref()?.1.clone()]));
    let hashes = keccak256_each(backend, &encoded.collect::<Vec<_>>());
    let encoded = work.iter_mut().filter_map(|block| Some((block.hash.take()?.0, block)));
    for ((header, block), hash) in encoded.zip(hashes) {
        block.compare_hash(&header, B256::new(hash));
    }

    let count = work.iter().flat_map(Block::logs).map(|(_, log)| values(log).count()).sum();
    let groups = work.iter().flat_map(Block::groups);
    let groups = groups.map(|logs| logs.iter().flat_map(|(_, log)| values(log)));
    let blooms = LogBlooms::of_values(backend, count, groups);
    let lists: Vec<_> = work
        .iter()
        .filter_map(|block| {
            let receipts = block.receipts.as_ref().ok()?;
            Some(Encodings { block, receipts, blooms: &blooms })
        })
        .collect();
    let tries = OrderedTries::of(backend, &lists.iter().collect::<Vec<_>>());
    let roots: Vec<_> = (0..lists.len()).map(|list| tries.root(list)).collect();
    let mut roots = roots.into_iter();
    for mut block in work {
        let root = block.receipts.is_ok().then(|| roots.next()).flatten();
        block.compare_bloom(&blooms);
        block.compare_root(root);
        verdicts.push(block.finish());
    }
}

impl<'a> Block<'a> {
    /// Reads a block, and appends the encoding of its header to `headers`.
    fn of(
        block: &BlockColumns<'a>,
        profile: Option<&ChainProfile>,
        first_group: usize,
        headers: &mut Vec<u8>,
    ) -> Self {
        let mut verdict = BlockVerdict {
            number: block.number,
            grade: Grade::Undecided,
            header: HeaderBasis::Unproven,
            receipts_root: false,
            hash: None,
            parent_hash: None,
            faults: Vec::new(),
            missing: Vec::new(),
            computed: None,
            named_by_rows: None,
        };
        let range = profile.map(|profile| profile.at(block.number));
        let commits = range.is_some_and(|range| range.receipts == ReceiptsScope::EveryLog);
        let facts = HeaderFacts::of(block, commits, &mut verdict);
        let start = headers.len();
        let hash = match facts.row {
            _ if facts.is_trusted => None,
            Some((at, row)) => row.encode(at, &mut verdict, headers),
            None => {
                verdict.lacks(Check::HeaderHash, "headers");
                None
            }
        };
        if let Some((at, row)) = facts.row {
            for column in row.malformed() {
                let row = Some(Row::Headers(at));
                verdict.fault_if(commits, Check::Cells, row, Some(column));
            }
        }
        // The hash of a trusted header is that of the block on every chain that hashes its encoding.
        let mut rows = Rows::of(block, commits, facts.is_trusted, &mut verdict);
        // Without any row, nothing shows that the tables have the block.
        rows.has_whole_indices &= facts.is_trusted || facts.row.is_some() || !rows.is_empty();
        let since = profile.and_then(|profile| profile.statuses_since);
        let has_statuses = since.map(|first| first <= block.number);
        let has_statuses = has_statuses.or(facts.has_base_fee.then_some(true));
        let is_malformed =
            |row: &TransactionRow<'_>| row.root.is_some_and(|root| !matches!(root.len(), 0 | 32));
        if has_statuses == Some(false)
            && let Some((row, _)) =
                rows.transactions.iter().flatten().find(|(_, row)| is_malformed(row))
        {
            let row = Some(Row::Transactions(*row));
            verdict.fault_if(commits, Check::Cells, row, Some("transactions.root"));
        }
        let mut receipts = Receipts::of(&rows, &facts, has_statuses);
        if block.is_filtered && rows.transactions.is_some() && !rows.has_whole_transactions {
            receipts = Err("rows");
        }
        if !commits {
            // The root of such a chain proves nothing, equal or not.
            receipts = Err("profile");
        } else if receipts.is_ok() && facts.receipts_root.is_none() {
            receipts = Err("headers.receipts_root");
        } else if let Ok(receipts) = &mut receipts
            && block.is_filtered
        {
            receipts.excuse = Some("rows");
        }
        let groups = 1 + receipts.as_ref().map_or(0, |receipts| receipts.ends.len());
        Self {
            facts,
            rows,
            verdict,
            bloom: range.map_or(BloomSoundness::Unsound, |range| range.bloom),
            has_equal_bloom: false,
            is_filtered: block.is_filtered,
            commits,
            hash: hash.map(|hash| (hash, start..headers.len())),
            receipts,
            groups: first_group..first_group + groups,
        }
    }

    fn logs(&self) -> &[(usize, &'a LogRow<'a>)] {
        self.rows.logs.as_deref().unwrap_or_default()
    }

    /// Returns the logs of each transaction, and those of no transaction.
    fn groups(&self) -> impl Iterator<Item = &[(usize, &'a LogRow<'a>)]> {
        let ends = self.receipts.as_ref().map_or(&[][..], |receipts| &receipts.ends);
        let mut start = 0;
        ends.iter().copied().chain([self.logs().len()]).map(move |end| {
            let group = &self.logs()[start..end];
            start = end;
            group
        })
    }

    fn compare_hash(&mut self, header: &HeaderHash, computed: B256) {
        let verdict = &mut self.verdict;
        match header.claimed {
            None => {
                verdict.lacks(Check::HeaderHash, "headers.hash");
                // It may be what a block above names. If not, the header may have other fields.
                verdict.computed = Some(computed);
            }
            Some(claimed) if claimed == computed => {
                verdict.computed = Some(computed);
                verdict.header = HeaderBasis::Recomputed;
            }
            Some(_) => match header.excuse {
                Some(column) => verdict.lacks(Check::HeaderHash, column),
                None => {
                    verdict.fault_if(self.commits, Check::HeaderHash, Some(header.row), None);
                }
            },
        }
    }

    fn compare_bloom(&mut self, blooms: &LogBlooms) {
        let logs = self.rows.logs.as_deref().unwrap_or_default();
        let lacks = |column: fn(&LogRow<'_>) -> bool| logs.iter().any(|(_, log)| column(log));
        let (verdict, is_filtered) = (&mut self.verdict, self.is_filtered);
        let missing = match self.facts.bloom {
            _ if !self.bloom.proves_absence() => Some("profile"),
            None => Some("headers.logs_bloom"),
            _ if self.rows.logs.is_none() => Some("logs"),
            _ if lacks(|log| log.address.is_none()) => Some("logs.address"),
            _ if lacks(|log| log.topics.is_none()) => Some("logs.topics"),
            _ => None,
        };
        let (Some(header), None) = (self.facts.bloom, missing) else {
            return verdict.lacks(Check::LogsBloom, missing.unwrap_or_default());
        };
        let bits = blooms.of_receipts(self.groups.clone());
        if bits == *header {
            self.has_equal_bloom = true;
        } else if !bloom::covers(header, &bits) {
            let is_outside = |log: &LogRow<'_>| {
                let mut bits = [0; bloom::BYTES];
                values(log).for_each(|value| bloom::accrue_value(&mut bits, value));
                !bloom::covers(header, &bits)
            };
            let first = logs.iter().find(|(_, log)| is_outside(log));
            verdict.fault(Check::LogsBloom, first.map(|(row, _)| Row::Logs(*row)));
        } else if is_filtered {
            verdict.lacks(Check::LogsBloom, "rows");
        } else if self.bloom == BloomSoundness::Exact {
            verdict.fault(Check::LogsBloom, None);
        } else {
            verdict.lacks(Check::LogsBloom, "profile"); // it may have more bits
        }
    }

    fn compare_root(&mut self, root: Option<B256>) {
        let receipts = match &self.receipts {
            Err(missing) => return self.verdict.lacks(Check::ReceiptsRoot, missing),
            Ok(receipts) => receipts,
        };
        if root == self.facts.receipts_root {
            let logs = receipts.ends.last().copied().unwrap_or_default();
            let Some((row, _)) = self.logs().get(logs) else {
                self.verdict.receipts_root = true;
                return;
            };
            // The root covers all logs but those of no transaction.
            self.verdict.fault(Check::ReceiptsRoot, Some(Row::Logs(*row)));
        } else if let Some(missing) = receipts.excuse {
            self.verdict.lacks(Check::ReceiptsRoot, missing);
        } else {
            self.verdict.fault(Check::ReceiptsRoot, None);
        }
    }

    fn finish(mut self) -> BlockVerdict {
        let verdict = &mut self.verdict;
        if self.facts.is_trusted {
            verdict.header = HeaderBasis::Trusted;
        }
        let count = self.facts.transaction_count.zip(self.rows.transactions.as_ref());
        if let Some((count, rows)) = count
            && self.commits
            && !self.is_filtered
            && count != rows.len() as u64
        {
            verdict.fault(Check::TransactionCount, self.facts.row.map(|(at, _)| Row::Headers(at)));
        }
        let grade = match verdict.header {
            HeaderBasis::Unproven if verdict.receipts_root => Grade::Consistent,
            _ if verdict.receipts_root => Grade::Complete,
            _ if self.has_equal_bloom && !self.is_filtered && self.rows.has_whole_indices => {
                Grade::Bloom
            }
            _ if self.rows.has_whole_indices && !self.is_filtered => Grade::Indices,
            _ => Grade::Undecided,
        };
        if verdict.faults.is_empty() {
            verdict.grade = grade;
        }
        self.verdict
    }
}

impl Receipts {
    /// Reads what receipts need beside the rows, or returns the table or column that is absent.
    ///
    /// `has_statuses` is `None` if it is unknown whether receipts have a status or a post-state.
    fn of(
        rows: &Rows<'_>,
        facts: &HeaderFacts<'_>,
        has_statuses: Option<bool>,
    ) -> Result<Self, &'static str> {
        let transactions = rows.transactions.as_deref().ok_or("transactions")?;
        let logs = rows.logs.as_deref().ok_or("logs")?;
        if !rows.has_whole_transactions {
            return Err("transactions"); // some of their rows
        }
        let mut excuse = None;
        let mut assume = |column, is_absent: bool| excuse = excuse.or(is_absent.then_some(column));

        // Typed transactions exist since Berlin, which is later than Byzantium.
        let is_typed = |row: &TransactionRow<'_>| row.receipt_type.is_some_and(|kind| kind != 0);
        let has_statuses =
            has_statuses.or(transactions.iter().any(|(_, row)| is_typed(row)).then_some(true));
        let mut outcomes = Vec::with_capacity(transactions.len());
        for (_, row) in transactions {
            assume("transactions.transaction_index", row.transaction_index.is_none());
            assume("transactions.receipt_type", !row.receipt_type.is_some_and(is_known));
            if row.receipt_type == Some(DEPOSIT_TYPE) {
                assume("transactions.deposit_receipt_version", version(row).is_none());
                assume("transactions.deposit_nonce", row.deposit_nonce.is_none());
            }
            // Zeros are no state: some tables have them where there is no root.
            let post_state = row.root.and_then(|root| B256::try_from(root).ok());
            let post_state = post_state.filter(|root| !root.is_zero());
            outcomes.push(match (row.status, post_state, has_statuses) {
                // Some tables have a made-up status before Byzantium, or a made-up root after it.
                (Some(status), _, Some(true)) | (Some(status), None, _) => {
                    assume("transactions.root", has_statuses != Some(true));
                    Outcome::Status(status)
                }
                (status, Some(root), _) => {
                    // Without a status, the root may be made up.
                    assume("transactions.status", status.is_none() && has_statuses != Some(false));
                    assume("profile", status.is_some() && has_statuses.is_none());
                    Outcome::PostState(root)
                }
                (None, None, Some(false)) => return Err("transactions.root"),
                (None, None, _) => return Err("transactions.status"),
            });
        }
        let cumulative_gas_used = cumulative(transactions, facts, &mut assume)?;

        let mut ends = Vec::with_capacity(transactions.len());
        let mut end = 0;
        for (_, log) in logs {
            if log.transaction_index.is_none() {
                return Err("logs.transaction_index");
            } else if log.address.is_none() {
                return Err("logs.address");
            } else if log.topics.is_none() {
                return Err("logs.topics");
            }
            assume("logs.log_index", log.log_index.is_none());
            // Null is not the empty string, unless the source can't tell them apart.
            assume("logs.data", log.data.is_none());
        }
        for transaction in 0..transactions.len() as u64 {
            let of_it =
                |(_, log): &&(usize, &LogRow<'_>)| log.transaction_index == Some(transaction);
            end += logs[end..].iter().take_while(of_it).count();
            ends.push(end);
        }
        Ok(Self { ends, outcomes, cumulative_gas_used, excuse })
    }
}

/// Returns the cumulative gas of each transaction, or the column that is absent.
fn cumulative(
    transactions: &[(usize, &TransactionRow<'_>)],
    facts: &HeaderFacts<'_>,
    assume: &mut impl FnMut(&'static str, bool),
) -> Result<Vec<u64>, &'static str> {
    const COLUMN: &str = "transactions.cumulative_gas_used";
    let mut sum = 0_u64;
    let mut gas = Vec::with_capacity(transactions.len());
    for (_, row) in transactions {
        sum = match (row.cumulative_gas_used, row.gas_used) {
            (Some(cumulative), _) => cumulative,
            // Sums of true values do not overflow.
            (None, Some(used)) => sum.wrapping_add(used),
            (None, None) => return Err(COLUMN),
        };
        gas.push(sum);
    }
    let is_derived = |(_, row): &(usize, &TransactionRow<'_>)| row.cumulative_gas_used.is_none();
    if transactions.iter().any(is_derived) && facts.gas_used != Some(sum) {
        // The column `gas_used` has the cumulative gas, if it ends with the gas of the block.
        let used: Vec<_> = transactions.iter().filter_map(|(_, row)| row.gas_used).collect();
        if transactions.iter().all(is_derived)
            && used.is_sorted()
            && used.last().copied() == facts.gas_used
        {
            return Ok(used);
        }
        // From Amsterdam on, the gas of a transaction is not what it adds to the gas of the block.
        assume(COLUMN, facts.gas_used.is_none() || !facts.precedes_amsterdam);
    }
    Ok(gas)
}

/// Returns nonce and version of a deposit of the OP stack, if the root covers them.
fn deposit(row: &TransactionRow<'_>) -> Option<(u64, u64)> {
    let is_deposit = row.receipt_type == Some(DEPOSIT_TYPE);
    row.deposit_nonce.zip(version(row)).filter(|_| is_deposit)
}

/// Returns the version of a deposit. The first one is 1: some tables have a 0 where there is none.
fn version(row: &TransactionRow<'_>) -> Option<u64> {
    row.deposit_receipt_version.filter(|version| *version != 0)
}

/// Returns address and topics of a log.
fn values<'a>(log: &'a LogRow<'_>) -> impl Iterator<Item = &'a [u8]> {
    log.address.into_iter().chain(topics(log))
}

fn topics<'a>(log: &'a LogRow<'_>) -> impl Iterator<Item = &'a [u8]> {
    let topics = log.topics.as_ref().map_or(&[][..], |topics| &topics[..]);
    topics.iter().filter_map(|topic| *topic)
}

/// The receipts of a block, which are encoded one by one.
struct Encodings<'a> {
    block: &'a Block<'a>,
    receipts: &'a Receipts,
    blooms: &'a LogBlooms,
}

impl Items for Encodings<'_> {
    fn count(&self) -> usize {
        self.receipts.ends.len()
    }

    fn item<'a>(&'a self, index: u32, scratch: &'a mut Vec<u8>) -> &'a [u8] {
        let Self { block, receipts, blooms } = self;
        let index = index as usize;
        let start = index.checked_sub(1).map_or(0, |before| receipts.ends[before]);
        let row = block.rows.transactions.as_ref().map(|rows| rows[index].1);
        let row = row.expect("a block with receipts has transactions");
        let deposit = deposit(row);
        let fields = ReceiptFields {
            receipt_type: row.receipt_type.unwrap_or(0),
            outcome: receipts.outcomes[index],
            cumulative_gas_used: receipts.cumulative_gas_used[index],
            deposit_nonce: deposit.map(|(nonce, _)| nonce),
            deposit_receipt_version: deposit.map(|(_, version)| version),
        };
        let logs = &block.logs()[start..receipts.ends[index]];
        let lengths = logs.iter().map(|(_, log)| list_length(log_lengths(log).1));
        let payload = lengths.sum();
        let write = |out: &mut Vec<u8>| write_logs(logs, payload, out);
        let bloom = blooms.of_receipt(block.groups.start + index);
        fields.encode(&bloom, list_length(payload), write, scratch);
        scratch
    }
}

/// Returns the lengths of the topics and of all fields of a log.
fn log_lengths(log: &LogRow<'_>) -> (usize, usize) {
    let length = |bytes: Option<&[u8]>| bytes.unwrap_or_default().length();
    let topics = topics(log).map(|topic| length(Some(topic))).sum();
    (topics, length(log.address) + list_length(topics) + length(log.data))
}

/// Returns the length of a list with a payload of this length.
fn list_length(payload: usize) -> usize {
    length_of_length(payload) + payload
}

/// Appends the list of some logs: each is a list of address, topics and data.
///
/// `Encodable` would append each byte over a trait object, which is slower.
fn write_logs(logs: &[(usize, &LogRow<'_>)], payload: usize, out: &mut Vec<u8>) {
    write_length(EMPTY_LIST_CODE, payload, out);
    for (_, log) in logs {
        let (topics_length, length) = log_lengths(log);
        write_length(EMPTY_LIST_CODE, length, out);
        write_string(log.address.unwrap_or_default(), out);
        write_length(EMPTY_LIST_CODE, topics_length, out);
        topics(log).for_each(|topic| write_string(topic, out));
        write_string(log.data.unwrap_or_default(), out);
    }
}

fn write_string(bytes: &[u8], out: &mut Vec<u8>) {
    match bytes {
        [byte] if *byte < EMPTY_STRING_CODE => out.push(*byte),
        _ => {
            write_length(EMPTY_STRING_CODE, bytes.len(), out);
            out.extend_from_slice(bytes);
        }
    }
}

/// Appends the head of a string or a list, by its code for no bytes.
fn write_length(code: u8, length: usize, out: &mut Vec<u8>) {
    if let Ok(short @ 0..56) = u8::try_from(length) {
        out.push(code + short);
    } else {
        let bytes = length.to_be_bytes();
        let (_, bytes) = bytes.split_at(length.leading_zeros() as usize / 8);
        out.push(code + 55 + bytes.len().to_le_bytes()[0]);
        out.extend_from_slice(bytes);
    }
}
