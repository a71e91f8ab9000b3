//! The command `eth header`.

use chainsieve::alloy_primitives::{B256, U256};
use chainsieve::eth::bloom::estimated_values;
use chainsieve::eth::files::Position;
use chainsieve::eth::header::{HeaderLayout, HeaderView};
use chainsieve_report::calendar::Utc;
use chainsieve_report::{Exit, Page, Reader, Report, grouped, share};
use serde_json::{Value, json};

use super::headers::Headers;
use crate::args::eth::HeadersArgs;

pub(crate) fn run(args: &HeadersArgs) -> anyhow::Result<Report> {
    Reader::of(&args.headers)?;
    let mut headers = Headers::new(&args.headers, args.format);
    let mut all = Vec::new();
    let mut rows = Vec::new();
    let mut single = Page::default();
    let mut last: Option<(B256, u64)> = None;
    let mut linked = true;
    while let Some(batch) = headers.next_batch()? {
        for header in batch.headers() {
            let (position, header) = header?;
            let hash = header.hash();
            linked &= last.is_none_or(|(parent, number)| {
                parent == header.parent_hash() && number.checked_add(1) == Some(header.number())
            });
            last = Some((hash, header.number()));
            if all.is_empty() {
                single = page(&header, hash);
            }
            rows.push(row(&header, hash));
            all.push(json(&batch.source, position, &header, hash));
        }
    }
    let count = all.len();
    let page = if count == 1 {
        single
    } else {
        let mut page = Page::default();
        let head = vec!["block", "hash", "time (UTC)", "layout", "gas used", "bits set", "fill"];
        page.table(head, rows);
        page.line("");
        let words = if linked { "form one chain" } else { "do not form one chain" };
        page.line(format!("{} headers that {words}", grouped(count)));
        page
    };
    let json = json!({ "headers": all, "count": count, "linked": linked });
    Ok(Report::new(page, json, Exit::Yes))
}

fn row(header: &HeaderView<'_>, hash: B256) -> Vec<String> {
    let (bits, fill) = match header.logs_bloom().count_ones() {
        Some(ones) => (grouped(ones), format!("{:.1} %", f64::from(ones) / 20.48)),
        None => ("no filter".into(), String::new()),
    };
    vec![
        grouped(header.number()),
        hash.to_string(),
        Utc::new(header.timestamp()).date_time().trim_end_matches(" UTC").to_owned(),
        header.layout().name().to_owned(),
        grouped(header.gas_used()),
        bits,
        fill,
    ]
}

fn page(header: &HeaderView<'_>, hash: B256) -> Page {
    let layout = header.layout();
    let fields = match layout {
        HeaderLayout::Unknown => "unknown (another chain or a later fork)".to_owned(),
        layout => layout.name().to_owned(),
    };
    let mut lines = vec![
        ("block", grouped(header.number())),
        ("hash", hash.to_string()),
        ("parent", header.parent_hash().to_string()),
        ("time", Utc::new(header.timestamp()).date_time()),
        ("layout", format!("{fields}: {} fields", header.num_fields())),
        ("size", format!("{} bytes", grouped(header.rlp().len()))),
        ("beneficiary", header.beneficiary().to_string()),
        ("state root", header.state_root().to_string()),
        ("transactions root", header.transactions_root().to_string()),
        ("receipts root", header.receipts_root().to_string()),
        ("ommers hash", header.ommers_hash().to_string()),
        ("difficulty", header.difficulty().to_string()),
        ("gas", format!("{} of {}", grouped(header.gas_used()), grouped(header.gas_limit()))),
        ("extra data", extra_data(header.extra_data())),
    ];
    let hash_line = |hash: B256| hash.to_string();
    let later: [(&'static str, Option<String>); 10] = [
        ("mix hash", header.mix_hash().map(hash_line)),
        ("nonce", header.nonce().map(|nonce| format!("0x{}", hex::encode(nonce)))),
        ("base fee", header.base_fee_per_gas().map(|fee| format!("{fee} wei"))),
        ("withdrawals root", header.withdrawals_root().map(hash_line)),
        ("blob gas used", header.blob_gas_used().map(grouped)),
        ("excess blob gas", header.excess_blob_gas().map(grouped)),
        ("parent beacon root", header.parent_beacon_block_root().map(hash_line)),
        ("requests hash", header.requests_hash().map(hash_line)),
        ("access list hash", header.block_access_list_hash().map(hash_line)),
        ("slot", header.slot_number().map(grouped)),
    ];
    lines.extend(later.into_iter().filter_map(|(name, value)| Some((name, value?))));
    lines.extend(bloom_lines(header));
    let mut page = Page::default();
    page.fields(lines);
    page
}

fn bloom_lines(header: &HeaderView<'_>) -> Vec<(&'static str, String)> {
    let bloom = header.logs_bloom();
    let Some(ones) = bloom.count_ones() else {
        return vec![("logs bloom", "its length is not 256 bytes, so it excludes nothing".into())];
    };
    let fill = f64::from(ones) / 2048.0;
    let mut lines =
        vec![("logs bloom", format!("{:.1} %, {} of 2,048 bits", fill * 100.0, grouped(ones)))];
    if ones == 0 {
        lines.push(("", "no logs in this block".into()));
    } else if bloom.informative().is_none() {
        lines.push(("", "every bit is set, so it excludes nothing".into()));
    } else {
        let [one, two, three] = rates(fill).map(share);
        lines.push((
            "",
            format!("about {:.0} distinct addresses and topics", estimated_values(ones)),
        ));
        lines.push((
            "",
            format!("false-positive rate: {one} for one value, {two} for two, {three} for three"),
        ));
    }
    lines
}

/// Returns the probabilities that a filter reports one, two and three absent values as present.
fn rates(fill: f64) -> [f64; 3] {
    [3, 6, 9].map(|bits| fill.powi(bits))
}

/// Formats extra data as hex, followed by the text if it is printable.
fn extra_data(bytes: &[u8]) -> String {
    let hex = format!("0x{}", hex::encode(bytes));
    match str::from_utf8(bytes) {
        Ok(text) if !text.is_empty() && !text.contains(|c: char| c.is_control()) => {
            format!("{hex} {text:?}")
        }
        _ => hex,
    }
}

fn json(source: &str, position: Position, header: &HeaderView<'_>, hash: B256) -> Value {
    let text = |hash: B256| hash.to_string();
    let place = match position {
        Position::Byte(at) => json!({ "byte": at }),
        Position::Line(line) | Position::Column { line, .. } => json!({ "line": line }),
        other => json!({ "at": other.to_string() }),
    };
    let bloom = header.logs_bloom();
    let ones = bloom.count_ones();
    let fill = ones.map(|ones| f64::from(ones) / 2048.0);
    let estimated = ones.map(estimated_values).filter(|values| values.is_finite());
    json!({
        "source": source,
        "place": place,
        "hash": text(hash),
        "number": header.number(),
        "parent_hash": text(header.parent_hash()),
        "timestamp": header.timestamp(),
        "time": Utc::new(header.timestamp()).date_time(),
        "layout": header.layout().name(),
        "fields": header.num_fields(),
        "bytes": header.rlp().len(),
        "beneficiary": header.beneficiary().to_string(),
        "state_root": text(header.state_root()),
        "transactions_root": text(header.transactions_root()),
        "receipts_root": text(header.receipts_root()),
        "ommers_hash": text(header.ommers_hash()),
        "difficulty": decimal(header.difficulty()),
        "gas_limit": header.gas_limit(),
        "gas_used": header.gas_used(),
        "extra_data": format!("0x{}", hex::encode(header.extra_data())),
        "mix_hash": header.mix_hash().map(text),
        "nonce": header.nonce().map(|nonce| format!("0x{}", hex::encode(nonce))),
        "base_fee_per_gas": header.base_fee_per_gas().map(decimal),
        "withdrawals_root": header.withdrawals_root().map(text),
        "blob_gas_used": header.blob_gas_used(),
        "excess_blob_gas": header.excess_blob_gas(),
        "parent_beacon_block_root": header.parent_beacon_block_root().map(text),
        "requests_hash": header.requests_hash().map(text),
        "block_access_list_hash": header.block_access_list_hash().map(text),
        "slot_number": header.slot_number(),
        "logs_bloom": {
            "bytes": bloom.bytes().map(|bytes| format!("0x{}", hex::encode(bytes))),
            "bits_set": ones,
            "fill": fill,
            "rates": fill.map(rates),
            "estimated_values": estimated,
            "informative": bloom.informative().is_some(),
        },
    })
}

/// Returns a JSON number, or decimal text if the number exceeds 64 bits.
pub(crate) fn decimal(number: U256) -> Value {
    u64::try_from(number).map_or_else(|_| json!(number.to_string()), |number| json!(number))
}
