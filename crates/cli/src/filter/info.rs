//! The command `filter info`.

use chainsieve_filter::KeyHasher;
use chainsieve_report::{Exit, Page, Reader, Report, count, estimate, grouped, rate, share};
use serde_json::json;

use crate::args::filter::{Format, InfoArgs};
use super::{bits_per_key, foreign, param_words, params_json, size_words};
use super::hasher::seed_hex;

pub(crate) fn run(args: &InfoArgs) -> anyhow::Result<Report> {
    let input = super::read(&Reader::default(), &args.filter)?;
    let format = args.format;
    let filter = foreign::read(format, &input, None)?;
    let is_native = format == Format::Native;
    let is_len_known = foreign::says_len(format);
    let stats = filter.stats();
    let hasher = foreign::says_hasher(format).then(|| filter.hasher());
    let mut warnings = Vec::new();
    if stats.len == 0 && is_len_known {
        warnings.push("the filter is empty: every answer is \"no\"".to_owned());
    }
    if stats.expected_fpr > 0.5 {
        warnings.push(format!(
            "the false-positive rate is {}: the filter rules out few keys",
            rate(stats.expected_fpr)
        ));
    }
    let json = json!({
        "format": foreign::name(format),
        "kind": filter.kind_name(),
        "version": is_native.then_some(1),
        "checksum": is_native.then_some("fits"),
        "hash": hasher.map(KeyHasher::name),
        "seed": hasher.and_then(seed_hex),
        "keys": is_len_known.then_some(stats.len),
        "estimated_keys": stats.estimated_len.filter(|keys| keys.is_finite()),
        "bytes": input.bytes.len(),
        "bits": stats.num_bits,
        "bits_per_key": bits_per_key(stats.num_bits, stats.len).filter(|_| is_len_known),
        "fill": stats.fill,
        "rate": stats.expected_fpr,
        "parameters": params_json(filter.params()),
        "warnings": warnings,
    });
    let mut page = Page::default();
    let format =
        if is_native { "native, version 1; the checksum matches" } else { foreign::name(format) };
    let hash = match hasher {
        None => "unknown: the format does not store the hash function".into(),
        Some(hasher) => match seed_hex(hasher) {
            Some(seed) => format!("{}, seed {seed}", hasher.name()),
            None => hasher.name().to_owned(),
        },
    };
    let estimated = stats.estimated_len.filter(|keys| keys.is_finite());
    let about = estimated.map(|keys| format!("about {} estimated from the fill", estimate(keys)));
    let keys = match (is_len_known, about) {
        (true, Some(about)) => format!("{} by the stored count, {about}", grouped(stats.len)),
        (true, None) => format!("{} by the stored count", grouped(stats.len)),
        (false, Some(about)) => about,
        (false, None) => "unknown".into(),
    };
    let mut fields = vec![
        ("kind", filter.kind_name().to_owned()),
        ("format", format.to_owned()),
        ("hash", hash),
        ("keys", keys),
        ("size", size_words(stats.num_bits, stats.len)),
        ("file", count(input.bytes.len(), "byte")),
        ("fill", share(stats.fill)),
        ("rate", format!("{} of other keys match too", rate(stats.expected_fpr))),
    ];
    fields.extend(filter.params().into_iter().map(|(name, param)| (name, param_words(param))));
    page.fields(fields);
    page.warnings(&warnings);
    Ok(Report::new(page, json, Exit::Yes))
}
