//! Rules of the chain: Byzantium, deposits, unknown types, gas, links and anchors; and values that no chain
//! has.

use std::slice;

use alloy_consensus::private::alloy_eips::Encodable2718 as _;
use alloy_consensus::{Eip658Value, ReceiptEnvelope};
use alloy_primitives::{B256, Bloom};
use chainsieve::eth::chain_profile::{BloomSoundness, ChainProfile, ReceiptsScope};
use chainsieve::eth::columns::{
    BlockColumns, BlockVerdict, Cell, Check, Grade, HeaderBasis, HeaderRow, LogRow, TransactionRow,
    anchor, verify,
};
use chainsieve::eth::header::BlockRef;
use op_alloy_consensus::{OpDepositReceipt, OpReceiptEnvelope};

use super::{
    FIRST, Made, Rows, chain, exact, faults, header_row, lacks, leak, prague, receipt, trusted,
    with_logs,
};

fn needs(verdict: &BlockVerdict) -> Option<&'static str> {
    assert!(verdict.faults.is_empty(), "{verdict}");
    lacks(verdict, Check::ReceiptsRoot)
}

#[test]
fn before_byzantium() {
    let state = B256::repeat_byte(5);
    let row = TransactionRow { root: Some(leak(&state)), ..TransactionRow::default() };
    let ethereum = ChainProfile::ethereum();
    let mut made = Made::legacy(Eip658Value::PostState(state), row);
    assert_eq!(made.verify(&ethereum).grade, Grade::Consistent);
    // The status is made up.
    made.transaction.status = Some(true);
    assert_eq!(made.verify(&ethereum).grade, Grade::Consistent);
    // Types did not exist, and some tables have null.
    made.transaction.receipt_type = None;
    assert_eq!(made.verify(&exact()).grade, Grade::Consistent);
    made.transaction.receipt_type = Some(0);
    made.transaction.root = None;
    assert_eq!(needs(&made.verify(&ethereum)), Some("transactions.root"));
    assert_eq!(needs(&made.verify(&exact())), Some("transactions.root"));
    made.transaction.status = None;
    assert_eq!(needs(&made.verify(&ethereum)), Some("transactions.root"));
    assert_eq!(needs(&made.verify(&exact())), Some("transactions.status"));
    // A wrong root is damage, unless the status may be what counts.
    made.transaction.root = Some(&[6; 32]);
    assert_eq!(faults(&made.verify(&ethereum)), [(Check::ReceiptsRoot, None)]);
    made.transaction.status = Some(true);
    assert_eq!(needs(&made.verify(&exact())), Some("profile"));
    let later = exact().with_statuses_since(1_000_001);
    assert_eq!(faults(&made.verify(&later)), [(Check::ReceiptsRoot, None)]);
}

#[test]
fn after_byzantium() {
    // Some tables have zeros where there is no post-state.
    let (status, root) = (Some(true), Some(&[0; 32][..]));
    let mut made =
        Made::legacy(true.into(), TransactionRow { status, root, ..TransactionRow::default() });
    let later = exact().with_statuses_since(1_000_000);
    assert_eq!(made.verify(&later).grade, Grade::Consistent);
    assert_eq!(made.verify(&exact()).grade, Grade::Consistent);
    // A base fee shows that the block is later, so another root beside the status is made up, too.
    made.transaction.root = Some(&[9; 32]);
    assert_eq!(needs(&made.verify(&exact())), Some("profile"));
    made.header.base_fee_per_gas = Cell::Value(alloy_primitives::U256::ONE);
    assert_eq!(made.verify(&exact()).grade, Grade::Consistent);
    made.transaction.status = Some(false);
    assert_eq!(faults(&made.verify(&exact())), [(Check::ReceiptsRoot, None)]);
    made.transaction.status = None;
    assert_eq!(needs(&made.verify(&exact())), Some("transactions.status"));
}

#[test]
fn deposits_and_unknown_types() {
    let profile = ChainProfile::of_chain_id(10).expect("a profile").with_range(
        0,
        BloomSoundness::Exact,
        ReceiptsScope::EveryLog,
        "a test",
    );
    let row = TransactionRow {
        receipt_type: Some(0x7e),
        status: Some(true),
        cumulative_gas_used: Some(46_913),
        deposit_nonce: Some(7),
        ..TransactionRow::default()
    };
    for version in [None, Some(1)] {
        let deposit = OpDepositReceipt {
            inner: receipt(true.into()),
            deposit_nonce: version.map(|_| 7),
            deposit_receipt_version: version,
        };
        let encoding = OpReceiptEnvelope::Deposit(deposit.with_bloom()).encoded_2718();
        let mut made = Made::of(&encoding, row);
        made.transaction.deposit_receipt_version = version;
        assert_eq!(made.verify(&profile).grade, Grade::Consistent);
        // Without a version, the root may cover one that the table lacks.
        made.transaction.cumulative_gas_used = Some(1);
        let verdict = made.verify(&profile);
        if version.is_none() || cfg!(not(feature = "op")) {
            assert!(needs(&verdict).is_some_and(|column| column.starts_with("transactions.")));
        } else {
            assert_eq!(faults(&verdict), [(Check::ReceiptsRoot, None)]);
        }
    }
    // Arbitrum's type 0x6a is a plain receipt, but another type may not be one.
    let mut encoding = ReceiptEnvelope::Eip1559(receipt(true.into()).with_bloom()).encoded_2718();
    encoding[0] = 0x6a;
    let mut made = Made::of(&encoding, TransactionRow { receipt_type: Some(0x6a), ..row });
    assert_eq!(made.verify(&profile).grade, Grade::Consistent);
    made.log.data = Some(b"other");
    assert_eq!(needs(&made.verify(&profile)), Some("transactions.receipt_type"));
    made.transaction.receipt_type = Some(1);
    assert_eq!(faults(&made.verify(&profile)), [(Check::ReceiptsRoot, None)]);
}

/// `gas_used` may have the gas of each transaction or the cumulative gas. Since Amsterdam, neither may be what
/// the root covers.
#[test]
fn gas_of_transactions() {
    for block in with_logs() {
        let mut rows = block.clone();
        rows.transactions.iter_mut().for_each(|row| row.cumulative_gas_used = None);
        assert_eq!(rows.verify().grade, Grade::Complete);
        let by_gas = rows.clone();
        for (row, whole) in rows.transactions.iter_mut().zip(&block.transactions) {
            row.gas_used = whole.cumulative_gas_used;
        }
        assert_eq!(rows.verify().grade, Grade::Complete, "the cumulative gas");
        let mut damaged = by_gas;
        damaged.transactions[0].gas_used = Some(u64::MAX);
        assert_eq!(faults(&damaged.verify()), [(Check::ReceiptsRoot, None)]);
        damaged.headers[0].block_access_list_hash = Cell::NoColumn;
        assert_eq!(needs(&damaged.verify()), Some("transactions.cumulative_gas_used"));
        damaged.headers[0].block_access_list_hash = Cell::Null;
        damaged.headers[0].gas_used = None;
        assert_eq!(needs(&damaged.verify()), Some("transactions.cumulative_gas_used"));
    }
}

fn verdicts(rows: &[HeaderRow<'_>]) -> Vec<BlockVerdict> {
    let blocks = (FIRST..).zip(rows).map(|(number, row)| (number, slice::from_ref(row), None));
    chain(&blocks.collect::<Vec<_>>(), Some(&ChainProfile::ethereum()))
}

#[test]
fn links_and_anchors() {
    let headers = prague(6);
    let rows: Vec<_> = headers.iter().map(header_row).collect();
    let at =
        |index: usize| BlockRef { number: headers[index].number, hash: headers[index].hash_slow() };
    let mut whole = verdicts(&rows);
    assert!(whole.iter().all(|verdict| verdict.grade == Grade::Complete));
    assert_eq!(anchor(&mut whole, at(3)), 4);
    let bases: Vec<_> = whole.iter().map(|verdict| verdict.header).collect();
    let (tied, other) = (HeaderBasis::Anchored, HeaderBasis::Recomputed);
    assert_eq!(bases, [tied, tied, tied, tied, other, other]);
    assert_eq!(anchor(&mut whole, BlockRef { number: FIRST + 9, ..at(3) }), 0);
    assert_eq!(anchor(&mut [], at(0)), 0);

    // Without the hash column, the block above says what the columns must hash to.
    let mut without = rows.clone();
    without[2].hash = None;
    let mut found = verdicts(&without);
    assert_eq!(found[2].grade, Grade::Consistent);
    assert_eq!(anchor(&mut found, at(5)), 6);
    assert_eq!((found[2].grade, found[2].header), (Grade::Complete, tied));

    // A sibling passes its own checks.
    let sibling = alloy_consensus::Header { extra_data: vec![7].into(), ..headers[2].clone() };
    let mut other_branch = rows.clone();
    other_branch[2] = header_row(&sibling);
    let mut found = verdicts(&other_branch);
    assert_eq!(found[2].grade, Grade::Complete);
    assert_eq!(faults(&found[3]), [(Check::ParentLink, None)]);
    assert_eq!(anchor(&mut found, at(5)), 3);
    assert_eq!(faults(&found[2]), [(Check::Anchor, None)]);
    assert_eq!(found[1].header, other);

    // A block that is absent, and one whose hash cannot be computed, end what is tied.
    let mut gap = verdicts(&rows);
    drop(gap.remove(3));
    assert_eq!(anchor(&mut gap, at(5)), 2);
    let mut unknown = rows;
    unknown[3].mix_hash = None;
    let mut found = verdicts(&unknown);
    assert_eq!(anchor(&mut found, at(5)), 2);
    assert_eq!((found[3].grade, found[3].header), (Grade::Consistent, HeaderBasis::Unproven));
    assert!(found.iter().all(|verdict| verdict.faults.is_empty()));
}

#[test]
fn text_and_json() {
    let block = &with_logs()[0];
    let verdict = block.verify();
    let text = format!("block {}: complete, header recomputed", block.number);
    assert_eq!(verdict.to_string(), text);
    let hash = verdict.hash.expect("a hash");
    let json = serde_json::to_value(&verdict).expect("JSON");
    let expected = serde_json::json!({
        "number": block.number, "grade": "complete", "header": "recomputed", "receipts_root": true,
        "hash": hash, "parent_hash": verdict.parent_hash, "faults": [], "missing": [],
    });
    assert_eq!(json, expected);

    let mut rows = block.clone();
    rows.headers[0].hash = None;
    rows.logs[3].log_index = Some(7);
    let verdict = rows.verify();
    let text = verdict.to_string();
    assert!(text.ends_with("wrong: log_index at logs row 3; the receipts root is equal"), "{text}");
    let json = serde_json::to_value(&verdict).expect("JSON");
    let fault = serde_json::json!([
        { "check": "log_index", "table": "logs", "row": 3, "column": null }
    ]);
    assert_eq!(json["faults"], fault);
    let missing = serde_json::json!([{ "check": "header_hash", "column": "headers.hash" }]);
    assert_eq!(json["missing"], missing);

    rows.logs[3].log_index = Some(3);
    rows.transactions.iter_mut().for_each(|row| row.status = None);
    let text = rows.verify().to_string();
    let end = "bloom: header_hash needs headers.hash, receipts_root needs transactions.status";
    assert!(text.ends_with(end), "{text}");
}

/// Cells of any length and any number: no panic, no overflow, and time in proportion to the rows.
#[test]
fn hostile_values() {
    let bytes: &'static [u8] = vec![0xff; 70_000].leak();
    let cells = [None, Some(&bytes[..0]), Some(&bytes[..1]), Some(&bytes[..32]), Some(bytes)];
    let numbers = [None, Some(0), Some(1), Some(u64::MAX)];
    let profile = ChainProfile::ethereum();
    let mut rng = testkit::Rng::new(4);
    for _ in 0..4_000 / testkit::stride(8) {
        let mut cell = || *rng.pick(&cells);
        let (one, two, three, four) = (cell(), cell(), cell(), cell());
        let mut number = || *rng.pick(&numbers);
        let header = HeaderRow {
            hash: one,
            parent_hash: two,
            receipts_root: three,
            logs_bloom: four,
            sha3_uncles: two,
            miner: one,
            state_root: two,
            transactions_root: one,
            difficulty: number().map(alloy_primitives::U256::from),
            gas_limit: number(),
            gas_used: number(),
            timestamp: number(),
            extra_data: two,
            mix_hash: three,
            nonce: four,
            blob_gas_used: number().into(),
            withdrawals_root: one.into(),
            transaction_count: number(),
            ..HeaderRow::default()
        };
        let transactions: Vec<_> = (0..4)
            .map(|_| TransactionRow {
                transaction_index: number(),
                hash: one,
                block_hash: two,
                receipt_type: number().map(|number| number.to_le_bytes()[0]),
                status: number().map(|number| number == 1),
                root: three,
                cumulative_gas_used: number(),
                gas_used: number(),
                deposit_nonce: number(),
                deposit_receipt_version: number(),
            })
            .collect();
        let logs: Vec<_> = (0..4)
            .map(|_| LogRow {
                transaction_index: number(),
                log_index: number(),
                transaction_hash: two,
                block_hash: one,
                address: three,
                topics: number().map(|_| [four, one, three, two]),
                data: four,
                is_removed: number() == Some(0),
            })
            .collect();
        let headers = vec![header; (number().unwrap_or(2) % 3) as usize];
        for block in [u64::MAX, 0, 4_370_000] {
            let columns = BlockColumns {
                number: block,
                headers: Some(&headers),
                transactions: Some(&transactions),
                logs: Some(&logs),
                is_filtered: number() == Some(1),
                ..BlockColumns::default()
            };
            let mut verdicts = verify(&[columns, columns], Some(&profile));
            assert_eq!(verdicts[0].faults.first(), verdicts[1].faults.first());
            let trusted = BlockRef { number: block, hash: B256::repeat_byte(0xff) };
            let _ = anchor(&mut verdicts, trusted);
            assert!(!verdicts[0].to_string().is_empty());
            assert!(verdicts.iter().all(|verdict| verdict.grade != Grade::Complete));
        }
    }
}

/// Many rows with one index, equal or not, are sorted in less than quadratic time.
#[test]
fn giant_counts() {
    let count = 100_000_u64;
    let data: Vec<[u8; 8]> = (0..count).map(|at| (at % 5_000).to_be_bytes()).collect();
    let log = LogRow {
        transaction_index: Some(0),
        log_index: Some(0),
        address: Some(&[1; 20]),
        topics: Some([None; 4]),
        ..LogRow::default()
    };
    let logs: Vec<_> = data.iter().map(|data| LogRow { data: Some(data), ..log }).collect();
    let transaction = TransactionRow {
        transaction_index: Some(0),
        receipt_type: Some(2),
        status: Some(true),
        gas_used: Some(u64::MAX),
        ..TransactionRow::default()
    };
    let transactions = vec![transaction; 100_000];
    let columns = BlockColumns {
        logs: Some(&logs),
        transactions: Some(&transactions),
        ..BlockColumns::default()
    };
    let started = std::time::Instant::now();
    let checks = |profile| -> Vec<_> {
        let verdict = columns.verify(profile);
        faults(&verdict).into_iter().map(|(check, _)| check).collect()
    };
    assert_eq!(checks(None), [Check::Copies, Check::Copies]);
    let ethereum = ChainProfile::ethereum();
    assert_eq!(checks(Some(&ethereum)), [Check::Copies, Check::Copies, Check::LogIndex]);
    // Blocks without rows cost little, too.
    let empty = vec![BlockColumns::default(); 100_000];
    assert_eq!(verify(&empty, None).len(), 100_000);
    // So do many blocks at one height, each of which is compared with the many that may be its parent.
    let header = &prague(2)[1];
    let (row, buf) = (header_row(header), trusted(header));
    let other = HeaderRow { hash: Some(&[9; 32]), mix_hash: None, ..row };
    let blocks = |number, header, by| vec![(number, slice::from_ref(header), by); 50_000];
    let proven = Some(&buf);
    let two = [
        blocks(FIRST, &other, None),
        blocks(FIRST + 1, &row, proven),
        blocks(FIRST + 1, &row, None),
    ];
    let verdicts = chain(&two.concat(), None);
    let checks = [Some(Check::Anchor), None, Some(Check::ParentLink)].map(Vec::from_iter);
    for (verdicts, checks) in verdicts.chunks(50_000).zip(checks) {
        assert!(
            verdicts
                .iter()
                .all(|it| faults(it).iter().map(|(check, _)| *check).eq(checks.iter().copied()))
        );
    }
    assert!(started.elapsed().as_secs() < 20, "{:?}", started.elapsed());
}

/// All bits of the filter are set by the block's own logs, so the filter shows nothing.
#[test]
fn a_filter_without_information_refutes_nothing() {
    let mut rows: Rows = with_logs().remove(0);
    rows.headers[0].logs_bloom = Some(leak(&Bloom::repeat_byte(0xff)));
    let verdict = Rows { is_filtered: true, ..rows }.verify();
    assert!(faults(&verdict).iter().all(|(check, _)| *check == Check::HeaderHash), "{verdict}");
}
