//! Writers of RLP, JSON-RPC and archives, which share no code with the binary.

use testkit::eth::header_files::{self, era};

use super::*;

pub(crate) use testkit::eth::header_files::reply;

pub(super) fn string(bytes: &[u8]) -> Vec<u8> {
    alloy_rlp::encode(bytes)
}

pub(super) fn list(items: &[Vec<u8>]) -> Vec<u8> {
    header_files::list(&items.concat())
}

/// Returns a header as `eth_getBlockByNumber` returns it.
pub(crate) fn rpc_header(header: &[u8]) -> Value {
    let mut object = header_files::object(header);
    object["transactions"] = json!([]);
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

/// Writes an era1 archive.
pub(crate) fn era1(blocks: &[Block]) -> Vec<u8> {
    era1_with(blocks, &[0xc2, 0xc0, 0xc0])
}

/// Writes an era1 archive with this body in each block.
pub(super) fn era1_with(blocks: &[Block], body: &[u8]) -> Vec<u8> {
    let parts = |block: &Block| [block.header.clone(), body.to_vec(), block.receipts_rlp()];
    era::era1_of(blocks[0].number, &blocks.iter().map(parts).collect::<Vec<_>>())
}

/// Writes an ere archive without proofs.
pub(crate) fn ere(blocks: &[Block]) -> Vec<u8> {
    let body = [0xc3, 0xc0, 0xc0, 0xc0];
    let parts = |block: &Block| [block.header.clone(), body.to_vec(), block.slim_rlp()];
    era::ere_of(blocks[0].number, &blocks.iter().map(parts).collect::<Vec<_>>())
}
