//! Writers of RLP, JSON-RPC and archives, which share no code with the binary.

use std::io::Write as _;

use super::*;

fn head(base: u8, length: usize) -> Vec<u8> {
    if length < 56 {
        return vec![base + u8::try_from(length).expect("short")];
    }
    let digits: Vec<u8> = length.to_be_bytes().into_iter().skip_while(|byte| *byte == 0).collect();
    let mut head = vec![base + 55 + u8::try_from(digits.len()).expect("eight at the most")];
    head.extend(digits);
    head
}

pub(super) fn string(bytes: &[u8]) -> Vec<u8> {
    match bytes {
        [byte @ 0..0x80] => vec![*byte],
        bytes => [&head(0x80, bytes.len())[..], bytes].concat(),
    }
}

pub(super) fn list(items: &[Vec<u8>]) -> Vec<u8> {
    let payload = items.concat();
    [&head(0xc0, payload.len())[..], &payload].concat()
}

/// The JSON-RPC names of a header's fields, each with `true` if it is a number.
const FIELDS: [(&str, bool); 21] = [
    ("parentHash", false),
    ("sha3Uncles", false),
    ("miner", false),
    ("stateRoot", false),
    ("transactionsRoot", false),
    ("receiptsRoot", false),
    ("logsBloom", false),
    ("difficulty", true),
    ("number", true),
    ("gasLimit", true),
    ("gasUsed", true),
    ("timestamp", true),
    ("extraData", false),
    ("mixHash", false),
    ("nonce", false),
    ("baseFeePerGas", true),
    ("withdrawalsRoot", false),
    ("blobGasUsed", true),
    ("excessBlobGas", true),
    ("parentBeaconBlockRoot", false),
    ("requestsHash", false),
];

/// Returns a header as `eth_getBlockByNumber` returns it.
pub(crate) fn rpc_header(header: &[u8]) -> Value {
    let mut object = json!({ "hash": keccak256(header), "transactions": [], "size": "0x1" });
    for (item, (name, is_number)) in items(header).iter().zip(FIELDS) {
        let value = content(item);
        let digits = hex::encode(value);
        let number = match digits.trim_start_matches('0') {
            "" => "0x0".to_owned(),
            digits => format!("0x{digits}"),
        };
        object[name] = json!(if is_number { number } else { hex0x(value) });
    }
    object
}

/// Returns receipts as `eth_getBlockReceipts` returns them.
pub(super) fn rpc_receipts(block: &Block) -> Vec<Value> {
    let logs = block.logs();
    let number = |item: &[u8]| match hex::encode(content(item)).trim_start_matches('0') {
        "" => "0x0".to_owned(),
        digits => format!("0x{digits}"),
    };
    let receipt = |(index, receipt): (usize, &Vec<u8>)| {
        let typed = receipt[0] < 0xc0;
        let fields = items(if typed { &receipt[1..] } else { receipt });
        let index = format!("{index:#x}");
        let logs: Vec<_> = logs.iter().filter(|log| log["transactionIndex"] == index).collect();
        json!({
            "type": format!("{:#x}", if typed { receipt[0] } else { 0 }),
            "status": number(&fields[0]),
            "cumulativeGasUsed": number(&fields[1]),
            "logsBloom": hex0x(content(&fields[2])),
            "logs": logs,
            "transactionIndex": index,
            "blockHash": block.hash,
            "blockNumber": format!("{:#x}", block.number),
        })
    };
    block.receipts.iter().enumerate().map(receipt).collect()
}

/// Returns a node's reply with this result.
pub(crate) fn reply(result: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": 1, "result": result })
}

pub(super) fn record(kind: u16, data: &[u8]) -> Vec<u8> {
    let length = u32::try_from(data.len()).expect("short");
    [&kind.to_le_bytes()[..], &length.to_le_bytes(), &[0, 0], data].concat()
}

pub(super) fn snappy(data: &[u8]) -> Vec<u8> {
    let mut encoder = snap::write::FrameEncoder::new(Vec::new());
    encoder.write_all(data).expect("memory");
    encoder.into_inner().expect("memory")
}

/// Writes an era1 archive: header, body, receipts and total difficulty for each block, then an
/// index.
pub(crate) fn era1(blocks: &[Block]) -> Vec<u8> {
    era1_with(blocks, &[0xc2, 0xc0, 0xc0])
}

/// Writes an era1 archive with this body in each block.
pub(super) fn era1_with(blocks: &[Block], body: &[u8]) -> Vec<u8> {
    let mut file = record(0x3265, &[]);
    let mut offsets = Vec::new();
    for block in blocks {
        offsets.push(file.len());
        file.extend(record(3, &snappy(&block.header)));
        file.extend(record(4, &snappy(body)));
        file.extend(record(5, &snappy(&block.receipts_rlp())));
        file.extend(record(6, &[0; 32]));
    }
    file.extend(record(7, &[0; 32]));
    let at = file.len();
    file.extend(record(0x3266, &index(at, blocks[0].number, &[offsets], blocks.len())));
    file
}

/// Writes an ere archive without proofs: all headers, bodies and slim receipts, then an index.
pub(crate) fn ere(blocks: &[Block]) -> Vec<u8> {
    let mut file = record(0x3265, &[]);
    let mut columns = Vec::new();
    for (kind, of) in
        [(3, Block::header_rlp as fn(&Block) -> Vec<u8>), (4, body), (10, Block::slim_rlp)]
    {
        let mut offsets = Vec::new();
        for block in blocks {
            offsets.push(file.len());
            file.extend(record(kind, &snappy(&of(block))));
        }
        columns.push(offsets);
    }
    let at = file.len();
    file.extend(record(0x3267, &index(at, blocks[0].number, &columns, blocks.len())));
    file
}

impl Block {
    fn header_rlp(&self) -> Vec<u8> {
        self.header.clone()
    }
}

fn body(_: &Block) -> Vec<u8> {
    vec![0xc3, 0xc0, 0xc0, 0xc0]
}

/// Returns the index: offsets from the index back to the records, block by block.
fn index(at: usize, first: u64, columns: &[Vec<usize>], count: usize) -> Vec<u8> {
    let word = |number: usize| u64::try_from(number).expect("64 bits");
    let mut words = vec![first];
    for block in 0..count {
        words.extend(columns.iter().map(|offsets| word(offsets[block]).wrapping_sub(word(at))));
    }
    if columns.len() > 1 {
        words.push(word(columns.len()));
    }
    words.push(word(count));
    words.into_iter().flat_map(u64::to_le_bytes).collect()
}
