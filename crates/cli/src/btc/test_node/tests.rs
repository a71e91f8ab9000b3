use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use chainsieve::bitcoin::consensus::encode::{serialize, serialize_hex};
use chainsieve::bitcoin::constants::genesis_block;
use chainsieve::bitcoin::{
    Amount, Block, BlockHash, Network, OutPoint, ScriptBuf, Transaction, TxOut,
};
use chainsieve_client::testnode::next_block;
use testkit::btc::regtest;

use super::{Folder, News, PATIENCE};

/// Returns regtest blocks from height 1 on.
fn mine(count: u32) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    for height in 1..=count {
        let genesis = genesis_block(Network::Regtest);
        let parent = blocks.last().unwrap_or(&genesis).header;
        let script = ScriptBuf::from(vec![0x51]);
        blocks.push(next_block(&parent, height, &script, Vec::new()));
    }
    blocks
}

fn hashes(blocks: &[Block]) -> Vec<BlockHash> {
    blocks.iter().map(Block::block_hash).collect()
}

fn spend(previous_output: OutPoint, script_pubkey: ScriptBuf, sats: u64) -> Transaction {
    let output = TxOut { value: Amount::from_sat(sats), script_pubkey };
    regtest::transaction(vec![regtest::input(previous_output)], vec![output])
}

/// A folder that is deleted at the end of the test.
struct Place(PathBuf);

impl Place {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("chainsieve-serve-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(path.join("mempool")).expect("a folder");
        Self(path)
    }

    fn put(&self, name: &str, bytes: impl AsRef<[u8]>) {
        fs::write(self.0.join(name), bytes).expect("a file");
    }

    fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

/// The result of polling the folder once.
fn look(folder: &mut Folder, now: Instant) -> (Vec<BlockHash>, News) {
    let mut blocks = Vec::new();
    let news = folder.poll(now, |incoming| blocks.push(incoming.block.block_hash()));
    (blocks, news.expect("the folder is there"))
}

fn nothing(found: &(Vec<BlockHash>, News)) -> bool {
    found.0.is_empty() && found.1.transactions.is_none() && found.1.complaints.is_empty()
}

#[test]
fn raw_blocks_and_hex_are_read_once_and_again_when_they_change() {
    let place = Place::new();
    let blocks = mine(4);
    let raw: Vec<u8> = blocks[..2].iter().flat_map(serialize).collect();
    place.put("a.dat", raw);
    place.put("b.hex", format!("{}\n", serialize_hex(&blocks[2])));
    place.put(".hidden", "not looked at");
    place.put("c.tmp", "not looked at");
    place.put("mempool/c.part", "not looked at");
    let mut folder = Folder::new(place.path());
    let now = Instant::now();
    assert_eq!(look(&mut folder, now).0, hashes(&blocks[..3]));
    assert!(nothing(&look(&mut folder, now + 2 * PATIENCE)));
    // A block is appended to the file: the block that was read before is passed again, which is
    // harmless.
    let text = format!("{}\n{}\n", serialize_hex(&blocks[2]), serialize_hex(&blocks[3]));
    place.put("b.hex", text);
    assert_eq!(look(&mut folder, now).0, hashes(&blocks[2..]));
    assert!(nothing(&look(&mut folder, now)));
    fs::rename(place.path().join("b.hex"), place.path().join("c.hex")).expect("renamed");
    assert_eq!(look(&mut folder, now).0, hashes(&blocks[2..]));
}

/// A file that is still being written is not reported as damaged, however short it is, until it has
/// stayed unchanged for a while. The complete file is read in the end.
#[test]
fn a_file_that_is_being_written_is_not_damaged() {
    let blocks = mine(2);
    let whole: Vec<u8> = blocks.iter().flat_map(serialize).collect();
    let first = serialize(&blocks[0]).len();
    for text in [false, true] {
        let whole = if text { hex::encode(&whole[..first]).into_bytes() } else { whole.clone() };
        let place = Place::new();
        let mut folder = Folder::new(place.path());
        let now = Instant::now();
        for length in (0..whole.len()).step_by(7) {
            place.put("block", &whole[..length]);
            let (found, news) = look(&mut folder, now);
            assert_eq!(news.complaints, [""; 0], "{length} of {} bytes", whole.len());
            // The complete blocks of a truncated binary file are passed.
            let whole_ones = if text { 0 } else { length / first };
            assert_eq!(found.len(), whole_ones, "{length}");
        }
        place.put("block", &whole);
        let expected = if text { &blocks[..1] } else { &blocks[..] };
        assert_eq!(look(&mut folder, now).0, hashes(expected));
        assert!(nothing(&look(&mut folder, now + 2 * PATIENCE)));
    }
}

#[test]
fn a_file_that_stays_damaged_is_reported_once() {
    let place = Place::new();
    let blocks = mine(1);
    place.put("bad.dat", &serialize(&blocks[0])[..100]);
    place.put("mempool/bad.hex", "0200");
    let mut folder = Folder::new(place.path());
    let now = Instant::now();
    assert_eq!(look(&mut folder, now).1.complaints, [""; 0]);
    assert!(nothing(&look(&mut folder, now + PATIENCE.saturating_sub(Duration::from_millis(1)))));
    let (_, news) = look(&mut folder, now + PATIENCE);
    assert_eq!(news.complaints.len(), 2, "{:?}", news.complaints);
    assert!(news.complaints[0].contains("bad.dat"), "{:?}", news.complaints);
    assert!(news.complaints[1].contains("bad.hex"), "{:?}", news.complaints);
    assert!(nothing(&look(&mut folder, now + 5 * PATIENCE)));
    // The file is repaired.
    place.put("bad.dat", serialize(&blocks[0]));
    assert_eq!(look(&mut folder, now).0, hashes(&blocks));
}

#[test]
fn transactions_come_and_go_with_their_files() {
    let place = Place::new();
    let tx = |sats| spend(OutPoint::null(), ScriptBuf::new(), sats);
    let ids = |news: &News| -> Option<Vec<_>> {
        let mut ids: Vec<_> =
            news.transactions.as_ref()?.iter().map(|tx| tx.compute_txid()).collect();
        ids.sort();
        Some(ids)
    };
    let expected = |all: &[Transaction]| {
        let mut ids: Vec<_> = all.iter().map(Transaction::compute_txid).collect();
        ids.sort();
        Some(ids)
    };
    let mut folder = Folder::new(place.path());
    let now = Instant::now();
    assert!(nothing(&look(&mut folder, now)));
    place.put("mempool/raw", serialize(&tx(1)));
    place.put("mempool/hex", format!("{}\n", serialize_hex(&tx(2))));
    assert_eq!(ids(&look(&mut folder, now).1), expected(&[tx(1), tx(2)]));
    assert!(nothing(&look(&mut folder, now)));
    fs::remove_file(place.path().join("mempool/raw")).expect("it is there");
    assert_eq!(ids(&look(&mut folder, now).1), expected(&[tx(2)]));
    fs::remove_dir_all(place.path().join("mempool")).expect("it is there");
    assert_eq!(ids(&look(&mut folder, now).1), expected(&[]));
    assert!(nothing(&look(&mut folder, now)));
}
