//! Files of headers in every supported format, written by code that the readers do not share.

use alloy_consensus::Sealable as _;
use alloy_primitives::hex;
use alloy_rlp::Decodable as _;
use chainsieve::eth::files::FileFormat;
use serde_json::{Value, json};

use crate::eth::fixtures::FixtureHeader;

/// A file of headers.
pub struct Form {
    pub name: &'static str,
    pub format: FileFormat,
    pub bytes: Vec<u8>,
    /// Lengths at which the truncated file is still complete, each with the number of headers in a
    /// file of that length.
    pub cuts: Vec<(usize, usize)>,
}

/// Returns the linked headers 10,234,001 to 10,234,007 of mainnet.
pub fn linked() -> Vec<FixtureHeader> {
    let mut headers = crate::eth::fixtures::headers();
    headers.retain(|header| (10_234_001..=10_234_007).contains(&header.number));
    headers.sort_by_key(|header| header.number);
    assert_eq!(headers.len(), 7);
    headers
}

/// Returns files of the headers in every format.
pub fn forms(headers: &[FixtureHeader]) -> Vec<Form> {
    let pieces = |piece: &dyn Fn(&FixtureHeader) -> Vec<u8>| headers.iter().map(piece).collect();
    let hex_line = |header: &FixtureHeader| format!("0x{}\n", hex::encode(&header.rlp)).into();
    let object_line = |header: &FixtureHeader| format!("{}\n", object(&header.rlp)).into_bytes();
    let raw = |header: &FixtureHeader| json!(hex::encode_prefixed(&header.rlp));
    let raw_replies = headers.iter().map(|header| reply(&raw(header))).collect::<Vec<_>>();
    let objects = headers.iter().map(|header| object(&header.rlp)).collect::<Vec<_>>();
    let mut forms = vec![
        concatenated("headers", FileFormat::Rlp, pieces(&|header| header.rlp.clone())),
        concatenated("blocks of geth export", FileFormat::Rlp, pieces(&block)),
        lines("hex", FileFormat::Hex, pieces(&hex_line)),
        lines("objects", FileFormat::Json, pieces(&object_line)),
        one_text("array", &json!(objects)),
        one_text("reply", &reply(&json!(objects))),
        one_text("batch of raw headers", &json!(raw_replies)),
    ];
    forms.extend(era::archives(headers));
    forms
}

fn concatenated(name: &'static str, format: FileFormat, pieces: Vec<Vec<u8>>) -> Form {
    let mut form = Form { name, format, bytes: Vec::new(), cuts: vec![(0, 0)] };
    for (count, piece) in (1..).zip(pieces) {
        form.bytes.extend(piece);
        form.cuts.push((form.bytes.len(), count));
    }
    form
}

/// The same as [`concatenated`], but the file is also complete without its last line break.
fn lines(name: &'static str, format: FileFormat, pieces: Vec<Vec<u8>>) -> Form {
    let mut form = concatenated(name, format, pieces);
    let without = form.cuts[1..].iter().map(|(end, count)| (end - 1, *count)).collect::<Vec<_>>();
    form.cuts.extend(without);
    form
}

fn one_text(name: &'static str, text: &Value) -> Form {
    let bytes = text.to_string().into_bytes();
    Form { name, format: FileFormat::Json, bytes, cuts: vec![(0, 0)] }
}

/// Returns the header as alloy writes it for JSON-RPC.
pub fn object(rlp: &[u8]) -> Value {
    let alloy = alloy_consensus::Header::decode(&mut &rlp[..]).expect("a header");
    let header = alloy_rpc_types_eth::Header::from_consensus(alloy.seal_slow(), None, None);
    serde_json::to_value(header).expect("JSON")
}

/// Returns a node's reply with this result.
pub fn reply(result: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": 1, "result": result })
}

/// Returns a block of the header with empty lists of transactions and ommers.
fn block(header: &FixtureHeader) -> Vec<u8> {
    list(&[&header.rlp[..], &[0xc0, 0xc0]].concat())
}

pub fn list(payload: &[u8]) -> Vec<u8> {
    let mut rlp = Vec::new();
    alloy_rlp::Header { list: true, payload_length: payload.len() }.encode(&mut rlp);
    rlp.extend_from_slice(payload);
    rlp
}

/// era1 and ere archives.
pub mod era {
    use std::io::Write as _;

    use alloy_consensus::{ReceiptEnvelope, TxReceipt as _};
    use alloy_rlp::Encodable as _;

    use super::{FileFormat, FixtureHeader, Form, list};

    /// Encodes an entry of e2store: type, length, reserved bytes, data.
    pub fn entry(kind: u16, data: &[u8]) -> Vec<u8> {
        let length = u32::try_from(data.len()).expect("short");
        [&kind.to_le_bytes()[..], &length.to_le_bytes(), &[0, 0], data].concat()
    }

    pub fn snappy(data: &[u8]) -> Vec<u8> {
        let mut encoder = snap::write::FrameEncoder::new(Vec::new());
        encoder.write_all(data).expect("memory");
        encoder.into_inner().expect("memory")
    }

    pub(super) fn archives(headers: &[FixtureHeader]) -> [Form; 3] {
        let [era1, ere] = [era1(headers), ere(headers)];
        let two = [&era1[..], &ere].concat();
        // An archive that is truncated after its version entry is complete and empty.
        let archive = |name, bytes: Vec<u8>, more: &[(usize, usize)]| {
            let cuts = [&[(0, 0), (8, 0), (bytes.len(), headers.len())], more].concat();
            Form { name, format: FileFormat::Era, bytes, cuts }
        };
        let between = [(era1.len(), headers.len()), (era1.len() + 8, headers.len())];
        let mut two = archive("two archives", two, &between);
        two.cuts[2].1 *= 2;
        [archive("era1", era1, &[]), archive("ere", ere, &[]), two]
    }

    /// Returns the data of the other entries (not the header) of the block at `position`.
    pub fn data(kind: u16, position: usize) -> Vec<u8> {
        list(&[u8::try_from(kind).expect("small"), u8::try_from(position).expect("small")])
    }

    /// Returns receipts as a list without blooms: `[type, status, gas, logs]` for each.
    pub fn slim(receipts: &[ReceiptEnvelope]) -> Vec<u8> {
        let receipts = receipts.iter().flat_map(|receipt| {
            let mut fields = Vec::new();
            (receipt.tx_type() as u8).encode(&mut fields);
            receipt.status_or_post_state().encode(&mut fields);
            receipt.cumulative_gas_used().encode(&mut fields);
            receipt.logs().to_vec().encode(&mut fields);
            list(&fields)
        });
        list(&receipts.collect::<Vec<_>>())
    }

    /// Header, body and receipts of a block.
    pub type Parts = [Vec<u8>; 3];

    /// Returns blocks of these headers, with other entries of these types.
    fn made_up(headers: &[FixtureHeader], body: u16, receipts: u16) -> Vec<Parts> {
        let parts = headers.iter().enumerate();
        let parts =
            parts.map(|(at, header)| [header.rlp.clone(), data(body, at), data(receipts, at)]);
        parts.collect()
    }

    pub fn era1(headers: &[FixtureHeader]) -> Vec<u8> {
        era1_of(headers[0].number, &made_up(headers, 4, 5))
    }

    pub fn ere(headers: &[FixtureHeader]) -> Vec<u8> {
        ere_of(headers[0].number, &made_up(headers, 4, 10))
    }

    /// Writes an era1 archive: header, body, receipts and total difficulty for each block, then
    /// accumulator and index.
    pub fn era1_of(first: u64, blocks: &[Parts]) -> Vec<u8> {
        let mut file = entry(0x3265, &[]);
        let mut offsets = Vec::new();
        for parts in blocks {
            offsets.push(file.len());
            for (kind, data) in (3..).zip(parts) {
                file.extend(entry(kind, &snappy(data)));
            }
            file.extend(entry(6, &[7; 32]));
        }
        file.extend(entry(7, &[8; 32]));
        let index = index(file.len(), first, &offsets, &[blocks.len()]);
        file.extend(entry(0x3266, &index));
        file
    }

    /// Writes an ere archive: all headers, all bodies, all slim receipts, then the index.
    pub fn ere_of(first: u64, blocks: &[Parts]) -> Vec<u8> {
        let mut file = entry(0x3265, &[]);
        let mut offsets = vec![Vec::new(); blocks.len()];
        for (part, kind) in [3, 4, 10].into_iter().enumerate() {
            for (offsets, parts) in offsets.iter_mut().zip(blocks) {
                offsets.push(file.len());
                file.extend(entry(kind, &snappy(&parts[part])));
            }
        }
        let index = index(file.len(), first, &offsets.concat(), &[3, blocks.len()]);
        file.extend(entry(0x3267, &index));
        file
    }

    /// Returns an index at this place: the offsets from it back to the records, then counts.
    fn index(at: usize, first: u64, offsets: &[usize], counts: &[usize]) -> Vec<u8> {
        let number = |number: usize| u64::try_from(number).expect("64 bits");
        let offsets = offsets.iter().map(|offset| number(*offset).wrapping_sub(number(at)));
        let words = [first].into_iter().chain(offsets);
        words.chain(counts.iter().copied().map(number)).flat_map(u64::to_le_bytes).collect()
    }
}
