//! The carried data set: made of the two consecutive blocks among the fixtures, in the schema of cryo.
//!
//! With `CHAINSIEVE_FIXTURES=write`, the files are written again.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow_array::{
    ArrayRef, BooleanArray, LargeBinaryArray, RecordBatch, UInt32Array, UInt64Array,
};
use arrow_select::concat::concat_batches;
use chainsieve::alloy_primitives::hex;
use chainsieve::eth::chain_profile::ChainProfile;
use chainsieve::eth::columns::{Check, Grade, HeaderBasis};
use chainsieve::eth::header::BlockRef;
use chainsieve::eth::receipts::{BlockReceipts, Outcome};
use chainsieve_dataset::{Dataset, Table};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;
use serde_json::Value;

use crate::corpus::verify;
use crate::tables::{Part, add, parquet};

const BLOCKS: [u64; 2] = [17_686_111, 17_686_112];

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/ethereum")
}

/// A block of the fixtures.
struct Block {
    number: u64,
    hash: Vec<u8>,
    /// The fields of the header.
    header: Vec<Vec<u8>>,
    transactions: Vec<Value>,
    receipts: BlockReceipts,
}

fn bytes(value: &Value) -> Vec<u8> {
    hex::decode(value.as_str().expect("hex")).expect("hex")
}

impl Block {
    fn read(number: u64) -> Self {
        let file = fixtures().join(format!("blocks/mainnet_{number}.json"));
        let json: Value =
            serde_json::from_str(&std::fs::read_to_string(file).expect("a block")).expect("JSON");
        let list = |name: &str| json[name].as_array().expect("a list").clone();
        let receipts: Vec<_> = list("receipts").iter().map(bytes).collect();
        Self {
            number,
            hash: bytes(&json["hash"]),
            header: items(&bytes(&json["header"])),
            transactions: list("transactions"),
            receipts: BlockReceipts::from_encodings(&receipts).expect("receipts"),
        }
    }
}

/// Splits an RLP list of more than 255 bytes, whose items are strings.
fn items(list: &[u8]) -> Vec<Vec<u8>> {
    assert_eq!(list[0], 0xf9);
    let mut rest = &list[3..];
    let mut items = Vec::new();
    while let [first, behind @ ..] = rest {
        let (start, length) = match first {
            0..0x80 => (0, 1),
            0x80..0xb8 => (1, usize::from(first - 0x80)),
            0xb8 => (2, usize::from(behind[0])),
            _ => (3, usize::from(behind[0]) * 256 + usize::from(behind[1])),
        };
        items.push(rest[start..start + length].to_vec());
        rest = &rest[start + length..];
    }
    items
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn binary<B: AsRef<[u8]>>(cells: impl IntoIterator<Item = B>) -> ArrayRef {
    Arc::new(LargeBinaryArray::from_iter_values(cells))
}

fn narrow(cells: impl IntoIterator<Item = u64>) -> ArrayRef {
    let cells = cells.into_iter().map(|cell| u32::try_from(cell).expect("32 bits"));
    Arc::new(UInt32Array::from_iter_values(cells))
}

fn wide(cells: impl IntoIterator<Item = u64>) -> ArrayRef {
    Arc::new(UInt64Array::from_iter_values(cells))
}

fn blocks(blocks: &[Block]) -> RecordBatch {
    let field = |at: usize| binary(blocks.iter().map(|block| &block.header[at]));
    let integer = |at: usize| blocks.iter().map(move |block| number(&block.header[at]));
    RecordBatch::try_from_iter([
        ("block_hash", binary(blocks.iter().map(|block| &block.hash))),
        ("parent_hash", field(0)),
        ("uncles_hash", field(1)),
        ("author", field(2)),
        ("state_root", field(3)),
        ("transactions_root", field(4)),
        ("receipts_root", field(5)),
        ("block_number", narrow(integer(8))),
        ("gas_used", wide(integer(10))),
        ("gas_limit", wide(integer(9))),
        ("extra_data", field(12)),
        ("logs_bloom", field(6)),
        ("timestamp", narrow(integer(11))),
        ("difficulty", wide(integer(7))),
        ("mix_hash", field(13)),
        ("nonce", field(14)),
        ("base_fee_per_gas", wide(integer(15))),
        ("withdrawals_root", field(16)),
        ("chain_id", wide(blocks.iter().map(|_| 1))),
    ])
    .expect("columns")
}

fn transactions(block: &Block) -> RecordBatch {
    let receipts = || block.receipts.iter();
    let mut before = 0;
    let gas = receipts().map(|receipt| {
        let used = receipt.cumulative_gas_used - before;
        before = receipt.cumulative_gas_used;
        used
    });
    let success: BooleanArray =
        receipts().map(|receipt| Some(receipt.outcome == Outcome::Status(true))).collect();
    RecordBatch::try_from_iter([
        ("block_number", narrow(receipts().map(|_| block.number))),
        ("transaction_index", wide(0..block.transactions.len() as u64)),
        (
            "transaction_hash",
            binary(block.transactions.iter().map(|transaction| bytes(&transaction["hash"]))),
        ),
        ("gas_used", wide(gas)),
        ("transaction_type", narrow(receipts().map(|receipt| receipt.receipt_type.into()))),
        ("success", Arc::new(success)),
        ("chain_id", wide(receipts().map(|_| 1))),
    ])
    .expect("columns")
}

fn logs(block: &Block) -> RecordBatch {
    let logs: Vec<_> = (0..)
        .zip(block.receipts.iter())
        .flat_map(|(index, receipt)| receipt.logs.iter().map(move |log| (index, log)))
        .collect();
    let hash =
        |index: u64| bytes(&block.transactions[usize::try_from(index).expect("an index")]["hash"]);
    let topic = |at: usize| -> ArrayRef {
        let topics = logs.iter().map(|(_, log)| log.topics().get(at).map(|topic| &topic[..]));
        Arc::new(topics.collect::<LargeBinaryArray>())
    };
    RecordBatch::try_from_iter_with_nullable([
        ("block_number", narrow(logs.iter().map(|_| block.number)), false),
        ("transaction_index", narrow(logs.iter().map(|(index, _)| *index)), false),
        ("log_index", narrow(0..logs.len() as u64), false),
        ("transaction_hash", binary(logs.iter().map(|(index, _)| hash(*index))), false),
        ("address", binary(logs.iter().map(|(_, log)| log.address)), false),
        ("topic0", topic(0), true),
        ("topic1", topic(1), true),
        ("topic2", topic(2), true),
        ("topic3", topic(3), true),
        ("data", binary(logs.iter().map(|(_, log)| &log.data.data)), false),
        ("chain_id", wide(logs.iter().map(|_| 1)), false),
    ])
    .expect("columns")
}

/// Returns the files of the data set, by their names.
fn made() -> Vec<(&'static str, RecordBatch)> {
    let of = BLOCKS.map(Block::read);
    let joined = |batches: [RecordBatch; 2]| {
        concat_batches(&batches[0].schema(), &batches).expect("one schema")
    };
    let [first, second] = [&of[0], &of[1]];
    let whole = joined([logs(first), logs(second)]);
    // The bits of this log are also those of others, so that the filter does not show that it is gone.
    let at = whole.num_rows() - 2;
    let without_one = joined([whole.slice(0, at), whole.slice(at + 1, 1)]);
    vec![
        ("blocks.parquet", blocks(&of)),
        ("transactions.parquet", joined([transactions(first), transactions(second)])),
        ("logs.parquet", whole),
        ("logs_without_one.parquet", without_one),
    ]
}

fn set(logs: &str) -> Dataset {
    let parts = [
        (Table::Blocks, "blocks.parquet"),
        (Table::Transactions, "transactions.parquet"),
        (Table::Logs, logs),
    ];
    parts.into_iter().fold(Dataset::new(), |set, (table, name)| {
        let rows = parquet(&fixtures().join("datasets").join(name));
        add(set, table, Part { table, name: name.to_owned(), rows }.file())
    })
}

#[test]
fn the_files_are_made_of_the_blocks() {
    let folder = fixtures().join("datasets");
    let mut size = 0;
    for (name, rows) in made() {
        let file = folder.join(name);
        if std::env::var("CHAINSIEVE_FIXTURES").is_ok_and(|value| value == "write") {
            let properties = WriterProperties::builder()
                .set_compression(Compression::ZSTD(parquet::basic::ZstdLevel::default()))
                .build();
            let out = std::fs::File::create(&file).expect("a file");
            let writer = ArrowWriter::try_new(out, rows.schema(), Some(properties));
            let mut writer = writer.expect("a writer");
            writer.write(&rows).expect("rows");
            writer.close().expect("a footer");
        }
        size += std::fs::metadata(&file).expect("a file").len();
        let found = parquet(&file).expect("a file of Parquet");
        let found = concat_batches(&found[0].schema(), &found).expect("one schema");
        assert_eq!(found.columns(), rows.columns(), "{name}");
    }
    assert!(size <= 300_000, "{size} bytes");
}

#[test]
fn a_log_is_left_out_that_the_filter_does_not_show() {
    let profile = ChainProfile::ethereum();
    let hash = Block::read(BLOCKS[1]).hash;
    let trusted = BlockRef { number: BLOCKS[1], hash: hash[..].try_into().expect("a hash") };
    let (verdicts, summary) = verify(set("logs.parquet").profile(profile.clone()).anchor(trusted));
    for verdict in &verdicts {
        assert_eq!((verdict.grade, verdict.header), (Grade::Complete, HeaderBasis::Anchored));
    }
    assert_eq!((summary.anchored, summary.runs.len(), summary.ranges.len()), (2, 1, 1));

    let (verdicts, summary) = verify(set("logs_without_one.parquet").profile(profile));
    let text: Vec<_> = verdicts.iter().map(ToString::to_string).collect();
    assert_eq!(
        text,
        [
            "block 17686111: complete, header recomputed",
            "block 17686112: wrong: log_index at logs row 298, receipts_root \
             (logs, logs_without_one.parquet, row 591)",
        ]
    );
    let checks: Vec<_> = verdicts[1].faults.iter().map(|fault| fault.check).collect();
    assert_eq!(checks, [Check::LogIndex, Check::ReceiptsRoot]);
    assert_eq!((summary.grades.complete, summary.grades.wrong), (1, 1));
}
