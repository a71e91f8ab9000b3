//! Each kind of damage is named, and nothing else is accused.

use alloy_primitives::U256;
use chainsieve::eth::columns::{Cell, Check, Grade, LogRow, Row};
use testkit::{Rng, stride};

use super::{Rows, leak, with_logs};

/// Damages rows, and returns the check that must fail, and the row that it must name.
type Damage = fn(&mut Rows, &mut Rng) -> (Check, Option<Row>);

fn altered(cell: &[u8], rng: &mut Rng) -> &'static [u8] {
    let mut bytes = cell.to_vec();
    let at = rng.below(bytes.len());
    bytes[at] ^= 1 << rng.below(8);
    bytes.leak()
}

/// Returns the index of a log with data, and with a topic.
fn some_log(rows: &Rows, rng: &mut Rng) -> usize {
    let is_it = |log: &LogRow<'_>| {
        log.data.is_some_and(|data| !data.is_empty())
            && log.topics.is_some_and(|topics| topics[1].is_some())
    };
    let start = rng.below(rows.logs.len());
    (start..rows.logs.len()).chain(0..start).find(|&at| is_it(&rows.logs[at])).expect("a log")
}

fn renumber(rows: &mut Rows) {
    for (index, log) in (0..).zip(&mut rows.logs) {
        log.log_index = Some(index);
    }
}

const ROOT: (Check, Option<Row>) = (Check::ReceiptsRoot, None);

/// The receipts root is still equal: damage that leaves the content as it is does not hide that it is complete.
const SPARED: bool = true;
const HURT: bool = false;

/// Kinds of damage.
const DAMAGES: [(&str, bool, Damage); 36] = [
    ("the last log is gone", HURT, |rows, _| {
        rows.logs.pop();
        ROOT
    }),
    ("a log is gone", HURT, |rows, rng| {
        let at = rng.below(rows.logs.len() - 1);
        rows.logs.remove(at);
        (Check::LogIndex, Some(Row::Logs(at)))
    }),
    ("a log is gone, and the others are numbered again", HURT, |rows, rng| {
        rows.logs.remove(rng.below(rows.logs.len()));
        renumber(rows);
        ROOT
    }),
    ("all logs are gone", HURT, |rows, _| {
        rows.logs.clear();
        ROOT
    }),
    ("a log is there twice", SPARED, |rows, rng| {
        let log = *rng.pick(&rows.logs);
        rows.logs.push(log);
        (Check::Copies, Some(Row::Logs(rows.logs.len() - 1)))
    }),
    ("two logs are swapped", HURT, |rows, rng| {
        let at = some_log(rows, rng);
        let is_other = |log: &LogRow<'_>| {
            (log.address, log.topics, log.data)
                != (rows.logs[at].address, rows.logs[at].topics, rows.logs[at].data)
        };
        let other = rows.logs.iter().position(is_other).expect("another log");
        let (one, two) = (rows.logs[at], rows.logs[other]);
        rows.logs[at] = LogRow { address: two.address, topics: two.topics, data: two.data, ..one };
        rows.logs[other] =
            LogRow { address: one.address, topics: one.topics, data: one.data, ..two };
        ROOT
    }),
    ("data are altered", HURT, |rows, rng| {
        let at = some_log(rows, rng);
        rows.logs[at].data = Some(altered(rows.logs[at].data.expect("data"), rng));
        ROOT
    }),
    ("data are cut", HURT, |rows, rng| {
        let at = some_log(rows, rng);
        rows.logs[at].data = rows.logs[at].data.map(|data| &data[..data.len() - 1]);
        ROOT
    }),
    ("data are empty", HURT, |rows, rng| {
        let at = some_log(rows, rng);
        rows.logs[at].data = Some(&[]);
        ROOT
    }),
    ("an address is altered", HURT, |rows, rng| {
        let at = some_log(rows, rng);
        rows.logs[at].address = Some(altered(rows.logs[at].address.expect("an address"), rng));
        ROOT
    }),
    ("an address is cut", HURT, |rows, rng| {
        let at = some_log(rows, rng);
        rows.logs[at].address = Some(&rows.logs[at].address.expect("an address")[1..]);
        ROOT
    }),
    ("a topic is altered", HURT, |rows, rng| {
        let at = some_log(rows, rng);
        let topics = rows.logs[at].topics.as_mut().expect("topics");
        topics[1] = Some(altered(topics[1].expect("a topic"), rng));
        ROOT
    }),
    ("the last topic is gone", HURT, |rows, rng| {
        let at = some_log(rows, rng);
        let topics = rows.logs[at].topics.as_mut().expect("topics");
        let last = topics.iter().rposition(Option::is_some).expect("a topic");
        topics[last] = None;
        ROOT
    }),
    ("the first topic is gone", HURT, |rows, rng| {
        let at = some_log(rows, rng);
        rows.logs[at].topics.as_mut().expect("topics")[0] = None;
        (Check::Topics, Some(Row::Logs(at)))
    }),
    ("log indices are shifted", SPARED, |rows, rng| {
        let from = rng.below(rows.logs.len());
        for log in &mut rows.logs[from..] {
            log.log_index = log.log_index.map(|index| index + 1);
        }
        (Check::LogIndex, Some(Row::Logs(from)))
    }),
    ("a log index is the greatest number", SPARED, |rows, _| {
        let last = rows.logs.len() - 1;
        rows.logs[last].log_index = Some(u64::MAX);
        (Check::LogIndex, Some(Row::Logs(last)))
    }),
    ("logs are numbered by transaction", SPARED, |rows, _| {
        let mut first = None;
        for at in 0..rows.logs.len() {
            let of = rows.logs[at].transaction_index;
            let before = rows.logs[..at].iter().filter(|log| log.transaction_index == of).count();
            if before != at && first.is_none() {
                first = Some(Row::Logs(at));
            }
            rows.logs[at].log_index = Some(before as u64);
        }
        (Check::LogIndex, first)
    }),
    ("a log has another transaction's hash", SPARED, |rows, rng| {
        let at = rng.below(rows.logs.len());
        rows.logs[at].transaction_hash = Some(leak(&rng.word()));
        (Check::TransactionHash, Some(Row::Logs(at)))
    }),
    ("a log is of a transaction that is not there", HURT, |rows, _| {
        let last = rows.logs.len() - 1;
        rows.logs[last].transaction_index = Some(u64::MAX);
        ROOT
    }),
    ("a log is invented", HURT, |rows, rng| {
        let log = rows.logs[rng.below(rows.logs.len())];
        rows.logs.push(LogRow { log_index: Some(rows.logs.len() as u64), ..log });
        rows.logs.sort_by_key(|log| (log.transaction_index, log.log_index));
        renumber(rows);
        ROOT
    }),
    ("a log of no transaction is invented", HURT, |rows, rng| {
        let log = rows.logs[rng.below(rows.logs.len())];
        let transaction_index = Some(rows.transactions.len() as u64);
        let log_index = Some(rows.logs.len() as u64);
        rows.logs.push(LogRow { transaction_index, log_index, transaction_hash: None, ..log });
        (Check::ReceiptsRoot, Some(Row::Logs(rows.logs.len() - 1)))
    }),
    ("a removed log is left in", SPARED, |rows, rng| {
        let log = rows.logs[rng.below(rows.logs.len())];
        let block_hash = Some(leak(&rng.word()));
        rows.logs.insert(0, LogRow { is_removed: true, block_hash, ..log });
        (Check::Removed, Some(Row::Logs(0)))
    }),
    ("logs of another block", SPARED, |rows, rng| {
        let log = rows.logs[rng.below(rows.logs.len())];
        let (data, block_hash) = (Some(leak(&rng.word())), Some(leak(&rng.word())));
        rows.logs.insert(3, LogRow { data, block_hash, ..log });
        (Check::BlockHash, Some(Row::Logs(3)))
    }),
    ("all logs have another block's hash", SPARED, |rows, rng| {
        let hash = leak(&rng.word());
        rows.logs.iter_mut().for_each(|log| log.block_hash = Some(hash));
        (Check::BlockHash, Some(Row::Logs(0)))
    }),
    ("a transaction is gone", HURT, |rows, rng| {
        let at = rng.below(rows.transactions.len() - 1);
        rows.transactions.remove(at);
        (Check::TransactionIndex, Some(Row::Transactions(at)))
    }),
    ("the last transaction is gone", HURT, |rows, _| {
        rows.transactions.pop();
        (Check::TransactionCount, Some(Row::Headers(0)))
    }),
    ("a transaction is there twice", SPARED, |rows, rng| {
        let transaction = *rng.pick(&rows.transactions);
        rows.transactions.push(transaction);
        (Check::Copies, Some(Row::Transactions(rows.transactions.len() - 1)))
    }),
    ("a status is altered", HURT, |rows, rng| {
        let at = rng.below(rows.transactions.len());
        let status = &mut rows.transactions[at].status;
        *status = status.map(|status| !status);
        ROOT
    }),
    ("gas is altered", HURT, |rows, rng| {
        let at = rng.below(rows.transactions.len());
        rows.transactions[at].cumulative_gas_used = Some(rng.u64());
        ROOT
    }),
    ("a type is altered", HURT, |rows, rng| {
        let at = rng.below(rows.transactions.len());
        let kind = rows.transactions[at].receipt_type.expect("a type");
        rows.transactions[at].receipt_type = Some((kind + 1) % 5);
        ROOT
    }),
    ("the row of the block is there twice", SPARED, |rows, _| {
        rows.headers.push(rows.headers[0]);
        (Check::HeaderRow, Some(Row::Headers(1)))
    }),
    ("the row of the block is gone", HURT, |rows, _| {
        rows.headers.clear();
        (Check::HeaderRow, None)
    }),
    ("a header cell is altered", SPARED, |rows, rng| {
        let row = &mut rows.headers[0];
        let cell = [&mut row.state_root, &mut row.mix_hash, &mut row.nonce, &mut row.miner];
        let cell = cell.into_iter().nth(rng.below(4)).expect("one of four");
        *cell = Some(altered(cell.expect("a cell"), rng));
        (Check::HeaderHash, Some(Row::Headers(0)))
    }),
    ("a header number is altered", SPARED, |rows, rng| {
        let row = &mut rows.headers[0];
        match rng.below(3) {
            0 => row.timestamp = Some(u64::MAX),
            1 => row.gas_limit = Some(0),
            _ => row.requests_hash = Cell::Value(&[7; 32]),
        }
        // A hole in the middle of a header decides nothing.
        if row.requests_hash != Cell::Null && row.parent_beacon_block_root == Cell::Null {
            row.requests_hash = Cell::Null;
            row.difficulty = row.difficulty.map(|difficulty| difficulty ^ U256::MAX);
        }
        (Check::HeaderHash, Some(Row::Headers(0)))
    }),
    ("the hash of the block is altered", SPARED, |rows, rng| {
        rows.headers[0].hash = Some(altered(rows.headers[0].hash.expect("a hash"), rng));
        (Check::HeaderHash, Some(Row::Headers(0)))
    }),
    ("the filter is altered", SPARED, |rows, rng| {
        rows.headers[0].logs_bloom =
            Some(altered(rows.headers[0].logs_bloom.expect("a filter"), rng));
        (Check::LogsBloom, None)
    }),
];

#[test]
fn each_kind_of_damage_is_named() {
    let seeds = 8 / stride(8) as u64;
    for block in with_logs() {
        for (kind, is_spared, damage) in DAMAGES {
            for seed in 0..seeds {
                let mut rows = block.clone();
                let (check, row) = damage(&mut rows, &mut Rng::new(seed));
                let verdict = rows.verify();
                let name = format!("{}, {kind}, seed {seed}: {verdict}", block.name);
                assert_eq!(verdict.grade, Grade::Wrong, "{name}");
                let found = verdict.faults.iter().find(|fault| fault.check == check);
                let found = found.unwrap_or_else(|| panic!("{name}"));
                // A filter that lacks bits names the first log with one of them.
                assert!(found.row == row || check == Check::LogsBloom, "{name}, {row:?}");
                assert_eq!(verdict.receipts_root, is_spared, "{name}");

                // The trusted header takes the place of the row of the block.
                let verdict = rows.trusted().verify();
                assert_eq!(verdict.grade, Grade::Wrong, "{name}, trusted: {verdict}");
                // A trusted header takes the place of a row that is gone.
                let is_spared = is_spared || check == Check::HeaderRow;
                assert_eq!(verdict.receipts_root, is_spared, "{name}, trusted: {verdict}");
                let by_columns = [Check::HeaderHash, Check::LogsBloom].contains(&check);
                let has = |check| verdict.faults.iter().any(|fault| fault.check == check);
                let is_named = has(check) || by_columns && has(Check::HeaderColumns);
                assert!(is_named, "{name}, trusted: {verdict}");
            }
        }
    }
}

#[test]
fn a_trusted_header_names_the_altered_column() {
    for block in with_logs() {
        let mut rows = block.trusted();
        rows.headers[0].timestamp = Some(0);
        rows.headers[0].requests_hash = Cell::Value(&[7; 32]);
        let verdict = rows.verify();
        let columns: Vec<_> = verdict.faults.iter().map(|fault| fault.column).collect();
        assert_eq!(columns, [Some("headers.timestamp"), Some("headers.requests_hash")]);
        let fault = serde_json::to_value(&verdict.faults[0]).expect("JSON");
        let expected = serde_json::json!({
            "check": "header_columns", "table": "headers", "row": 0, "column": "headers.timestamp",
        });
        assert_eq!(fault, expected);
        assert!(verdict.receipts_root);
    }
}
