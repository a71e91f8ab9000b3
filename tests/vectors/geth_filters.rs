//! The table of `TestLogFilter` of go-ethereum (`eth/filters/filter_system_test.go`). Its other tables are beside
//! the code, in `src/eth/log_query`.

use alloy_primitives::{Address, B256, Bytes, Log};
use chainsieve::eth::log_query::{BlockTag, Heads, LogQuery, QueryError, Semantics, TopicSet};

/// The rows of `TestLogFilter` over mined blocks, by their index in the test. Rows 6, 7 and 11 ask
/// for the pending block. The head is block 3.
#[test]
fn log_filter() {
    let [first, second, third, not_used] = [0x11, 0x22, 0x33, 0x99].map(Address::repeat_byte);
    let [topic_1, topic_2, topic_9] = [0x11, 0x22, 0x99].map(B256::repeat_byte);
    let log = |address, topics: &[B256]| Log::new_unchecked(address, topics.to_vec(), Bytes::new());
    let logs = [
        (0, log(first, &[])),
        (1, log(first, &[topic_1])),
        (1, log(second, &[topic_1])),
        (2, log(third, &[topic_2])),
        (3, log(third, &[topic_2])),
    ];
    // The subscription in geth's test has no first block, so the queries here start at block 0.
    let all = || LogQuery::new().from_block(0);
    let rows: [(usize, LogQuery, &[usize]); 10] = [
        (0, all(), &[0, 1, 2, 3, 4]),
        (1, all().addresses([Address::ZERO, not_used]).topic0(TopicSet::any()), &[]),
        (2, all().address(first), &[0, 1]),
        (3, all().address(second).topic0(topic_9), &[]),
        (4, all().address(third).topic0([topic_1, topic_2]), &[3, 4]),
        (5, all().addresses([second, third]).topic0([topic_1, topic_2]), &[2, 3, 4]),
        (8, LogQuery::new().from_block(2).to_block(BlockTag::Latest), &[3, 4]),
        (9, all().to_block(BlockTag::Latest), &[0, 1, 2, 3, 4]),
        (10, LogQuery::new().from_block(1).to_block(2).topic0(topic_2), &[3]),
        (12, all().topic0(TopicSet::any()), &[1, 2, 3, 4]),
    ];
    for (row, query, expected) in rows {
        let blocks = query.resolve(&Heads::latest(3)).unwrap_or_else(|e| panic!("{row}: {e}"));
        let wanted = |(number, log): &(u64, Log)| {
            blocks.contains(*number, &B256::ZERO) && query.matches(log, Semantics::Geth)
        };
        let found: Vec<_> = (0..logs.len()).filter(|at| wanted(&logs[*at])).collect();
        assert_eq!(found, expected, "row {row}");
    }
    let pending = LogQuery::new().from_block(BlockTag::Pending).to_block(BlockTag::Pending);
    assert_eq!(pending.resolve(&Heads::latest(3)), Err(QueryError::Pending));
}
