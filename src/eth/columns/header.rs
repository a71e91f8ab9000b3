//! The header of a block: its row, its hash, and its comparison with a trusted header.

use alloc::vec::Vec;

use alloy_primitives::B256;
use alloy_rlp::{EMPTY_STRING_CODE, Encodable};

use super::verdict::{BlockVerdict, Check, Row};
use super::{BlockColumns, Cell, HeaderRow};
use crate::eth::bloom;
use crate::eth::header::HeaderBuf;

type Field<'b> = (&'static str, Cell<&'b dyn Encodable>);

/// Number of fields that every header has.
const ALWAYS: usize = 15;
/// The number of all fields that are known.
const FIELDS: usize = ALWAYS + 8;

/// What the other checks need of a header: of the trusted one, or else of the columns.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct HeaderFacts<'a> {
    pub(super) receipts_root: Option<B256>,
    pub(super) bloom: Option<&'a [u8; bloom::BYTES]>,
    pub(super) gas_used: Option<u64>,
    pub(super) transaction_count: Option<u64>,
    /// The block is from London or later, so all receipts have a status. Some tables have a base fee of 0 in
    /// earlier blocks, so a 0 that is not trusted shows nothing.
    pub(super) has_base_fee: bool,
    /// The block precedes Amsterdam, whose rules for the gas of a block differ from those for the gas of
    /// its transactions (EIP-7778).
    pub(super) precedes_amsterdam: bool,
    /// The facts are those of a trusted header.
    pub(super) is_trusted: bool,
    /// The row of the block, and its index.
    pub(super) row: Option<(usize, &'a HeaderRow<'a>)>,
}

/// A hash of a header that can be computed.
pub(super) struct HeaderHash {
    /// The hash column; `None` if the table has none.
    pub(super) claimed: Option<B256>,
    /// The column that could be the reason for another hash.
    pub(super) excuse: Option<&'static str>,
    pub(super) row: Row,
}

impl<'a> HeaderFacts<'a> {
    /// Chooses the row of the block, compares it with the trusted header, and notes hashes in the verdict.
    ///
    /// `commits` is `true` if headers are Ethereum's: of other chains, fields and hash may differ.
    pub(super) fn of(block: &BlockColumns<'a>, commits: bool, verdict: &mut BlockVerdict) -> Self {
        let trusted = block.trusted.filter(|header| header.view().number() == block.number);
        let row = block.headers.and_then(|rows| {
            // Of several rows, the others are copies, or blocks that left the chain.
            let at = if rows.len() > 1 { choose(rows, block, trusted) } else { 0 };
            let row = rows.get(at)?;
            if rows.len() > 1 {
                verdict.fault(Check::HeaderRow, Some(Row::Headers(usize::from(at == 0))));
            }
            Some((at, row))
        });
        match (block.headers, row) {
            // A selection may leave out blocks without a row that was selected.
            (Some(_), None) if block.is_filtered => verdict.lacks(Check::HeaderRow, "rows"),
            // Some chains have numbers without a block.
            (Some(_), None) => {
                let is_block = commits || block.rows() > 0;
                verdict.fault_if(is_block, Check::HeaderRow, None, None);
            }
            _ => {}
        }
        let mut facts = Self { row, ..Self::default() };
        if let Some((_, row)) = row {
            verdict.hash = row.hash.and_then(hash_of);
            verdict.parent_hash = row.parent_hash.and_then(hash_of);
            facts.receipts_root = row.receipts_root.and_then(hash_of);
            facts.bloom = row.logs_bloom.and_then(|bloom| bloom.try_into().ok());
            facts.gas_used = row.gas_used;
            facts.transaction_count = row.transaction_count;
            facts.has_base_fee = matches!(row.base_fee_per_gas, Cell::Value(fee) if !fee.is_zero());
            facts.precedes_amsterdam = row.block_access_list_hash == Cell::Null;
        }
        if let Some(header) = trusted {
            if let Some((at, row)) = row {
                let at = Some(Row::Headers(at));
                row.compare(block.number, header.rlp(), |column| {
                    verdict.fault_if(commits, Check::HeaderColumns, at, Some(column));
                });
                if row.hash.is_some_and(|hash| hash != header.hash()) {
                    verdict.fault_if(commits, Check::HeaderHash, at, None);
                }
            }
            let view = header.view();
            verdict.hash = Some(header.hash());
            verdict.parent_hash = Some(view.parent_hash());
            facts.is_trusted = true;
            facts.receipts_root = Some(view.receipts_root());
            facts.bloom = view.logs_bloom().bytes();
            facts.gas_used = Some(view.gas_used());
            facts.has_base_fee = view.base_fee_per_gas().is_some();
            facts.precedes_amsterdam = view.num_fields() + 2 <= FIELDS;
        }
        facts
    }
}

/// Returns the index of the row of the block: the trusted one, or one that transactions or logs name. Among
/// equals, hashes decide, so that the order of the rows does not matter.
fn choose<'a>(
    rows: &'a [HeaderRow<'a>],
    block: &BlockColumns<'_>,
    trusted: Option<&HeaderBuf>,
) -> usize {
    let transactions = block.transactions.unwrap_or_default().iter().map(|row| row.block_hash);
    let logs = block.logs.unwrap_or_default().iter().map(|row| row.block_hash);
    let mut named: Vec<_> = transactions.chain(logs).flatten().collect();
    named.sort_unstable();
    let rank = |(_, row): &(usize, &'a HeaderRow<'a>)| {
        let is_trusted = trusted.is_some_and(|header| row.hash == Some(&header.hash()[..]));
        let is_named = row.hash.is_some_and(|hash| named.binary_search(&hash).is_ok());
        (!is_trusted, !is_named, row.hash)
    };
    rows.iter().enumerate().min_by_key(rank).map_or(0, |(at, _)| at)
}

impl HeaderRow<'_> {
    /// Appends the encoding of the header to `out`. Returns `None`, and notes the columns that are missing,
    /// if the columns are not those of a header.
    pub(super) fn encode(
        &self,
        at: usize,
        verdict: &mut BlockVerdict,
        out: &mut Vec<u8>,
    ) -> Option<HeaderHash> {
        let number = verdict.number;
        let cells = self.cells(&number);
        let mut fields = [&0_u8 as &dyn Encodable; FIELDS];
        let mut count = 0;
        let (mut is_whole, mut end) = (true, None);
        for (index, (name, cell)) in cells.iter().enumerate() {
            match cell {
                // If a field were left out, the next one would move to its position.
                Cell::Value(field) if end.is_none() => {
                    fields[count] = *field;
                    count += 1;
                }
                Cell::Value(_) => {}
                _ if index < ALWAYS => {
                    is_whole = false;
                    verdict.lacks(Check::HeaderHash, name);
                }
                _ => end = end.or(Some((*name, *cell))),
            }
        }
        if !is_whole {
            return None;
        }
        if let Some((hole, _)) = end
            && cells[count..].iter().any(|(_, cell)| matches!(cell, Cell::Value(_)))
        {
            verdict.lacks(Check::HeaderHash, hole);
            return None;
        }
        alloy_rlp::encode_list::<_, dyn Encodable>(&fields[..count], out);
        let excuse = match end {
            None => Some("a field after headers.slot_number"),
            Some((next, Cell::NoColumn)) => Some(next),
            // Some tables have a 0 in a number that the header does not have, for example before London. Roots
            // are longer.
            Some(_) => {
                let (name, last) = (cells[count - 1].0, fields[count - 1]);
                let is_zero = last.length() == 1 && out.last() == Some(&EMPTY_STRING_CODE);
                (count > ALWAYS && is_zero).then_some(name)
            }
        };
        Some(HeaderHash { claimed: self.hash.and_then(hash_of), excuse, row: Row::Headers(at) })
    }

    /// Compares each cell with its field in a header.
    fn compare(&self, number: u64, rlp: &[u8], mut differs: impl FnMut(&'static str)) {
        let mut items = rlp;
        let mut items = alloy_rlp::Header::decode_bytes(&mut items, true).unwrap_or_default();
        let mut encoding = Vec::new();
        for (name, cell) in self.cells(&number) {
            let mut rest = items;
            let length = alloy_rlp::Header::decode(&mut rest).map_or(0, |item| item.payload_length);
            let (item, behind) = items.split_at(items.len() - rest.len().saturating_sub(length));
            items = behind;
            encoding.clear();
            match cell {
                Cell::NoColumn => continue,
                Cell::Null => {}
                Cell::Value(cell) => cell.encode(&mut encoding),
            }
            // Some tables have a 0 where the header has no such field.
            let is_zero = item.is_empty() && encoding == [EMPTY_STRING_CODE];
            if encoding != item && !is_zero {
                differs(name);
            }
        }
    }

    /// Returns the columns whose cell has another length than the field.
    pub(super) fn malformed(&self) -> impl Iterator<Item = &'static str> {
        let later = |cell| if let Cell::Value(cell) = cell { Some(cell) } else { None };
        let cells: [(_, Option<&[u8]>, _); 14] = [
            ("headers.hash", self.hash, 32),
            ("headers.parent_hash", self.parent_hash, 32),
            ("headers.sha3_uncles", self.sha3_uncles, 32),
            ("headers.miner", self.miner, 20),
            ("headers.state_root", self.state_root, 32),
            ("headers.transactions_root", self.transactions_root, 32),
            ("headers.receipts_root", self.receipts_root, 32),
            ("headers.logs_bloom", self.logs_bloom, bloom::BYTES),
            ("headers.mix_hash", self.mix_hash, 32),
            ("headers.nonce", self.nonce, 8),
            ("headers.withdrawals_root", later(self.withdrawals_root), 32),
            ("headers.parent_beacon_block_root", later(self.parent_beacon_block_root), 32),
            ("headers.requests_hash", later(self.requests_hash), 32),
            ("headers.block_access_list_hash", later(self.block_access_list_hash), 32),
        ];
        let is_malformed = |cell: Option<&[u8]>, length| cell.is_some_and(|it| it.len() != length);
        cells
            .into_iter()
            .filter_map(move |(name, cell, length)| is_malformed(cell, length).then_some(name))
    }

    /// Returns all fields in the order of the RLP.
    fn cells<'b>(&'b self, number: &'b u64) -> [Field<'b>; FIELDS] {
        fn always<T: Encodable>(cell: Option<&T>) -> Cell<&dyn Encodable> {
            cell.map_or(Cell::NoColumn, |cell| Cell::Value(cell))
        }
        fn later<T: Encodable>(cell: &Cell<T>) -> Cell<&dyn Encodable> {
            match cell {
                Cell::NoColumn => Cell::NoColumn,
                Cell::Null => Cell::Null,
                Cell::Value(value) => Cell::Value(value),
            }
        }
        [
            ("headers.parent_hash", always(self.parent_hash.as_ref())),
            ("headers.sha3_uncles", always(self.sha3_uncles.as_ref())),
            ("headers.miner", always(self.miner.as_ref())),
            ("headers.state_root", always(self.state_root.as_ref())),
            ("headers.transactions_root", always(self.transactions_root.as_ref())),
            ("headers.receipts_root", always(self.receipts_root.as_ref())),
            ("headers.logs_bloom", always(self.logs_bloom.as_ref())),
            ("headers.difficulty", always(self.difficulty.as_ref())),
            ("headers.number", Cell::Value(number)),
            ("headers.gas_limit", always(self.gas_limit.as_ref())),
            ("headers.gas_used", always(self.gas_used.as_ref())),
            ("headers.timestamp", always(self.timestamp.as_ref())),
            ("headers.extra_data", always(self.extra_data.as_ref())),
            ("headers.mix_hash", always(self.mix_hash.as_ref())),
            ("headers.nonce", always(self.nonce.as_ref())),
            ("headers.base_fee_per_gas", later(&self.base_fee_per_gas)),
            ("headers.withdrawals_root", later(&self.withdrawals_root)),
            ("headers.blob_gas_used", later(&self.blob_gas_used)),
            ("headers.excess_blob_gas", later(&self.excess_blob_gas)),
            ("headers.parent_beacon_block_root", later(&self.parent_beacon_block_root)),
            ("headers.requests_hash", later(&self.requests_hash)),
            ("headers.block_access_list_hash", later(&self.block_access_list_hash)),
            ("headers.slot_number", later(&self.slot_number)),
        ]
    }
}

fn hash_of(bytes: &[u8]) -> Option<B256> {
    B256::try_from(bytes).ok()
}
