//! The golden file of filters: those of mainnet's first 256 blocks, laid out here from `bitcoin`'s
//! filters.

use std::ops::ControlFlow;

use chainsieve::bitcoin::bip158::{BlockFilter, Error, FilterHeader};
use chainsieve::bitcoin::consensus::deserialize;
use chainsieve::bitcoin::hashes::Hash as _;
use chainsieve::bitcoin::{Block, Network, OutPoint};
use chainsieve::btc::bip158::container::{BatchReader, ContainerError, Header, Records, Writer};
use chainsieve::btc::bip158::scan::{CandidateReason, FilterItem, FilterScan, ScanCursor};
use chainsieve::btc::bip158::{filter_hash, filter_header};

use testkit::btc::fixtures;
use testkit::btc::oracle::from_hex;

/// The golden file, with the filters of mainnet's blocks 0 to 255.
const GOLDEN: &[u8] = include_bytes!("../../fixtures/bitcoin/filters_mainnet_0-255.cbf");

struct Height {
    block: Block,
    filter: BlockFilter,
    header: FilterHeader,
}

/// Returns the blocks with `bitcoin`'s filters, after checking these against the published filter
/// headers.
fn heights() -> Vec<Height> {
    let json = fixtures::read("mainnet_0-255.json");
    let json: Vec<serde_json::Value> = serde_json::from_str(&json).expect("JSON");
    let text = |row: &serde_json::Value, name: &str| row[name].as_str().expect(name).to_owned();
    let blocks: Vec<Block> = json
        .iter()
        .map(|row| deserialize(&from_hex(&text(row, "block"))).expect("a block"))
        .collect();
    let script = |outpoint: &OutPoint| {
        let mut txs = blocks.iter().flat_map(|block| &block.txdata);
        let tx = txs.find(|tx| tx.compute_txid() == outpoint.txid);
        let tx = tx.ok_or(Error::UtxoMissing(*outpoint))?;
        Ok(tx.output[outpoint.vout as usize].script_pubkey.clone())
    };
    let mut previous = FilterHeader::all_zeros();
    let height = |(row, block): (&serde_json::Value, &Block)| {
        let filter = BlockFilter::new_script_filter(block, script).expect("spends only these");
        let header: FilterHeader = text(row, "filter_header").parse().expect("a header");
        assert_eq!(filter.filter_header(&previous), header);
        previous = header;
        Height { block: block.clone(), filter, header }
    };
    json.iter().zip(&blocks).map(height).collect()
}

/// Returns the CRC-32C of `bytes`, computed bit by bit.
fn crc32c(bytes: &[u8]) -> [u8; 4] {
    let step = |crc: u32, _| if crc & 1 == 1 { crc >> 1 ^ 0x82f6_3b78 } else { crc >> 1 };
    let byte = |crc: u32, byte: &u8| (0..8).fold(crc ^ u32::from(*byte), step);
    (!bytes.iter().fold(u32::MAX, byte)).to_le_bytes()
}

/// Returns the file that the documentation describes, built without the library.
fn layout(heights: &[Height]) -> Vec<u8> {
    let mut file = from_hex("894342460d0a1a0a");
    file.extend(from_hex("0100"));
    file.extend([0, 0]);
    file.extend(from_hex("f9beb4d9"));
    file.extend([0; 4]);
    file.extend([0; 32]);
    file.extend(crc32c(&file));
    for (height, Height { block, filter, .. }) in (0_u32..).zip(heights) {
        let mut record = height.to_le_bytes().to_vec();
        record.extend(u32::try_from(filter.content.len()).expect("short").to_le_bytes());
        record.extend(block.block_hash().to_byte_array());
        record.extend(&filter.content);
        record.extend(crc32c(&record));
        file.extend(&record[4..]);
    }
    file
}

#[test]
fn the_golden_file_is_what_is_documented_and_what_is_written() {
    // The check value in the catalogue of CRCs.
    assert_eq!(crc32c(b"123456789"), 0xe306_9283_u32.to_le_bytes());
    let heights = heights();
    let documented = layout(&heights);
    assert_eq!(heights.len(), 256);
    assert!(documented == GOLDEN, "{}", hex::encode(&documented));

    let header = Header {
        network_magic: Network::Bitcoin.magic().to_bytes(),
        start_height: 0,
        previous_filter_header: FilterHeader::all_zeros(),
    };
    let mut written = Vec::new();
    let mut writer = Writer::create(&mut written, header).expect("memory");
    for Height { block, filter, .. } in &heights {
        writer.append(&block.block_hash(), &filter.content).expect("memory");
    }
    writer.finish().expect("memory");
    assert!(written == GOLDEN);
}

#[test]
fn the_golden_file_is_read_and_meets_the_published_filter_headers() {
    let heights = heights();
    let mut records = Records::new(GOLDEN).expect("a header");
    let header = *records.header();
    assert_eq!(header.network_magic, Network::Bitcoin.magic().to_bytes());
    assert_eq!(
        (header.start_height, header.previous_filter_header),
        (0, FilterHeader::all_zeros())
    );
    let items: Result<Vec<FilterItem<'_>>, ContainerError> = records.by_ref().collect();
    let items = items.expect("intact");
    assert_eq!(items.len(), 256);
    let mut previous = header.previous_filter_header;
    for ((number, item), height) in (0..).zip(&items).zip(&heights) {
        assert_eq!((item.height, item.block_hash), (number, height.block.block_hash()));
        previous = filter_header(&filter_hash(item.content), &previous);
        assert_eq!(previous, height.header);
    }
    assert_eq!((records.intact().records, records.intact().bytes), (256, GOLDEN.len() as u64));
    assert_eq!(records.intact().last_block, Some(heights[255].block.block_hash()));

    // Read the file as a stream, in batches of several sizes.
    for enough in [0, 1, 100, 1_000, 1_000_000] {
        let mut reader = BatchReader::new(GOLDEN).expect("a header");
        let mut read = 0;
        loop {
            reader.read(enough).expect("intact");
            let batch: Vec<_> = reader.items().collect();
            if batch.is_empty() {
                break;
            }
            assert_eq!(batch, items[read..read + batch.len()]);
            read += batch.len();
            let bytes: usize = batch.iter().map(|item| item.content.len()).sum();
            let last = batch.last().map_or(0, |item| item.content.len());
            assert!(bytes - last < enough.max(1) && (bytes >= enough || read == 256));
        }
        assert_eq!((read, reader.intact()), (256, records.intact()));
        assert_eq!(
            BatchReader::new(GOLDEN).expect("a header").recover(),
            Ok((*records.intact(), None))
        );
    }
}

/// Scans for the key of block 9, which pays Hal Finney in block 170, and pays the rest to itself
/// until block 248.
#[test]
fn the_golden_file_is_scanned() {
    let heights = heights();
    let headers: Vec<FilterHeader> = heights.iter().map(|height| height.header).collect();
    let script = heights[9].block.txdata[0].output[0].script_pubkey.clone();
    let spends = |block: &Block| {
        let inputs = block.txdata.iter().flat_map(|tx| &tx.input);
        let spent = inputs.filter_map(|input| {
            let txs = heights.iter().flat_map(|height| &height.block.txdata);
            let mut txs = txs.filter(|tx| tx.compute_txid() == input.previous_output.txid);
            txs.next().map(|tx| tx.output[input.previous_output.vout as usize].clone())
        });
        let outputs = block.txdata.iter().flat_map(|tx| tx.output.clone());
        spent.chain(outputs).any(|output| output.script_pubkey == script)
    };
    let truth: Vec<u32> =
        (0..).zip(&heights).filter(|(_, height)| spends(&height.block)).map(|(at, _)| at).collect();
    assert_eq!(truth[..2], [9, 170]);

    // The last six headers are unknown, and one header is false.
    let mut known = headers.clone();
    known.truncate(250);
    known[100] = headers[99];
    let records = Records::new(GOLDEN).expect("a header");
    let header = *records.header();
    let mut scan = FilterScan::new(ScanCursor::at(0));
    let wallet = scan.wallets_mut().add(1);
    scan.wallets_mut().push(wallet, script.as_bytes());
    let items = records
        .map(|item| item.expect("intact"))
        .map(|item| FilterItem { commitment: header.commitment(&known, item.height), ..item });
    let (mut found, mut mute) = (Vec::new(), Vec::new());
    let done = scan.scan(items, |candidate, _| {
        match candidate.reason {
            CandidateReason::Scripts { wallet: whose, indices } => {
                assert_eq!((whose, indices), (wallet, vec![0]));
                found.push(candidate.height);
            }
            CandidateReason::NoAnswer(_) => mute.push(candidate.height),
        }
        ControlFlow::<()>::Continue(())
    });
    assert_eq!(done, Ok(ControlFlow::Continue(())));
    assert_eq!(found, truth);
    // The filter header after the false one does not follow from it either.
    assert_eq!(mute, [100, 101]);
    let statistics = scan.statistics();
    assert_eq!((statistics.filters, statistics.skipped), (255, 1));
    assert_eq!((statistics.unverified, statistics.no_answers), (6, 2));
    assert_eq!(statistics.questions, 253);
}
