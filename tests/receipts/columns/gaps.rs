//! No undamaged block is accused, whatever columns, tables and orders its source has, and no verdict claims
//! more than the columns that are there.

use alloy_primitives::{Bloom, BloomInput};
use chainsieve::eth::chain_profile::{BloomSoundness, ChainProfile, ReceiptsScope};
use chainsieve::eth::columns::{
    BlockColumns, Cell, Check, Grade, HeaderBasis, HeaderRow, Row, verify, verify_on,
};
use chainsieve::simd::Backend;
use testkit::{Rng, stride};

use super::{Change, Rows, assumed, exact, faults, missing, real, with_logs};

#[test]
fn whole_blocks_are_complete() {
    let blocks = real();
    for block in &blocks {
        let verdict = block.verify();
        assert_eq!((verdict.grade, verdict.header), (Grade::Complete, HeaderBasis::Recomputed));
        assert!(verdict.faults.is_empty() && verdict.missing.is_empty(), "{verdict}");
        let verdict = block.trusted().verify();
        assert_eq!((verdict.grade, verdict.header), (Grade::Complete, HeaderBasis::Trusted));
        assert!(verdict.faults.is_empty() && verdict.missing.is_empty(), "{verdict}");
    }
    // Together, on every backend, and in an order in which few follow each other.
    let columns: Vec<_> = blocks.iter().map(Rows::columns).collect();
    let profile = ChainProfile::ethereum();
    for backend in Backend::available() {
        let verdicts = verify_on(backend, &columns, Some(&profile));
        assert!(verdicts.iter().zip(&blocks).all(|(verdict, block)| *verdict == block.verify()));
    }
    assert!(verify(&[], Some(&profile)).is_empty());
}

/// Removes columns of a table.
macro_rules! clear {
    ($rows:expr, $($column:ident if $is_absent:expr),+) => {
        $(if $is_absent {
            $rows.iter_mut().for_each(|row| row.$column = None);
        })+
    };
}

/// A change that removes columns, the grade that is left, and the checks that are undecided.
type Absent = (Change, Grade, &'static [(Check, &'static str)]);

/// Rows of a table of [`Absent`] columns.
macro_rules! absent {
    ($($table:ident($($column:ident)+) => $grade:ident $([$($check:ident $lacks:literal)+])?;)+) => {
        [$((
            |rows: &mut Rows| {
                clear!(rows.$table, $($column if true),+);
            },
            Grade::$grade,
            &[$($((Check::$check, $lacks)),+)?],
        )),+]
    };
}

const ABSENT: [Absent; 15] = absent! {
    logs(transaction_hash) => Complete;
    logs(block_hash) => Complete;
    transactions(hash) => Complete;
    transactions(gas_used) => Complete;
    transactions(cumulative_gas_used) => Complete;
    logs(log_index) => Complete [LogIndex "logs.log_index"];
    transactions(transaction_index) => Complete [TransactionIndex "transactions.transaction_index"];
    logs(transaction_index) => Bloom [ReceiptsRoot "logs.transaction_index"];
    logs(address) => Indices [LogsBloom "logs.address" ReceiptsRoot "logs.address"];
    logs(topics) => Indices [LogsBloom "logs.topics" ReceiptsRoot "logs.topics"];
    logs(data) => Bloom [ReceiptsRoot "logs.data"];
    transactions(status) => Bloom [ReceiptsRoot "transactions.status"];
    transactions(receipt_type) => Bloom [ReceiptsRoot "transactions.receipt_type"];
    transactions(gas_used cumulative_gas_used) => Bloom [
        ReceiptsRoot "transactions.cumulative_gas_used"
    ];
    headers(hash) => Consistent [HeaderHash "headers.hash"];
};

#[test]
fn an_absent_column_is_named() {
    // All types of receipts but one are typed, so that no block is right without its types.
    for block in with_logs().into_iter().filter(|block| block.number > 13_000_000) {
        for (at, (change, grade, undecided)) in ABSENT.iter().enumerate() {
            let mut rows = block.clone();
            change(&mut rows);
            let verdict = rows.verify();
            assert_eq!(verdict.grade, *grade, "{} {at}: {verdict}", block.name);
            assert_eq!(missing(&verdict), *undecided, "{} {at}: {verdict}", block.name);
        }
    }
}

#[test]
fn absent_tables_are_named() {
    let block = &with_logs()[0];
    let profile = ChainProfile::ethereum();
    let verify = |columns: BlockColumns<'_>| columns.verify(Some(&profile));
    let all = block.columns();
    let verdict = verify(BlockColumns { logs: None, ..all });
    assert_eq!((verdict.grade, verdict.header), (Grade::Undecided, HeaderBasis::Recomputed));
    let of_logs = [Check::LogIndex, Check::LogsBloom, Check::ReceiptsRoot];
    assert_eq!(missing(&verdict), of_logs.map(|check| (check, "logs")));
    let verdict = verify(BlockColumns { transactions: None, ..all });
    assert_eq!(verdict.grade, Grade::Bloom);
    assert_eq!(missing(&verdict), [(Check::ReceiptsRoot, "transactions")]);
    let verdict = verify(BlockColumns { headers: None, ..all });
    assert_eq!((verdict.grade, verdict.hash), (Grade::Indices, None));
    let verdict = verify(BlockColumns { headers: None, trusted: Some(block.trusted), ..all });
    assert_eq!((verdict.grade, verdict.header), (Grade::Complete, HeaderBasis::Trusted));
    // A header with another number is of another block.
    let other = BlockColumns { number: 1, trusted: Some(block.trusted), ..BlockColumns::default() };
    let verdict = verify(other);
    assert_eq!((verdict.grade, verdict.header), (Grade::Undecided, HeaderBasis::Unproven));
}

/// The first field of a header that the schema lacks is the excuse; a field that is null is none.
#[test]
fn the_end_of_a_header() {
    for block in with_logs() {
        let row = &block.headers[0];
        let has = [
            row.base_fee_per_gas != Cell::Null,
            row.withdrawals_root != Cell::Null,
            row.parent_beacon_block_root != Cell::Null,
            row.requests_hash != Cell::Null,
        ];
        let none: [(&str, Change); 4] = [
            ("headers.base_fee_per_gas", |rows| rows.headers[0].base_fee_per_gas = Cell::NoColumn),
            ("headers.withdrawals_root", |rows| rows.headers[0].withdrawals_root = Cell::NoColumn),
            ("headers.parent_beacon_block_root", |rows| {
                let row = &mut rows.headers[0];
                row.parent_beacon_block_root = Cell::NoColumn;
                if row.blob_gas_used == Cell::Null {
                    (row.blob_gas_used, row.excess_blob_gas) = (Cell::NoColumn, Cell::NoColumn);
                }
            }),
            ("headers.requests_hash", |rows| rows.headers[0].requests_hash = Cell::NoColumn),
        ];
        for (at, (name, change)) in none.into_iter().enumerate() {
            let mut rows = block.clone();
            let needs = has[at];
            change(&mut rows);
            let verdict = rows.verify();
            if needs {
                assert_eq!(verdict.grade, Grade::Consistent, "{verdict}");
                assert_eq!(missing(&verdict), [(Check::HeaderHash, name)], "{}", block.name);
            } else {
                assert_eq!(verdict.grade, Grade::Complete, "{verdict}");
            }
            // A damaged header is then only accused if the field that is absent cannot be the reason.
            rows.headers[0].timestamp = Some(1);
            let verdict = rows.verify();
            let is_next = needs || has[..at].iter().all(|has| *has);
            assert_eq!(verdict.grade == Grade::Wrong, !is_next, "{} {name}: {verdict}", block.name);
        }
        // Amsterdam, or a later fork: no header is wrong.
        let mut rows = block.clone();
        rows.headers[0].block_access_list_hash = Cell::NoColumn;
        rows.headers[0].slot_number = Cell::NoColumn;
        assert_eq!(rows.verify().grade, Grade::Complete);
    }
}

fn shuffle<T>(rows: &mut [T], rng: &mut Rng) {
    for at in (1..rows.len()).rev() {
        rows.swap(at, rng.below(at + 1));
    }
}

/// A source may lack any columns, in any combination, have any order of rows, the cumulative gas under the
/// wrong name, and only a selection of the rows.
#[test]
fn an_honest_source_is_never_accused() {
    let cases = 240 / stride(8);
    let mut rng = Rng::new(47);
    let blocks = real();
    let profiles = [
        Some(ChainProfile::ethereum()),
        None,
        Some(exact()),
        Some(assumed(BloomSoundness::Unsound, ReceiptsScope::NotEveryLog)),
    ];
    let mut grades = [0; 5];
    for case in 0..cases * blocks.len() {
        let mut rows = blocks[case % blocks.len()].clone();
        rows.is_trusted = rng.one_in(3);
        let cumulative = rng.one_in(6);
        clear!(rows.transactions, cumulative_gas_used if cumulative, hash if rng.one_in(6));
        clear!(rows.transactions, block_hash if rng.one_in(6), receipt_type if rng.one_in(6));
        clear!(rows.transactions, status if rng.one_in(6), gas_used if rng.one_in(6));
        clear!(rows.logs, transaction_index if rng.one_in(6), transaction_hash if rng.one_in(6));
        clear!(rows.logs, block_hash if rng.one_in(6), address if rng.one_in(6));
        clear!(rows.logs, topics if rng.one_in(6), data if rng.one_in(6));
        if rng.one_in(4) && cumulative {
            let blocks = &blocks[case % blocks.len()];
            for (row, whole) in rows.transactions.iter_mut().zip(&blocks.transactions) {
                row.gas_used = whole.cumulative_gas_used;
            }
        }
        clear!(rows.headers, hash if rng.one_in(6), sha3_uncles if rng.one_in(6));
        clear!(rows.headers, receipts_root if rng.one_in(6), logs_bloom if rng.one_in(6));
        clear!(rows.headers, mix_hash if rng.one_in(6), gas_used if rng.one_in(6));
        let header = &mut rows.headers[0];
        // A later field is absent, and then all after it.
        let end = rng.below(12);
        let tail = *header;
        *header = HeaderRow {
            base_fee_per_gas: if end < 1 { Cell::NoColumn } else { tail.base_fee_per_gas },
            withdrawals_root: if end < 2 { Cell::NoColumn } else { tail.withdrawals_root },
            blob_gas_used: if end < 3 { Cell::NoColumn } else { tail.blob_gas_used },
            excess_blob_gas: if end < 4 { Cell::NoColumn } else { tail.excess_blob_gas },
            parent_beacon_block_root: if end < 5 {
                Cell::NoColumn
            } else {
                tail.parent_beacon_block_root
            },
            requests_hash: if end < 6 { Cell::NoColumn } else { tail.requests_hash },
            block_access_list_hash: if end < 7 { Cell::NoColumn } else { Cell::Null },
            slot_number: if end < 8 { Cell::NoColumn } else { Cell::Null },
            ..tail
        };
        if rng.one_in(2) {
            // Rows without an index must stay in order.
            shuffle(&mut rows.transactions, &mut rng);
            shuffle(&mut rows.logs, &mut rng);
        } else {
            clear!(rows.transactions, transaction_index if rng.one_in(6));
            clear!(rows.logs, log_index if rng.one_in(6));
        }
        if rng.one_in(4) {
            rows.is_filtered = true;
            rows.logs.retain(|_| rng.one_in(3));
            if rng.one_in(2) {
                rows.transactions.retain(|_| rng.one_in(3));
            }
        }
        let profile = rng.pick(&profiles).as_ref();
        let verdict = rows.columns().verify(profile);
        assert!(verdict.faults.is_empty(), "case {case} of {}: {verdict}", rows.name);
        if profile.is_none() {
            assert!(!verdict.receipts_root, "beyond the evidence: {verdict}");
        }
        grades[verdict.grade as usize] += 1;
    }
    assert!(grades.iter().all(|grade| *grade > 0), "{grades:?}");
}

#[test]
fn a_selection_can_only_be_refuted() {
    for block in with_logs() {
        let mut rows = Rows { is_filtered: true, ..block.clone() };
        assert_eq!(rows.verify().grade, Grade::Complete, "everything was selected");
        rows.logs.retain(|log| log.log_index.is_some_and(|index| index % 3 == 1));
        rows.headers[0].transaction_count = Some(100_000);
        let verdict = rows.verify();
        assert_eq!(verdict.grade, Grade::Undecided, "{verdict}");
        let checks = [Check::LogIndex, Check::LogsBloom, Check::ReceiptsRoot];
        assert_eq!(missing(&verdict), checks.map(|check| (check, "rows")), "{verdict}");
        rows.logs[2].address = Some(&[0x77; 20]);
        let filter = Bloom::from_slice(rows.headers[0].logs_bloom.expect("a filter"));
        let may_be = filter.contains_input(BloomInput::Raw(&[0x77; 20]));
        let expected = [(Check::LogsBloom, Some(Row::Logs(2)))];
        assert_eq!(faults(&rows.verify()), expected[usize::from(may_be)..], "{}", block.name);
    }
}
