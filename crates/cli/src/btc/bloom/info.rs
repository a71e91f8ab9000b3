//! The command `btc bloom info`.

use anyhow::Context as _;
use chainsieve::btc::bip37::{BloomFilter, MAX_BLOOM_FILTER_SIZE, MAX_HASH_FUNCS};
use chainsieve_report::{Input, Page, Reader, Report, count, grouped, rate};
use serde_json::json;

use crate::args::{InfoArgs, update_name};

pub(crate) fn run(args: &InfoArgs) -> anyhow::Result<Report> {
    let Input { source, bytes } = Reader::default().one(&args.filter, "filter")?;
    let (filter, rest) =
        BloomFilter::decode_any_size(&bytes).with_context(|| format!("filter, {source}"))?;
    let accepted = filter.is_within_size_constraints();
    let warnings = warnings(&filter, rest.len());
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
        "warnings": warnings,
    });
    let mut page = Page::default();
    page.fields(vec![
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
    page.warnings(&warnings);
    Ok(Report::new(page, json, accepted))
}

fn warnings(filter: &BloomFilter, trailing: usize) -> Vec<String> {
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
