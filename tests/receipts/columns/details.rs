//! Details of the checks: the values that a trusted header gives, the ends of ranges, and which of several
//! columns decides.

use alloy_consensus::private::alloy_eips::Encodable2718 as _;
use alloy_consensus::{Eip658Value, Header, Receipt, ReceiptEnvelope};
use alloy_primitives::{Address, B256, Bytes, Log, LogData, U256};
use alloy_trie::root::ordered_trie_root_encoded;
use chainsieve::eth::chain_profile::ChainProfile;
use chainsieve::eth::columns::{
    BlockColumns, BlockVerdict, Cell, Check, Grade, HeaderRow, LogRow, Row, TransactionRow, anchor,
};
use chainsieve::eth::header::{BlockRef, HeaderBuf};

use super::{
    FIRST, Made, Rows, chain, exact, faults, header_row, lacks, leak, prague, trusted, undecided,
    with_logs,
};

const GAS: &str = "transactions.cumulative_gas_used";

/// The block's row in the table of blocks is absent: the trusted header takes its place.
fn without_row(rows: &Rows, trusted: &HeaderBuf, profile: &ChainProfile) -> BlockVerdict {
    let columns = BlockColumns { headers: None, trusted: Some(trusted), ..rows.columns() };
    columns.verify(Some(profile))
}

/// Returns a header with more fields than alloy's.
fn longer(header: &Header, fields: &[&dyn alloy_rlp::Encodable]) -> HeaderBuf {
    let rlp = alloy_rlp::encode(header);
    let mut items = &rlp[..];
    let mut payload = alloy_rlp::Header::decode_bytes(&mut items, true).expect("a list").to_vec();
    for field in fields {
        field.encode(&mut payload);
    }
    let mut rlp = Vec::new();
    alloy_rlp::Header { list: true, payload_length: payload.len() }.encode(&mut rlp);
    rlp.extend(payload);
    HeaderBuf::from_rlp(rlp).expect("a header")
}

#[test]
fn a_trusted_header_has_the_gas_and_the_parent() {
    let ethereum = ChainProfile::ethereum();
    for block in with_logs() {
        let mut rows = block.clone();
        for row in &mut rows.transactions {
            (row.gas_used, row.cumulative_gas_used) = (row.cumulative_gas_used, None);
        }
        let verdict = without_row(&rows, block.trusted, &ethereum);
        assert_eq!(verdict.grade, Grade::Complete, "{verdict}");
        assert_eq!(verdict.parent_hash, Some(block.trusted.view().parent_hash()));
    }
}

/// From Amsterdam on, the gas of transactions decides nothing.
#[test]
fn a_trusted_header_has_a_fork() {
    let ethereum = ChainProfile::ethereum();
    let block = &with_logs()[0];
    let mut rows = block.clone();
    rows.number = FIRST;
    for row in &mut rows.transactions {
        (row.gas_used, row.cumulative_gas_used) = (Some(1), None);
    }
    let prague = prague(1).remove(0);
    let verdict = without_row(&rows, &trusted(&prague), &ethereum);
    assert!(faults(&verdict).contains(&(Check::ReceiptsRoot, None)), "{verdict}");
    let amsterdam = longer(&prague, &[&B256::repeat_byte(1), &5_u64]);
    assert_eq!(amsterdam.view().num_fields(), 23);
    let verdict = without_row(&rows, &amsterdam, &ethereum);
    assert_eq!(lacks(&verdict, Check::ReceiptsRoot), Some(GAS), "{verdict}");
}

/// A base fee shows that receipts have a status, and so does a typed transaction.
#[test]
fn blocks_whose_receipts_have_a_status() {
    let receipt = Receipt {
        status: Eip658Value::Eip658(true),
        cumulative_gas_used: 21_000,
        logs: Vec::<Log>::new(),
    };
    let encoding = ReceiptEnvelope::Legacy(receipt.with_bloom()).encoded_2718();
    let receipts_root = ordered_trie_root_encoded(&[encoding]);
    let row = TransactionRow {
        transaction_index: Some(0),
        receipt_type: Some(0),
        status: Some(true),
        root: Some(&[9; 32]),
        cumulative_gas_used: Some(21_000),
        ..TransactionRow::default()
    };
    for base_fee_per_gas in [None, Some(7)] {
        let header = Header { number: FIRST, receipts_root, base_fee_per_gas, ..Header::default() };
        let buf = trusted(&header);
        let block = BlockColumns {
            number: FIRST,
            transactions: Some(&[row]),
            logs: Some(&[]),
            trusted: Some(&buf),
            ..BlockColumns::default()
        };
        let verdict = block.verify(Some(&exact()));
        if base_fee_per_gas.is_some() {
            assert_eq!(verdict.grade, Grade::Complete, "{verdict}");
        } else {
            undecided(&verdict, Check::ReceiptsRoot, "profile");
        }
    }
    for mut rows in with_logs().into_iter().filter(|block| block.number > 13_000_000) {
        rows.headers[0].base_fee_per_gas = Cell::NoColumn;
        rows.transactions.iter_mut().for_each(|row| row.root = Some(&[9; 32]));
        let verdict = rows.columns().verify(Some(&exact()));
        assert!(verdict.receipts_root, "{}: {verdict}", rows.name);
    }
    // The first block of Byzantium has statuses. A root is then no post-state, whatever its length.
    let outcome = Eip658Value::Eip658(true);
    let row = TransactionRow { status: Some(true), ..TransactionRow::default() };
    for root in [&[9; 32][..], &[9; 31]] {
        let row = TransactionRow { root: Some(root), ..row };
        let profile = exact().with_statuses_since(1_000_000);
        let mut made = Made::legacy(outcome, row);
        made.header.base_fee_per_gas = Cell::Null;
        let verdict = made.verify(&profile);
        assert_eq!(verdict.grade, Grade::Consistent, "{verdict}");
        assert!(verdict.faults.is_empty(), "{verdict}");
    }
}

#[test]
fn every_absent_column_of_a_header_is_named() {
    let mut rows = with_logs().remove(0);
    (rows.headers[0].sha3_uncles, rows.headers[0].mix_hash) = (None, None);
    let verdict = rows.verify();
    let missing: Vec<_> = verdict.missing.iter().map(|missing| missing.column).collect();
    assert_eq!(missing, ["headers.sha3_uncles", "headers.mix_hash"]);
}

/// Without rows, a row of the block, or its trusted header, shows that the table of logs has the block.
#[test]
fn a_block_without_logs_has_indices() {
    let header = Header { number: FIRST, ..Header::default() };
    let (row, buf) = ([header_row(&header)], trusted(&header));
    let ethereum = ChainProfile::ethereum();
    let block = BlockColumns { number: FIRST, logs: Some(&[]), ..BlockColumns::default() };
    let grade = |block: BlockColumns<'_>| block.verify(Some(&ethereum)).grade;
    assert_eq!(grade(BlockColumns { trusted: Some(&buf), ..block }), Grade::Bloom);
    assert_eq!(grade(BlockColumns { headers: Some(&row), ..block }), Grade::Bloom);
    assert_eq!(grade(block), Grade::Undecided);
}

/// The column `gas_used` is cumulative if all rows say so, in order, up to the gas of the block.
#[test]
fn which_gas_it_is() {
    for block in with_logs() {
        let later = |rows: &mut Rows| rows.headers[0].block_access_list_hash = Cell::NoColumn;
        let mut whole = block.clone();
        for row in &mut whole.transactions {
            row.gas_used = row.cumulative_gas_used;
        }
        let last = whole.transactions.len() - 1;
        // One row has the cumulative gas nowhere else.
        let mut rows = whole.clone();
        rows.transactions[last].cumulative_gas_used = None;
        assert_eq!(faults(&rows.verify()), [(Check::ReceiptsRoot, None)]);
        later(&mut rows);
        undecided(&rows.verify(), Check::ReceiptsRoot, GAS);
        // Not in order.
        whole.transactions.iter_mut().for_each(|row| row.cumulative_gas_used = None);
        let mut rows = whole.clone();
        rows.transactions[0].gas_used = Some(u64::MAX);
        later(&mut rows);
        undecided(&rows.verify(), Check::ReceiptsRoot, GAS);
        // The gas of the block is unknown, or another.
        for gas in [None, Some(1)] {
            let mut rows = whole.clone();
            rows.headers[0].gas_used = gas;
            later(&mut rows);
            assert!(!rows.verify().receipts_root);
            assert_eq!(lacks(&rows.verify(), Check::ReceiptsRoot), Some(GAS));
        }
    }
}

/// Only deposits have nonce and version under the root.
#[test]
fn a_nonce_of_no_deposit() {
    for block in with_logs() {
        let mut rows = block.clone();
        for row in &mut rows.transactions {
            (row.deposit_nonce, row.deposit_receipt_version) = (Some(1), Some(1));
        }
        assert_eq!(rows.verify().grade, Grade::Complete);
    }
}

/// A string of one byte below 0x80 is its own encoding. Lengths from 56 on have a longer head.
#[test]
fn data_of_all_lengths() {
    let mut datas: Vec<Vec<u8>> = [0, 1, 0x7f, 0x80, 0xff].map(|byte| vec![byte]).into();
    datas.extend(
        [0, 2, 20, 31, 32, 33, 54, 55, 56, 57, 255, 256, 257, 65_535, 65_536].map(|n| vec![7; n]),
    );
    let logs: Vec<_> = datas
        .into_iter()
        .enumerate()
        .map(|(at, data)| Log {
            address: Address::repeat_byte(1),
            data: LogData::new_unchecked(vec![B256::repeat_byte(2); at % 5], Bytes::from(data)),
        })
        .collect();
    // All logs together, and each alone.
    let receipts: Vec<_> = logs.iter().map(|log| vec![log.clone()]).chain([logs.clone()]).collect();
    let encodings: Vec<_> = receipts
        .iter()
        .map(|logs| {
            let receipt =
                Receipt { status: true.into(), cumulative_gas_used: 7, logs: logs.clone() };
            ReceiptEnvelope::Eip1559(receipt.with_bloom()).encoded_2718()
        })
        .collect();
    let root = ordered_trie_root_encoded(&encodings);
    let header = HeaderRow { receipts_root: Some(leak(&root)), ..HeaderRow::default() };
    let row = TransactionRow {
        receipt_type: Some(2),
        status: Some(true),
        cumulative_gas_used: Some(7),
        ..TransactionRow::default()
    };
    let of_each = (0..).zip(&receipts);
    let transactions: Vec<_> = of_each
        .clone()
        .map(|(index, _)| TransactionRow { transaction_index: Some(index), ..row })
        .collect();
    let rows = of_each.flat_map(|(index, logs)| logs.iter().map(move |log| (index, log)));
    let logs: Vec<_> = (0..)
        .zip(rows)
        .map(|(at, (index, log))| LogRow {
            transaction_index: Some(index),
            log_index: Some(at),
            address: Some(log.address.as_slice()),
            topics: Some(std::array::from_fn(|at| log.topics().get(at).map(|topic| &topic[..]))),
            data: Some(&log.data.data),
            ..LogRow::default()
        })
        .collect();
    let block = BlockColumns {
        number: FIRST,
        headers: Some(&[header]),
        transactions: Some(&transactions),
        logs: Some(&logs),
        ..BlockColumns::default()
    };
    let verdict = block.verify(Some(&exact()));
    assert_eq!((verdict.grade, verdict.faults.len()), (Grade::Consistent, 0), "{verdict}");
}

/// Rows of two other blocks are one fault for each table.
#[test]
fn rows_of_two_other_blocks() {
    for block in with_logs() {
        let mut rows = block.clone();
        rows.transactions.iter_mut().for_each(|row| row.block_hash = Some(&[1; 32]));
        rows.logs.iter_mut().for_each(|row| row.block_hash = Some(&[2; 32]));
        let expected =
            [Row::Transactions(0), Row::Logs(0)].map(|row| (Check::BlockHash, Some(row)));
        assert_eq!(faults(&rows.verify()), expected);
    }
}

/// A zero base fee is a value, if the header has the field.
#[test]
fn a_base_fee_of_zero_in_a_selection() {
    let header = Header { base_fee_per_gas: Some(0), ..Header::default() };
    let row = header_row(&header);
    assert_eq!(row.base_fee_per_gas, Cell::Value(U256::ZERO));
    let block = BlockColumns {
        headers: Some(&[row]),
        transactions: Some(&[]),
        logs: Some(&[]),
        is_filtered: true,
        ..BlockColumns::default()
    };
    let verdict = block.verify(Some(&ChainProfile::ethereum()));
    assert_eq!(verdict.grade, Grade::Complete, "{verdict}");
}

/// Gaps take the grade, also on a chain where they are no fault.
#[test]
fn gaps_of_an_unknown_chain() {
    for block in with_logs() {
        let grade = |rows: &Rows| {
            let verdict = rows.columns().verify(None);
            assert!(verdict.faults.is_empty(), "{verdict}");
            verdict.grade
        };
        assert_eq!(grade(&block), Grade::Indices);
        let mut rows = block.clone();
        rows.transactions.remove(1);
        assert_eq!(grade(&rows), Grade::Undecided);
        let mut rows = block.clone();
        rows.logs.remove(1);
        assert_eq!(grade(&rows), Grade::Undecided);
        // Logs alone have indices, too.
        let logs = BlockColumns { headers: None, transactions: None, ..block.columns() };
        assert_eq!(logs.verify(None).grade, Grade::Indices);
    }
}

/// The transaction of a log is found although rows before it are missing.
#[test]
fn a_hash_behind_a_gap() {
    for block in with_logs() {
        let mut rows = block.clone();
        let last = rows.logs.len() - 1;
        rows.transactions.remove(0);
        let fault = (Check::TransactionHash, Some(Row::Logs(last)));
        assert!(!faults(&rows.verify()).contains(&fault));
        rows.logs[last].transaction_hash = Some(&[5; 32]);
        assert!(faults(&rows.verify()).contains(&fault));
    }
}

#[test]
fn the_first_and_second_block_are_linked() {
    let headers = prague(2);
    let other = Header { parent_hash: B256::ZERO, ..headers[1].clone() };
    for (child, expected) in [(&headers[1], &[][..]), (&other, &[(Check::ParentLink, None)])] {
        let (one, two) = ([header_row(&headers[0])], [header_row(child)]);
        let blocks = [(FIRST, &one[..], None), (FIRST + 1, &two[..], None)];
        let verdicts = chain(&blocks, Some(&ChainProfile::ethereum()));
        assert_eq!(faults(&verdicts[1]), expected);
    }
}

/// A gap ends what is anchored, and accuses nobody. A trusted block does not end it.
#[test]
fn what_an_anchor_passes() {
    let headers = prague(4);
    let last = BlockRef { number: FIRST + 3, hash: headers[3].hash_slow() };
    let rows: Vec<_> = headers.iter().map(|header| [header_row(header)]).collect();
    let buf = trusted(&headers[2]);
    let blocks = [0, 1, 2, 3].map(|at| {
        let is_trusted = at == 2;
        (FIRST + at as u64, &rows[at][..], is_trusted.then_some(&buf))
    });
    let ethereum = ChainProfile::ethereum();
    assert_eq!(anchor(&mut chain(&blocks, Some(&ethereum)), last), 4);
    let mut verdicts = chain(&[blocks[0], blocks[1], blocks[3]], Some(&ethereum));
    assert_eq!(anchor(&mut verdicts, last), 1);
    assert!(verdicts.iter().all(|verdict| verdict.faults.is_empty()), "{verdicts:?}");
}
