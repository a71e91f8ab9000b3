//! Claims that a hostile review refuted: honest data that were accused, and grades beyond the evidence.

use alloy_consensus::{Eip658Value, Header};
use alloy_primitives::{B256, U256};
use chainsieve::eth::chain_profile::{BloomSoundness, ChainProfile, ReceiptsScope};
use chainsieve::eth::columns::{
    BlockColumns, Cell, Check, Grade, HeaderBasis, HeaderRow, LogRow, Row, TransactionRow, anchor,
};
use chainsieve::eth::header::BlockRef;

use super::{
    Change, FIRST, Made, assumed, chain, exact, faults, header_row, lacks, leak, prague, trusted,
    undecided, with_logs,
};

/// Without a hash column, the columns may not be all fields of a header. What they hash to only confirms.
#[test]
fn a_computed_hash_accuses_nobody() {
    let headers = prague(3);
    let last = BlockRef { number: FIRST + 2, hash: headers[2].hash_slow() };
    let whole: Vec<_> =
        headers.iter().map(|it| HeaderRow { hash: None, ..header_row(it) }).collect();
    let short: Vec<_> =
        whole.iter().map(|row| HeaderRow { requests_hash: Cell::NoColumn, ..*row }).collect();
    // A chain whose headers have other fields.
    let parents = [&[1; 32], &[2; 32], &[3; 32]];
    let other: Vec<_> = whole
        .iter()
        .zip(parents)
        .map(|(row, parent)| HeaderRow { parent_hash: Some(parent), ..*row })
        .collect();
    let profiles = [Some(ChainProfile::ethereum()), Some(exact()), None];
    for (rows, confirmed) in [(&whole, 3), (&short, 0), (&other, 0)] {
        for profile in &profiles {
            let rows: Vec<_> = rows.iter().map(std::slice::from_ref).collect();
            let rows: Vec<_> = (FIRST..).zip(&rows).map(|(at, rows)| (at, *rows, None)).collect();
            let mut verdicts = chain(&rows, profile.as_ref());
            assert_eq!(anchor(&mut verdicts, last), confirmed);
            assert!(verdicts.iter().all(|verdict| verdict.faults.is_empty()), "{verdicts:?}");
            let is_open = lacks(&verdicts[2], Check::Anchor) == Some("headers.hash");
            assert_eq!(is_open, confirmed == 0);
            assert_eq!(verdicts[2].hash, (confirmed > 0).then_some(last.hash));
        }
    }
}

/// Some tables have a base fee of 0 before London, and a status before Byzantium.
#[test]
fn a_base_fee_of_zero_shows_no_fork() {
    let state = B256::repeat_byte(5);
    let unknown = exact();
    let with_fee = |row, fee, profile: &ChainProfile| {
        let mut made = Made::legacy(Eip658Value::PostState(state), row);
        made.header.base_fee_per_gas = fee;
        made.verify(profile)
    };
    let ethereum = ChainProfile::ethereum();
    let made_up = TransactionRow { status: Some(true), ..TransactionRow::default() };
    for fee in [Cell::Null, Cell::Value(U256::ZERO)] {
        for profile in [&ethereum, &unknown] {
            let verdict = with_fee(made_up, fee, profile);
            undecided(&verdict, Check::ReceiptsRoot, "transactions.root");
        }
        let row = TransactionRow { root: Some(leak(&state)), ..made_up };
        let verdict = with_fee(row, fee, &ethereum);
        assert_eq!(verdict.grade, Grade::Consistent, "{verdict}");
    }
    // The profile decides, whatever the fee is.
    let fee = Cell::Value(U256::ONE);
    let verdict = with_fee(made_up, fee, &ethereum);
    undecided(&verdict, Check::ReceiptsRoot, "transactions.root");

    let header = Header { number: 5_000_000, ..Header::default() };
    let zero = Cell::Value(U256::ZERO);
    let row = HeaderRow { base_fee_per_gas: zero, ..header_row(&header) };
    let verdict = &chain(&[(header.number, &[row], None)], Some(&ethereum))[0];
    undecided(verdict, Check::HeaderHash, "headers.base_fee_per_gas");
    let buf = trusted(&header);
    let verdict = &chain(&[(header.number, &[row], Some(&buf))], Some(&ethereum))[0];
    assert_eq!((verdict.grade, verdict.faults.len()), (Grade::Complete, 0), "{verdict}");
}

/// On some chains, logs count transactions that the table does not have.
#[test]
fn another_numbering_of_transactions() {
    let profiles = [None, Some(assumed(BloomSoundness::Exact, ReceiptsScope::NotEveryLog))];
    let numberings: [fn(u64) -> u64; 2] = [|index| index + 1, |_| 0];
    for block in with_logs() {
        for numbering in numberings {
            let mut rows = block.clone();
            for log in &mut rows.logs {
                log.transaction_index = log.transaction_index.map(numbering);
            }
            for profile in &profiles {
                let verdict = rows.columns().verify(profile.as_ref());
                undecided(&verdict, Check::TransactionHash, "profile");
            }
            let verdict = rows.verify();
            let is_it = |(check, _): &(Check, _)| *check == Check::TransactionHash;
            assert!(faults(&verdict).iter().any(is_it), "{verdict}");
        }
    }
}

#[test]
fn a_selection_may_lack_the_row_of_a_block() {
    let block = BlockColumns {
        number: FIRST,
        headers: Some(&[]),
        transactions: Some(&[]),
        logs: Some(&[]),
        ..BlockColumns::default()
    };
    let ethereum = ChainProfile::ethereum();
    let verdict = BlockColumns { is_filtered: true, ..block }.verify(Some(&ethereum));
    undecided(&verdict, Check::HeaderRow, "rows");
    assert_eq!(verdict.grade, Grade::Undecided);
    assert_eq!(faults(&block.verify(Some(&ethereum))), [(Check::HeaderRow, None)]);
}

#[test]
fn a_null_among_the_indices_of_transactions() {
    for block in with_logs() {
        for at in [0, 5, block.logs.len() - 1] {
            let mut rows = block.clone();
            rows.logs[at].transaction_index = None;
            let verdict = rows.verify();
            undecided(&verdict, Check::ReceiptsRoot, "logs.transaction_index");
            assert_eq!((verdict.grade, lacks(&verdict, Check::LogIndex)), (Grade::Bloom, None));
            // A log that is gone still shows.
            rows.logs.remove(2);
            let expected = (Check::LogIndex, Some(Row::Logs(2)));
            assert_eq!(faults(&rows.verify())[0], expected);
        }
    }
}

/// A block is not wrong because of a row of its parent, or of another block at the parent's height.
#[test]
fn neighbours_do_not_hurt() {
    type Entries<'a> = &'a [&'a [HeaderRow<'a>]];
    let headers = prague(3);
    let sibling = header_row(&Header { extra_data: vec![7].into(), ..headers[1].clone() });
    let [first, parent, child] = [0, 1, 2].map(|at| header_row(&headers[at]));
    let damaged = HeaderRow { hash: Some(&[9; 32]), mix_hash: None, ..parent };
    let stray = HeaderRow { parent_hash: Some(&[9; 32]), mix_hash: None, ..child };
    let proven = trusted(&headers[2]);
    let ethereum = ChainProfile::ethereum();
    // The rows of the entries at the parent's height; if the child is trusted; the entries at the child's
    // height; and which of these are accused.
    let cases: [(Entries<'_>, bool, Entries<'_>, &[bool]); 14] = [
        (&[&[parent]], false, &[&[child]], &[false]),
        (&[&[sibling]], false, &[&[child]], &[true]),
        (&[&[sibling]], true, &[&[child]], &[false]),
        (&[&[parent], &[sibling]], false, &[&[child]], &[false]),
        (&[&[sibling], &[parent]], false, &[&[child]], &[false]),
        (&[&[sibling], &[sibling]], false, &[&[child]], &[true]),
        (&[&[sibling, parent]], false, &[&[child]], &[false]),
        (&[&[damaged]], false, &[&[child]], &[true]),
        (&[&[damaged]], true, &[&[child]], &[false]),
        // Each of several children is compared.
        (&[&[parent]], false, &[&[child], &[stray], &[child]], &[false, true, false]),
        (&[&[parent]], false, &[&[stray], &[stray]], &[true, true]),
        (&[&[sibling]], false, &[&[child], &[child]], &[true, true]),
        (&[&[sibling]], true, &[&[child], &[child]], &[false, false]),
        (&[&[sibling], &[parent]], false, &[&[stray], &[child]], &[true, false]),
    ];
    for (at, (entries, is_trusted, children, accused)) in cases.into_iter().enumerate() {
        let mut blocks = vec![(FIRST, std::slice::from_ref(&first), None)];
        blocks.extend(entries.iter().map(|rows| (FIRST + 1, *rows, None)));
        let proven = is_trusted.then_some(&proven);
        blocks.extend(children.iter().map(|rows| (FIRST + 2, *rows, proven)));
        let verdicts = chain(&blocks, Some(&ethereum));
        let links = verdicts[1 + entries.len()..].iter().map(|verdict| {
            assert!(faults(verdict).iter().all(|(check, _)| *check == Check::ParentLink));
            !verdict.faults.is_empty()
        });
        assert_eq!(links.collect::<Vec<_>>(), accused, "case {at}");
    }
}

/// If it is unknown whether receipts have a status, a root without a status may be made up.
#[test]
fn a_root_without_a_status() {
    let row = TransactionRow { root: Some(&[9; 32]), ..TransactionRow::default() };
    let (ethereum, legacy) = (ChainProfile::ethereum(), Made::legacy(true.into(), row));
    let later = Made { number: 7_000_000, ..legacy };
    for profile in [&exact(), &ethereum] {
        undecided(&later.verify(profile), Check::ReceiptsRoot, "transactions.status");
    }
    let earlier = Made { number: 4_000_000, ..later };
    assert_eq!(faults(&earlier.verify(&ethereum)), [(Check::ReceiptsRoot, None)]);
}

#[test]
fn a_root_names_no_row() {
    let damages: [Change; 3] = [
        |rows| rows.transactions[2].cumulative_gas_used = Some(u64::MAX),
        |rows| {
            let last = rows.transactions.pop().expect("a transaction").transaction_index;
            rows.logs.retain(|log| log.transaction_index != last);
            (rows.headers[0].transaction_count, rows.headers[0].logs_bloom) = (None, None);
        },
        |rows| {
            let at = rows.logs[0].transaction_index.expect("an index");
            rows.transactions[usize::try_from(at).expect("an index")].status = Some(false);
        },
    ];
    for block in with_logs() {
        for damage in damages {
            let mut rows = block.clone();
            damage(&mut rows);
            assert_eq!(faults(&rows.verify()), [(Check::ReceiptsRoot, None)], "{}", block.name);
        }
    }
}

#[test]
fn a_null_where_the_trusted_header_has_a_field() {
    let header = &prague(1)[0];
    let buf = trusted(header);
    let row = header_row(header);
    let ethereum = ChainProfile::ethereum();
    let none = HeaderRow {
        base_fee_per_gas: Cell::Null,
        withdrawals_root: Cell::Null,
        blob_gas_used: Cell::Null,
        excess_blob_gas: Cell::Null,
        parent_beacon_block_root: Cell::Null,
        requests_hash: Cell::Null,
        ..row
    };
    let one = HeaderRow { withdrawals_root: Cell::Null, ..row };
    let absent = HeaderRow { withdrawals_root: Cell::NoColumn, ..row };
    for (row, count) in [(none, 6), (one, 1), (absent, 0), (row, 0)] {
        let verdict = &chain(&[(FIRST, &[row], Some(&buf))], Some(&ethereum))[0];
        let expected = (Check::HeaderColumns, Some(Row::Headers(0)));
        assert_eq!(faults(verdict), vec![expected; count]);
        assert!(count != 1 || verdict.faults[0].column == Some("headers.withdrawals_root"));
        assert!(verdict.receipts_root);
    }
}

/// Rows name one block, and it is the one that is anchored.
#[test]
fn rows_of_another_block_without_a_hash_column() {
    let block = &with_logs()[0];
    let true_hash = leak(&block.trusted.hash());
    let anchored = BlockRef { number: block.number, hash: block.trusted.hash() };
    let (one, other): (&[u8], &[u8]) = (&[0xee; 32], &[0xdd; 32]);
    let fault = (Check::BlockHash, None);
    for (of_logs, of_transactions, before, after) in [
        (true_hash, true_hash, 0, 0),
        (one, one, 0, 1),
        (one, other, 1, 1),
        (true_hash, other, 1, 1),
    ] {
        let mut rows = block.clone();
        rows.headers[0].hash = None;
        rows.logs.iter_mut().for_each(|log| log.block_hash = Some(of_logs));
        rows.transactions.iter_mut().for_each(|row| row.block_hash = Some(of_transactions));
        let mut verdict = [rows.verify()];
        assert_eq!(faults(&verdict[0]), vec![fault; before]);
        assert_eq!(anchor(&mut verdict, anchored), 1);
        assert_eq!(faults(&verdict[0]), vec![fault; after]);
        assert_eq!(verdict[0].grade == Grade::Complete, after == 0);
    }
}

/// Nothing follows from rows that are not there.
#[test]
fn no_rows_have_no_grade() {
    let ethereum = ChainProfile::ethereum();
    let none = BlockColumns { number: FIRST, logs: Some(&[]), ..BlockColumns::default() };
    for transactions in [None, Some(&[][..])] {
        let verdict = BlockColumns { transactions, ..none }.verify(Some(&ethereum));
        undecided(&verdict, Check::HeaderHash, "headers");
        assert_eq!(verdict.grade, Grade::Undecided, "{verdict}");
    }
    let mut rows = with_logs().remove(0);
    rows.transactions.truncate(1);
    rows.transactions[0].transaction_index = None;
    rows.logs.retain(|log| log.transaction_index == Some(0));
    let header = &mut rows.headers[0];
    (header.logs_bloom, header.receipts_root, header.transaction_count) = (None, None, None);
    let verdict = rows.verify();
    undecided(&verdict, Check::TransactionIndex, "transactions.transaction_index");
    assert_eq!(verdict.grade, Grade::Undecided, "{verdict}");
}

#[test]
fn malformed_cells_are_faults() {
    type Damage = (&'static str, Change);
    const BYTES: &[u8] = &[7; 300];
    let damages: [Damage; 11] = [
        ("headers.hash", |rows| rows.headers[0].hash = Some(&BYTES[..31])),
        ("headers.receipts_root", |rows| rows.headers[0].receipts_root = Some(&BYTES[..31])),
        ("headers.receipts_root", |rows| rows.headers[0].receipts_root = Some(&[])),
        ("headers.logs_bloom", |rows| rows.headers[0].logs_bloom = Some(&BYTES[..255])),
        ("headers.parent_hash", |rows| rows.headers[0].parent_hash = Some(&BYTES[..33])),
        ("headers.miner", |rows| rows.headers[0].miner = Some(&BYTES[..21])),
        ("headers.nonce", |rows| rows.headers[0].nonce = Some(&BYTES[..1])),
        ("headers.requests_hash", |rows| rows.headers[0].requests_hash = Cell::Value(&[])),
        ("headers.state_root", |rows| rows.headers[0].state_root = Some(&[])),
        ("logs.address", |rows| rows.logs[1].address = Some(&BYTES[..21])),
        ("logs.topics", |rows| rows.logs[1].topics = Some([Some(&BYTES[..31]), None, None, None])),
    ];
    let block = &with_logs()[0];
    for (column, damage) in damages {
        for mix_hash in [None, block.headers[0].mix_hash] {
            let mut rows = block.clone();
            rows.headers[0].mix_hash = mix_hash;
            damage(&mut rows);
            let verdict = rows.verify();
            let row = if column.starts_with("logs") { Row::Logs(1) } else { Row::Headers(0) };
            let is_it = |fault: &&chainsieve::eth::columns::Fault| fault.check == Check::Cells;
            let found = verdict.faults.iter().find(is_it);
            let found = found.map(|fault| (fault.row, fault.column));
            assert_eq!(found, Some((Some(row), Some(column))), "{verdict}");
            undecided(&rows.columns().verify(None), Check::Cells, "profile");
        }
    }
    let state = B256::repeat_byte(5);
    let cut = TransactionRow { root: Some(&[5; 31]), ..TransactionRow::default() };
    let ethereum = ChainProfile::ethereum();
    let verdict = Made::legacy(Eip658Value::PostState(state), cut).verify(&ethereum);
    assert_eq!(faults(&verdict), [(Check::Cells, Some(Row::Transactions(0)))]);
}

#[test]
fn a_deposit_with_a_version_needs_its_nonce() {
    let row = TransactionRow {
        receipt_type: Some(0x7e),
        status: Some(true),
        deposit_receipt_version: Some(1),
        ..TransactionRow::default()
    };
    let verdict = Made::legacy(true.into(), row).verify(&exact());
    let is_known = cfg!(feature = "op");
    let column = if is_known { "transactions.deposit_nonce" } else { "transactions.receipt_type" };
    undecided(&verdict, Check::ReceiptsRoot, column);
}

/// Nothing is encoded for a root that the data set does not have.
#[test]
fn memory_without_a_root() {
    let data: &'static [u8] = vec![5; 1 << 20].leak();
    let log = LogRow {
        transaction_index: Some(0),
        address: Some(&[1; 20]),
        topics: Some([None; 4]),
        data: Some(data),
        ..LogRow::default()
    };
    let logs: Vec<_> = (0..64).map(|at| LogRow { log_index: Some(at), ..log }).collect();
    let transaction = TransactionRow {
        transaction_index: Some(0),
        receipt_type: Some(2),
        status: Some(true),
        cumulative_gas_used: Some(1),
        ..TransactionRow::default()
    };
    let block = BlockColumns {
        number: 20_000_000,
        transactions: Some(&[transaction]),
        logs: Some(&logs),
        ..BlockColumns::default()
    };
    let ethereum = ChainProfile::ethereum();
    let (verdict, bytes) = testkit::allocation::requested_by(|| block.verify(Some(&ethereum)));
    undecided(&verdict, Check::ReceiptsRoot, "headers.receipts_root");
    assert!(bytes < 1 << 20, "{bytes}");
}

/// `docs/formats.md` has this verdict.
#[test]
fn the_documented_verdict() {
    let mut rows = with_logs().into_iter().find(|it| it.number == 17_686_111).expect("a fixture");
    rows.headers[0].mix_hash = None;
    for log in &mut rows.logs[3..] {
        log.log_index = log.log_index.map(|index| index + 1);
    }
    let json = serde_json::to_value(rows.verify()).expect("JSON");
    let text = include_str!("../../../docs/formats.md");
    let (_, text) = text.split_once("{\"number\": 17686111").expect("an example");
    let (text, _) = text.split_once("```").expect("its end");
    let text = format!("{{\"number\": 17686111{text}");
    let mut documented: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    for member in ["hash", "parent_hash"] {
        documented[member] = json[member].clone(); // it is cut
    }
    assert_eq!(json, documented);
}

#[test]
fn an_anchor_repairs_nothing() {
    let damages: [(Grade, Change); 3] = [
        (Grade::Wrong, |rows| rows.logs[3].log_index = Some(7)),
        (Grade::Bloom, |rows| rows.logs.iter_mut().for_each(|log| log.data = None)),
        (Grade::Indices, |rows| rows.logs[3].address = None),
    ];
    for block in with_logs() {
        let trusted = BlockRef { number: block.number, hash: block.trusted.hash() };
        for (grade, damage) in damages {
            let mut rows = block.clone();
            damage(&mut rows);
            let mut verdict = [rows.verify()];
            assert_eq!(anchor(&mut verdict, trusted), 1);
            assert_eq!((verdict[0].grade, verdict[0].header), (grade, HeaderBasis::Anchored));
        }
    }
}

/// Each check that needs to know what the header commits to, on a chain of which this is unknown.
#[test]
fn nothing_is_accused_without_a_profile() {
    let changes: [(Check, Change); 4] = [
        (Check::HeaderHash, |rows| rows.headers[0].timestamp = Some(1)),
        (Check::ReceiptsRoot, |rows| rows.headers[0].transaction_count = Some(99_999)),
        (Check::LogsBloom, |rows| {
            rows.headers[0].logs_bloom = Some(leak(&[0; 256]));
            rows.headers[0].mix_hash = None;
        }),
        (Check::LogIndex, |rows| rows.logs[3].log_index = Some(99_999)),
    ];
    let unsound = assumed(BloomSoundness::Unsound, ReceiptsScope::NotEveryLog);
    for (check, change) in changes {
        let mut rows = with_logs().remove(0);
        change(&mut rows);
        for profile in [None, Some(&unsound)] {
            let verdict = rows.columns().verify(profile);
            undecided(&verdict, check, "profile");
            assert!(!verdict.receipts_root && verdict.grade != Grade::Bloom, "{verdict}");
        }
    }
}

#[test]
fn a_filter_may_have_more_bits() {
    let superset = assumed(BloomSoundness::Superset, ReceiptsScope::EveryLog);
    let mut rows = with_logs().remove(0);
    rows.headers[0].receipts_root = None;
    rows.headers[0].logs_bloom = Some(leak(&[0xff; 256]));
    let verdict = rows.columns().verify(Some(&superset));
    undecided(&verdict, Check::LogsBloom, "profile");
    assert_eq!(verdict.grade, Grade::Indices);
    rows.headers[0].logs_bloom = Some(leak(&[0; 256]));
    let verdict = rows.columns().verify(Some(&superset));
    assert_eq!(faults(&verdict), [(Check::LogsBloom, Some(Row::Logs(0)))]);
    rows.headers[0].logs_bloom = None;
    let verdict = rows.columns().verify(Some(&superset));
    undecided(&verdict, Check::LogsBloom, "headers.logs_bloom");
    assert_eq!(verdict.grade, Grade::Indices);
}

/// Rows whose numbers or completeness are unknown have no grade by their filter or their indices.
#[test]
fn grades_need_their_evidence() {
    let changes: [Change; 4] = [
        |rows| rows.is_filtered = true,
        |rows| {
            rows.is_filtered = true;
            rows.headers[0].logs_bloom = None;
        },
        |rows| rows.logs[3].log_index = None,
        |rows| rows.transactions[3].transaction_index = None,
    ];
    for block in with_logs() {
        for change in changes {
            let mut rows = block.clone();
            change(&mut rows);
            rows.headers[0].receipts_root = None;
            let verdict = rows.verify();
            assert_eq!(verdict.grade, Grade::Undecided, "{verdict}");
        }
        let alone = BlockColumns {
            number: block.number,
            trusted: Some(block.trusted),
            ..BlockColumns::default()
        };
        let verdict = alone.verify(Some(&ChainProfile::ethereum()));
        assert_eq!((verdict.grade, verdict.header), (Grade::Undecided, HeaderBasis::Trusted));
    }
}

#[test]
fn rows_of_other_blocks_are_left_out() {
    for block in with_logs() {
        let mut rows = block.clone();
        let removed = LogRow { is_removed: true, data: Some(b"other"), ..rows.logs[2] };
        rows.logs.insert(1, removed);
        let verdict = rows.verify();
        assert_eq!(faults(&verdict), [(Check::Removed, Some(Row::Logs(1)))]);
        assert!(verdict.receipts_root);
        // Of two rows, the one with the trusted hash is the block's.
        let mut rows = block.trusted();
        rows.headers
            .insert(0, HeaderRow { hash: Some(&[9; 32]), timestamp: Some(1), ..rows.headers[0] });
        assert_eq!(faults(&rows.verify()), [(Check::HeaderRow, Some(Row::Headers(0)))]);
    }
}

/// A header that may have more fields, and one with a hole, are not accused.
#[test]
fn headers_that_may_have_other_fields() {
    let row = HeaderRow { hash: Some(&[9; 32]), ..header_row(&prague(1)[0]) };
    let full = HeaderRow {
        block_access_list_hash: Cell::Value(&[1; 32]),
        slot_number: Cell::Value(5),
        ..row
    };
    let null = HeaderRow { withdrawals_root: Cell::Null, ..row };
    let absent = HeaderRow { withdrawals_root: Cell::NoColumn, ..row };
    for (row, column) in [
        (full, "a field after headers.slot_number"),
        (null, "headers.withdrawals_root"),
        (absent, "headers.withdrawals_root"),
    ] {
        let verdict = &chain(&[(FIRST, &[row], None)], Some(&ChainProfile::ethereum()))[0];
        undecided(verdict, Check::HeaderHash, column);
    }
    let verdict = &chain(&[(FIRST, &[row], None)], Some(&ChainProfile::ethereum()))[0];
    assert_eq!(faults(verdict), [(Check::HeaderHash, Some(Row::Headers(0)))]);
}

/// Rows without indices may be in any order.
#[test]
fn rows_in_another_order_without_indices() {
    for block in with_logs() {
        let mut rows = block.clone();
        rows.transactions.iter_mut().for_each(|row| row.transaction_index = None);
        rows.transactions.swap(0, 1);
        // Hashes of transactions are looked up by index, so none is compared.
        undecided(&rows.verify(), Check::ReceiptsRoot, "transactions.transaction_index");
        let mut rows = block.clone();
        rows.logs.iter_mut().for_each(|log| log.log_index = None);
        let is_pair = |pair: &[LogRow<'_>]| {
            pair[0].transaction_index == pair[1].transaction_index && pair[0].data != pair[1].data
        };
        let at = rows.logs.windows(2).position(is_pair).expect("two logs of a transaction");
        rows.logs.swap(at, at + 1);
        undecided(&rows.verify(), Check::ReceiptsRoot, "logs.log_index");
    }
}
