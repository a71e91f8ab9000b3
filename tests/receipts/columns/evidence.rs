//! Verdicts that claimed more or less than their evidence, as a second hostile review found.

use std::slice;

use alloy_consensus::Header;
use alloy_primitives::{B256, U256};
use chainsieve::eth::chain_profile::{BloomSoundness, ChainProfile, ReceiptsScope};
use chainsieve::eth::columns::{
    BlockColumns, BlockVerdict, Cell, Check, Grade, HeaderRow, LogRow, Row, TransactionRow,
};
use chainsieve::eth::header::HeaderBuf;

use super::{
    Change, FIRST, Made, Rows, assumed, chain, exact, faults, header_row, lacks, leak, prague,
    trusted, undecided, with_logs,
};

/// A cell of a row of another length than its kind is a fault, also where no root covers it.
#[test]
fn hashes_of_rows_have_32_bytes() {
    const CUT: Option<&[u8]> = Some(&[7; 31]);
    let damages: [(&str, Row, Change); 5] = [
        ("transactions.hash", Row::Transactions(0), |rows| {
            rows.transactions.iter_mut().for_each(|row| row.hash = CUT);
            rows.logs.iter_mut().for_each(|row| row.transaction_hash = CUT);
        }),
        ("logs.transaction_hash", Row::Logs(3), |rows| {
            rows.transactions.iter_mut().for_each(|row| row.hash = None);
            rows.logs[3].transaction_hash = Some(&[]);
        }),
        ("transactions.block_hash", Row::Transactions(0), |rows| {
            rows.headers[0].hash = None;
            rows.transactions.iter_mut().for_each(|row| row.block_hash = CUT);
            rows.logs.iter_mut().for_each(|row| row.block_hash = CUT);
        }),
        ("logs.block_hash", Row::Logs(0), |rows| {
            rows.headers[0].hash = None;
            rows.transactions.iter_mut().for_each(|row| row.block_hash = None);
            rows.logs.iter_mut().for_each(|row| row.block_hash = CUT);
        }),
        ("transactions.hash", Row::Transactions(5), |rows| {
            rows.transactions[5].hash = Some(&[7; 33]);
            rows.logs.iter_mut().for_each(|row| row.transaction_hash = None);
        }),
    ];
    for block in with_logs() {
        for (column, row, damage) in damages {
            let mut rows = block.clone();
            damage(&mut rows);
            let verdict = rows.verify();
            let found = verdict.faults.iter().find(|fault| fault.check == Check::Cells);
            let found = found.map(|fault| (fault.row, fault.column));
            assert_eq!(found, Some((Some(row), Some(column))), "{verdict}");
            assert!(verdict.receipts_root, "{verdict}");
            undecided(&rows.columns().verify(None), Check::Cells, "profile");
        }
    }
}

/// Some tables have a 0 in each number that a header does not have, not only in the base fee.
#[test]
fn a_zero_at_the_end_of_a_header_shows_no_fork() {
    let ethereum = ChainProfile::ethereum();
    let prague = prague(1).remove(0);
    let shanghai = Header {
        blob_gas_used: None,
        excess_blob_gas: None,
        parent_beacon_block_root: None,
        requests_hash: None,
        ..prague.clone()
    };
    let made_up = |header: &Header| HeaderRow {
        blob_gas_used: Cell::Value(0),
        excess_blob_gas: Cell::Value(0),
        ..header_row(header)
    };
    let row = made_up(&shanghai);
    let verdict = &chain(&[(FIRST, &[row], None)], Some(&ethereum))[0];
    undecided(verdict, Check::HeaderHash, "headers.excess_blob_gas");
    let buf = trusted(&shanghai);
    let verdict = &chain(&[(FIRST, &[row], Some(&buf))], Some(&ethereum))[0];
    assert_eq!((verdict.grade, verdict.faults.len()), (Grade::Complete, 0), "{verdict}");
    // A header of Cancun ends with a root.
    let cancun = Header { requests_hash: None, ..prague };
    let row = HeaderRow { timestamp: Some(1), ..made_up(&cancun) };
    let verdict = &chain(&[(FIRST, &[row], None)], Some(&ethereum))[0];
    assert_eq!(faults(verdict), [(Check::HeaderHash, Some(Row::Headers(0)))]);
    // The last byte of a root is no number.
    let ends_so = Header { withdrawals_root: Some(B256::repeat_byte(0x80)), ..shanghai };
    let row = HeaderRow { timestamp: Some(1), ..header_row(&ends_so) };
    let verdict = &chain(&[(FIRST, &[row], None)], Some(&ethereum))[0];
    assert_eq!(faults(verdict), [(Check::HeaderHash, Some(Row::Headers(0)))]);
}

/// On some chains, logs are numbered by transaction, and a selection of columns may not say by which. Then
/// equal rows are no copies.
#[test]
fn equal_logs_of_unknown_transactions() {
    let log = LogRow {
        log_index: Some(0),
        address: Some(&[1; 20]),
        topics: Some([None; 4]),
        data: Some(b""),
        ..LogRow::default()
    };
    let rows = [log, log];
    let block = BlockColumns { number: FIRST, logs: Some(&rows), ..BlockColumns::default() };
    for profile in [None, Some(assumed(BloomSoundness::Exact, ReceiptsScope::NotEveryLog))] {
        undecided(&block.verify(profile.as_ref()), Check::LogIndex, "profile");
    }
    let fault = (Check::Copies, Some(Row::Logs(1)));
    assert_eq!(faults(&block.verify(Some(&exact()))), [fault]);
    // Rows that name their transaction are copies on every chain.
    let rows = rows.map(|log| LogRow { transaction_index: Some(0), ..log });
    assert_eq!(faults(&BlockColumns { logs: Some(&rows), ..block }.verify(None)), [fault]);
}

/// On Filecoin, there are numbers without a block.
#[test]
fn a_number_without_a_block() {
    let block = BlockColumns {
        number: FIRST,
        headers: Some(&[]),
        transactions: Some(&[]),
        logs: Some(&[]),
        ..BlockColumns::default()
    };
    let filecoin = ChainProfile::of_chain_id(314).expect("a profile");
    for profile in [None, Some(&filecoin)] {
        let verdict = block.verify(profile);
        undecided(&verdict, Check::HeaderRow, "profile");
        assert_eq!(verdict.grade, Grade::Undecided);
        // Rows need a block.
        let rows = [TransactionRow { transaction_index: Some(0), ..TransactionRow::default() }];
        let verdict = BlockColumns { transactions: Some(&rows), ..block }.verify(profile);
        assert_eq!(faults(&verdict), [(Check::HeaderRow, None)]);
        let rows = [LogRow { log_index: Some(0), ..LogRow::default() }];
        let verdict = BlockColumns { logs: Some(&rows), ..block }.verify(profile);
        assert_eq!(faults(&verdict), [(Check::HeaderRow, None)]);
    }
}

/// On Avalanche, a hash comes before the base fee. Other chains do not hash the encoding of the header.
#[test]
fn a_trusted_header_of_another_layout() {
    let header = Header { number: FIRST, ..Header::default() };
    let rlp = alloy_rlp::encode(&header);
    let mut items = &rlp[..];
    let mut fields = alloy_rlp::Header::decode_bytes(&mut items, true).expect("a list").to_vec();
    alloy_rlp::Encodable::encode(&B256::repeat_byte(7), &mut fields);
    alloy_rlp::Encodable::encode(&25_000_000_000_u64, &mut fields);
    let mut rlp = Vec::new();
    alloy_rlp::Header { list: true, payload_length: fields.len() }.encode(&mut rlp);
    rlp.extend(fields);
    let buf = HeaderBuf::from_rlp(rlp).expect("a header");
    let fee = Cell::Value(U256::from(25_000_000_000_u64));
    let row = HeaderRow {
        hash: Some(&[3; 32]),
        base_fee_per_gas: fee,
        block_access_list_hash: Cell::NoColumn,
        slot_number: Cell::NoColumn,
        ..header_row(&header)
    };
    let transactions = [TransactionRow {
        transaction_index: Some(0),
        block_hash: Some(&[3; 32]),
        ..TransactionRow::default()
    }];
    let block = BlockColumns {
        number: FIRST,
        headers: Some(&[row]),
        transactions: Some(&transactions),
        trusted: Some(&buf),
        ..BlockColumns::default()
    };
    let verdict = block.verify(None);
    assert_eq!(verdict.missing.len(), 6, "each once: {:?}", verdict.missing);
    for check in [Check::HeaderColumns, Check::HeaderHash, Check::BlockHash] {
        undecided(&verdict, check, "profile");
        let verdict = block.verify(Some(&exact()));
        assert!(faults(&verdict).iter().any(|(found, _)| *found == check), "{verdict}");
    }
    // Two columns of one source differ on no chain.
    let block = BlockColumns { trusted: None, ..block };
    assert!(block.verify(None).faults.is_empty());
    let other = [TransactionRow { block_hash: Some(&[4; 32]), ..transactions[0] }];
    let verdict = BlockColumns { transactions: Some(&other), ..block }.verify(None);
    assert_eq!(faults(&verdict), [(Check::BlockHash, Some(Row::Transactions(0)))]);
}

/// Of several rows of a block, the one that transactions and logs name is verified, in any order.
#[test]
fn the_order_of_header_rows() {
    for block in with_logs() {
        let stale = HeaderRow {
            hash: Some(&[0; 32]),
            receipts_root: Some(&[9; 32]),
            transaction_count: Some(1),
            gas_used: Some(1),
            logs_bloom: Some(leak(&[0; 256])),
            ..block.headers[0]
        };
        let mut rows = block.clone();
        rows.headers.push(stale);
        let one = rows.verify();
        assert_eq!(faults(&one), [(Check::HeaderRow, Some(Row::Headers(1)))]);
        assert!(one.receipts_root && one.hash == Some(block.trusted.hash()));
        rows.headers.reverse();
        let other = rows.verify();
        assert_eq!(faults(&other), [(Check::HeaderRow, Some(Row::Headers(0)))]);
        assert_eq!((other.hash, &other.missing), (one.hash, &one.missing));

        // If rows name no block, the order does not matter either.
        rows.transactions.iter_mut().for_each(|row| row.block_hash = None);
        rows.logs.iter_mut().for_each(|row| row.block_hash = None);
        let one = rows.verify();
        rows.headers.reverse();
        let other = rows.verify();
        let checks = |verdict: &BlockVerdict| -> Vec<_> {
            faults(verdict).into_iter().map(|(check, _)| check).collect()
        };
        assert_eq!(checks(&one), checks(&other));
        assert_eq!((one.hash, one.missing), (other.hash, other.missing));
    }
}

/// A log shows that its transaction is missing, also without a root.
#[test]
fn logs_show_that_transactions_are_missing() {
    let no_root: Change = |rows| {
        let header = &mut rows.headers[0];
        (header.receipts_root, header.transaction_count) = (None, None);
    };
    for block in with_logs() {
        let mut rows = block.clone();
        no_root(&mut rows);
        assert_eq!(rows.verify().grade, Grade::Bloom);
        let last = rows.logs[rows.logs.len() - 1].transaction_index.expect("an index");
        let first = rows.logs.iter().position(|log| log.transaction_index == Some(last));
        rows.transactions.retain(|row| row.transaction_index < Some(last));
        let fault = (Check::TransactionIndex, first.map(Row::Logs));
        assert_eq!(faults(&rows.verify()), [fault], "{}", block.name);
        let filtered = Rows { is_filtered: true, ..rows.clone() };
        undecided(&filtered.verify(), Check::TransactionIndex, "rows");
        let verdict = rows.columns().verify(None);
        undecided(&verdict, Check::TransactionIndex, "profile");
        assert_eq!(verdict.grade, Grade::Undecided);
        // Also if transactions have no indices.
        rows.transactions.iter_mut().for_each(|row| row.transaction_index = None);
        assert!(faults(&rows.verify()).contains(&fault));
    }
}

/// A trusted header names its parent, so another block at this height is wrong, whatever its own checks say.
#[test]
fn a_trusted_header_shows_that_another_block_is_not_its_parent() {
    type Entries<'a> = &'a [(&'a HeaderRow<'a>, Option<&'a HeaderBuf>)];
    const NONE: Option<Check> = None;
    const ANCHOR: Option<Check> = Some(Check::Anchor);
    const LINK: Option<Check> = Some(Check::ParentLink);
    let headers = prague(3);
    let other = Header { extra_data: vec![7].into(), ..headers[1].clone() };
    let of_other = Header { parent_hash: other.hash_slow(), ..headers[2].clone() };
    let bufs = [&other, &headers[2], &of_other].map(trusted);
    let [by_sibling, by_child, by_stray] = bufs.each_ref().map(Some);
    let rows = [&headers[0], &headers[1], &headers[2], &other, &of_other].map(header_row);
    let [first, parent, child, sibling, stray] = rows.each_ref();
    // A block without a hash column may be the parent.
    let unknown = &HeaderRow { hash: None, ..*sibling };
    // The entries at the parent's height and at the child's; the checks that fail, in order.
    let cases: [(Entries<'_>, Entries<'_>, &[Option<Check>]); 13] = [
        (&[(sibling, None)], &[(child, by_child)], &[ANCHOR, NONE]),
        (&[(parent, None)], &[(child, by_child)], &[NONE, NONE]),
        (&[(sibling, by_sibling)], &[(child, by_child)], &[NONE, NONE]),
        (&[(sibling, None), (parent, None)], &[(child, by_child)], &[ANCHOR, NONE, NONE]),
        (&[(parent, None), (sibling, None)], &[(child, by_child)], &[NONE, ANCHOR, NONE]),
        (&[(unknown, None)], &[(child, by_child)], &[NONE, NONE]),
        (&[(unknown, None), (sibling, None)], &[(child, by_child)], &[NONE, ANCHOR, NONE]),
        // Any of several blocks at the child's height may be the trusted one, and accuses once.
        (&[(sibling, None)], &[(child, by_child), (child, by_child)], &[ANCHOR, NONE, NONE]),
        (&[(sibling, None)], &[(stray, None), (child, by_child)], &[ANCHOR, NONE, NONE]),
        (&[(sibling, None)], &[(child, by_child), (child, None)], &[ANCHOR, NONE, LINK]),
        (&[(parent, None)], &[(stray, None), (child, by_child)], &[NONE, LINK, NONE]),
        // Trusted headers that contradict each other: what one of them names is not accused.
        (&[(sibling, None)], &[(child, by_child), (stray, by_stray)], &[NONE, NONE, NONE]),
        (&[(parent, None)], &[(stray, by_stray)], &[ANCHOR, NONE]),
    ];
    let ethereum = ChainProfile::ethereum();
    for (at, (below, above, expected)) in cases.into_iter().enumerate() {
        let mut blocks = vec![(FIRST, slice::from_ref(first), None)];
        let entry = |number| {
            move |&(row, buf): &(_, Option<_>)| (number, slice::from_ref::<HeaderRow<'_>>(row), buf)
        };
        blocks.extend(below.iter().map(entry(FIRST + 1)));
        blocks.extend(above.iter().map(entry(FIRST + 2)));
        for profile in [Some(&ethereum), None] {
            let found = chain(&blocks, profile);
            let found: Vec<_> = found.iter().map(faults).collect();
            let expected = [&[NONE], expected].concat();
            let expected: Vec<_> = expected
                .into_iter()
                .map(|check| Vec::from_iter(check.map(|check| (check, None))))
                .collect();
            assert_eq!(found, expected, "case {at}");
        }
    }
    // A trusted header says nothing about a block that does not precede it.
    let far =
        [(FIRST, slice::from_ref(sibling), None), (FIRST + 2, slice::from_ref(child), by_child)];
    assert!(chain(&far, Some(&ethereum))[0].faults.iter().all(|it| it.check != Check::Anchor));
}

/// Deposits of Regolith have no version. Some tables have a 0 there.
#[test]
fn a_version_of_zero_is_none() {
    let row = TransactionRow {
        receipt_type: Some(0x7e),
        status: Some(true),
        deposit_nonce: Some(7),
        deposit_receipt_version: Some(0),
        ..TransactionRow::default()
    };
    let verdict = Made::legacy(true.into(), row).verify(&exact());
    let column = if cfg!(feature = "op") {
        "transactions.deposit_receipt_version"
    } else {
        "transactions.receipt_type"
    };
    undecided(&verdict, Check::ReceiptsRoot, column);
}

/// Numbers beside nulls are numbers.
#[test]
fn indices_beside_nulls() {
    for block in with_logs() {
        let mut rows = block.clone();
        let last = rows.logs.len() - 1;
        rows.logs[0].log_index = None;
        assert_eq!(lacks(&rows.verify(), Check::LogIndex), Some("logs.log_index"));
        rows.logs[last].log_index = Some(last as u64 + 1);
        let verdict = rows.verify();
        assert_eq!(faults(&verdict), [(Check::LogIndex, Some(Row::Logs(last)))], "{verdict}");
        assert!(verdict.receipts_root);
        let mut rows = block.clone();
        let last = rows.transactions.len() - 1;
        rows.transactions[0].transaction_index = None;
        assert!(rows.verify().faults.is_empty());
        rows.transactions[last].transaction_index = Some(u64::MAX);
        let fault = (Check::TransactionIndex, Some(Row::Transactions(last)));
        assert!(faults(&rows.verify()).contains(&fault));
    }
}

/// Which column a selection lacks is not told by the rows that are left.
#[test]
fn a_selection_of_transactions_lacks_rows() {
    for block in with_logs() {
        let mut rows = Rows { is_filtered: true, ..block.clone() };
        rows.transactions.remove(1);
        undecided(&rows.verify(), Check::ReceiptsRoot, "rows");
        assert_eq!(lacks(&rows.verify(), Check::TransactionIndex), Some("rows"));
    }
}
