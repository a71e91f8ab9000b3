//! The commands `btc bloom new` and `btc bloom info`.

use std::collections::HashSet;

use anyhow::{Context as _, anyhow, bail};
use chainsieve::btc::bip37::session::{ADDRESS_POPULATION, PrivacyReport};
use chainsieve::btc::bip37::{BloomFilter, MAX_BLOOM_FILTER_SIZE, MAX_HASH_FUNCS, UpdateMode};
use chainsieve_report::{
    Exit, Input, Page, Reader, Report, UsageError, count, grouped, rate, stdin_is_piped, write,
    write_hex,
};
use serde_json::{Value, json};

use super::watch::{Item, Kind, Policy, read_lines, source_name};
use crate::args::{InfoArgs, NewArgs, update_name};

/// Minimum length in bytes of a script's push that bitcoinj matches; shorter pushes occur in too
/// many scripts.
const SHORT_PUSH: usize = 8;
/// Number of table rows that fit on a screen.
const MAX_ROWS: usize = 20;
/// Number of elements for which a filter has room in addition to the inserted elements, as in the
/// library's filter policy.
///
/// Each match inserts an outpoint, even if the match is a false positive. Without this room, a
/// small filter fills up within one block and then matches everything after it.
const ROOM: u32 = 100;

pub(crate) fn new(args: &NewArgs) -> anyhow::Result<Report> {
    let items = items(args)?;
    if let (true, Some(path)) = (items.is_empty(), args.file.first()) {
        return Err(anyhow!("{}: the file contains no items", path.display()));
    }
    if items.is_empty() {
        bail!(UsageError("nothing to watch: give items, --file or -; see --help"));
    }
    let mut seen = HashSet::new();
    let distinct: Vec<_> = items
        .iter()
        .flat_map(|item| &item.elements)
        .filter(|element| seen.insert(&element.data))
        .collect();
    if distinct.is_empty() {
        return Err(anyhow!("none of the scripts pushes data: BIP37 cannot watch them"));
    }
    let inserted = u32::try_from(distinct.len()).context("too many elements")?;
    let room = if args.update == UpdateMode::None { 0 } else { ROOM };
    let elements = args.elements.unwrap_or(inserted.saturating_add(room));
    let tweak = match args.tweak {
        Some(tweak) => tweak,
        None => getrandom::u32()
            .map_err(|error| anyhow!("the system provides no random numbers: {error}"))?,
    };
    let mut filter = BloomFilter::new(elements, args.fpr, tweak, args.update)?;
    for element in &distinct {
        filter.insert(&element.data);
    }
    let warnings = new_warnings(args, &items, inserted, elements, &filter);
    let payload = filter.encode();
    let payload_hex = hex::encode(&payload);
    if let Some(path) = &args.out {
        let write = if args.raw { write } else { write_hex };
        write(path, &payload, args.overwrite.force)?;
    }
    let own = addresses(&items);
    let mut privacy = PrivacyReport::new(&filter, own, ADDRESS_POPULATION);
    privacy.keys_inserted = args.with_keys && items.iter().any(|item| item.kind == Kind::Key);
    let elements_json: Vec<_> = items.iter().flat_map(item_json).collect();
    let json = json!({
        "payload": payload_hex,
        "elements": elements_json,
        "sized_for": elements,
        "bytes": filter.data().len(),
        "hash_funcs": filter.hash_funcs(),
        "tweak": tweak,
        "tweak_random": args.tweak.is_none(),
        "update": update_name(filter.update_mode()),
        "target_rate": args.fpr,
        "rate": filter.false_positive_rate(),
        "privacy": {"own": privacy.own, "others": privacy.others},
    });
    let mut page = Page::default();
    item_table(&mut page, &items);
    page.line("");
    let random = if args.tweak.is_none() { ", random" } else { "" };
    let mut fields = vec![
        ("elements", format!("{}, sized for {}", grouped(inserted), grouped(elements))),
        (
            "size",
            format!(
                "{}, {}",
                count(filter.data().len(), "byte"),
                count(filter.hash_funcs(), "hash function")
            ),
        ),
        ("tweak", format!("{tweak}{random}")),
        ("update", update_name(filter.update_mode()).into()),
        (
            "rate",
            format!(
                "{} at this fill, {} requested",
                rate(filter.false_positive_rate()),
                rate(args.fpr)
            ),
        ),
    ];
    if own > 0 {
        fields.push(("privacy", privacy.to_string()));
    }
    if let Some(path) = &args.out {
        fields.push(("written to", path.display().to_string()));
    }
    page.fields(fields);
    let shown = if args.out.is_some() { String::new() } else { payload_hex };
    Ok(Report::new(page, json, Exit::Yes).with_warnings(warnings).with_payload(shown))
}

fn items(args: &NewArgs) -> anyhow::Result<Vec<Item>> {
    let policy =
        Policy { network: args.network, range: args.range.clone(), with_keys: args.with_keys };
    let reader = Reader::default();
    let mut items = Vec::new();
    let from_file = |path: &std::path::Path| {
        let text = reader.text(path)?;
        read_lines(&text, &source_name(path), |item| Item::detect(item, &policy))
    };
    for item in &args.items {
        if item == "-" {
            items.extend(from_file("-".as_ref())?);
        } else {
            items.push(Item::detect(item, &policy)?);
        }
    }
    for (kind, texts) in [
        (Kind::Address, &args.address),
        (Kind::Script, &args.script),
        (Kind::Key, &args.key),
        (Kind::Outpoint, &args.outpoint),
        (Kind::Txid, &args.txid),
        (Kind::Data, &args.data),
        (Kind::Descriptor, &args.descriptor),
    ] {
        for text in texts {
            items.push(Item::new(kind, text, &policy)?);
        }
    }
    for path in &args.file {
        items.extend(from_file(path)?);
    }
    if items.is_empty() && args.items.is_empty() && args.file.is_empty() && stdin_is_piped() {
        items.extend(from_file("-".as_ref())?);
    }
    Ok(items)
}

fn item_json(item: &Item) -> impl Iterator<Item = Value> {
    item.elements.iter().map(|element| {
        json!({
            "kind": item.kind.name(),
            "item": item.text,
            "index": element.index,
            "data": hex::encode(&element.data),
        })
    })
}

fn item_table(page: &mut Page, items: &[Item]) {
    let rows = items
        .iter()
        .take(MAX_ROWS)
        .map(|item| {
            let inserted = match item.elements.as_slice() {
                [] => "nothing".into(),
                [only] => shown_data(&only.data),
                [first, rest @ ..] => {
                    format!("{} and {} more", shown_data(&first.data), grouped(rest.len()))
                }
            };
            vec![item.kind.name(), shown_text(&item.text), inserted]
        })
        .collect();
    page.table(vec!["kind", "item", "inserted"], rows);
    if let Some(more @ 1..) = items.len().checked_sub(MAX_ROWS) {
        page.line(format!("and {} (--json prints all of them)", count(more, "more item")));
    }
}

/// Returns a text, or only its two ends if the text is too long for a table.
fn shown_text(text: &str) -> String {
    const ENDS: usize = 31;
    if text.is_ascii() && text.len() > 2 * ENDS + 2 {
        format!("{}…{}", &text[..ENDS], &text[text.len() - ENDS..])
    } else {
        text.into()
    }
}

fn shown_data(data: &[u8]) -> String {
    if data.len() > 20 {
        format!("{}… ({} bytes)", hex::encode(&data[..16]), data.len())
    } else {
        hex::encode(data)
    }
}

fn new_warnings(
    args: &NewArgs,
    items: &[Item],
    inserted: u32,
    elements: u32,
    filter: &BloomFilter,
) -> Vec<String> {
    let mut warnings = Vec::new();
    if args.tweak.is_none() {
        warnings.push(format!(
            "the tweak is random: give --tweak {} from now on, because two filters of a wallet \
             with different tweaks reveal to a node which elements are in both",
            filter.tweak()
        ));
    }
    let mut texts = HashSet::new();
    for item in items {
        let name = shown_text(&item.text);
        if !texts.insert(&item.text) {
            warnings.push(format!("{name} is given twice and inserted once"));
        }
        if item.unwatchable > 0 {
            warnings.push(format!("{name}: a script that pushes no data cannot be watched"));
        }
        if item.malformed {
            warnings.push(format!("{name}: the script ends inside a push, which is not inserted"));
        }
        // Short data matches unrelated transactions.
        let short = item.elements.iter().map(|element| element.data.len()).min();
        if let Some(length @ 1..SHORT_PUSH) = short {
            warnings
                .push(format!("{name}: {} also occur in unrelated scripts", count(length, "byte")));
        }
    }
    if inserted > elements {
        warnings.push(format!(
            "{} elements were inserted, but the filter is sized for {}: the rate is {}, not {}",
            grouped(inserted),
            grouped(elements),
            rate(filter.false_positive_rate()),
            rate(args.fpr)
        ));
    }
    if args.update == UpdateMode::All && elements < inserted.saturating_add(ROOM / 2) {
        warnings.push(format!(
            "the filter has little room: each match inserts an outpoint, and a full filter matches \
             everything; --elements {} leaves room for {ROOM}",
            inserted.saturating_add(ROOM)
        ));
    }
    if addresses(items) > 0 {
        warnings.push(spends(args.update).into());
    }
    warnings
}

/// Returns the number of scripts to which the wallet can receive payments.
fn addresses(items: &[Item]) -> usize {
    let receiving =
        items.iter().filter(|item| !matches!(item.kind, Kind::Outpoint | Kind::Txid | Kind::Data));
    receiving.map(|item| if item.kind == Kind::Key { 1 } else { item.elements.len() }).sum()
}

/// Returns the warning about how spends are found. An input contains only a signature and a key.
/// With segwit both are in the witness, which nodes do not match against filters.
fn spends(update: UpdateMode) -> &'static str {
    match update {
        UpdateMode::All => {
            "spends are found by their outpoints only: the node inserts the outpoints of outputs that \
             match from now on; give --outpoint for coins received before"
        }
        UpdateMode::None => {
            "spends are found by their outpoints only, and with --update none the node inserts no \
             outpoint: give --outpoint for every coin"
        }
        UpdateMode::P2PubkeyOnly => {
            "spends are found by their outpoints only, and with --update p2pubkey-only the node \
             inserts no outpoint of segwit, P2PKH and P2SH outputs: give --outpoint for those coins"
        }
    }
}

pub(crate) fn info(args: &InfoArgs) -> anyhow::Result<Report> {
    let Input { source, bytes } = Reader::default().one(&args.filter, "filter")?;
    let (filter, rest) =
        BloomFilter::decode_any_size(&bytes).with_context(|| format!("filter, {source}"))?;
    let accepted = filter.is_within_size_constraints();
    let warnings = info_warnings(&filter, rest.len());
    let estimated = filter.estimated_elements();
    let update = update_name(filter.update_mode());
    let json = json!({
        "bytes": filter.data().len(),
        "hash_funcs": filter.hash_funcs(),
        "tweak": filter.tweak(),
        "flags": filter.flags(),
        "update": update,
        "bits": filter.num_bits(),
        "bits_set": filter.bits_set(),
        "fill": filter.fill(),
        "rate": filter.false_positive_rate(),
        "estimated_elements": estimated.is_finite().then_some(estimated),
        "matches_everything": filter.matches_everything(),
        "accepted_by_nodes": accepted,
        "trailing_bytes": rest.len(),
    });
    let page = Page::of_fields(vec![
        ("size", count(filter.data().len(), "byte")),
        ("hash functions", grouped(filter.hash_funcs())),
        ("tweak", filter.tweak().to_string()),
        ("flags", format!("{:#04x}, update {update}", filter.flags())),
        (
            "fill",
            format!(
                "{:.1} %, {} of {} bits",
                filter.fill() * 100.0,
                grouped(filter.bits_set()),
                grouped(filter.num_bits())
            ),
        ),
        ("rate", format!("{} of other elements match", rate(filter.false_positive_rate()))),
        (
            "elements",
            if estimated.is_finite() {
                format!("about {estimated:.1}, estimated from the fill")
            } else {
                "unknown: every bit is set".into()
            },
        ),
    ]);
    Ok(Report::new(page, json, accepted).with_warnings(warnings))
}

fn info_warnings(filter: &BloomFilter, trailing: usize) -> Vec<String> {
    let mut warnings = Vec::new();
    let size = filter.data().len();
    if size > MAX_BLOOM_FILTER_SIZE {
        warnings.push(format!(
            "the filter has {} bytes, the limit is {}: nodes reject it",
            grouped(size),
            grouped(MAX_BLOOM_FILTER_SIZE)
        ));
    }
    if filter.hash_funcs() > MAX_HASH_FUNCS {
        warnings.push(format!(
            "the filter has {} hash functions, the limit is {MAX_HASH_FUNCS}: nodes reject it",
            grouped(filter.hash_funcs())
        ));
    }
    if filter.matches_everything() {
        let why = if size == 0 {
            "no data"
        } else if filter.hash_funcs() == 0 {
            "no hash functions"
        } else {
            "every bit set"
        };
        warnings.push(format!("the filter matches everything: {why}"));
    } else if filter.bits_set() == 0 {
        warnings.push("no bit is set: the filter matches nothing".into());
    } else if filter.false_positive_rate() > 0.1 {
        warnings.push("the false-positive rate is above 1 in 10".into());
    }
    // BIP37 and Bitcoin Core define only the values 0, 1 and 2 of the flags.
    if filter.flags() > 2 {
        warnings.push(format!(
            "flags {:#04x}: nodes use the two low bits only, which mean update {}",
            filter.flags(),
            update_name(filter.update_mode())
        ));
    }
    if trailing > 0 {
        warnings.push(format!(
            "{} after the last field: nodes ignore trailing bytes",
            count(trailing, "byte")
        ));
    }
    warnings
}
