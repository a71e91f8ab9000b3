//! Area of the size of BIP37's filters.

use serde_json::json;

use crate::pack::{Answer, Area, Case, Group, Kind, member, sides};
use crate::sources::{Sources, int};

/// Length in bytes and number of hash functions, as Bitcoin Core's constructor computes them.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "the conversions are those of the formula"
)]
pub(crate) fn core_size(elements: u64, fpr: f64) -> (usize, u32) {
    const LN2SQUARED: f64 = 0.480_453_013_918_201_4;
    let bits = (-1.0 / LN2SQUARED * elements as f64 * fpr.ln()) as u32;
    let len = bits.min(36_000 * 8) / 8;
    let hash_funcs = ((u64::from(len) * 8 / elements) as f64 * core::f64::consts::LN_2) as u32;
    (len as usize, hash_funcs.min(50))
}

/// Lengths and numbers of hash functions as the text of BIP37 has them: no integer division. The
/// text does not say whether the size is rounded to bytes before the number of hash functions is
/// computed from it: first with this rounding, then without.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "the conversions are those of the formula"
)]
fn text_sizes(elements: u64, fpr: f64) -> [(u64, u64); 2] {
    let ln2 = core::f64::consts::LN_2;
    let elements = elements as f64;
    let exact = (-1.0 / (ln2 * ln2) * elements * fpr.ln() / 8.0).min(36_000.0);
    let len = exact as u64;
    [len as f64, exact].map(|size| {
        let hash_funcs = (size * 8.0 / elements * ln2) as u64;
        (len, hash_funcs.min(50))
    })
}

pub(crate) fn area(sources: &Sources) -> Area {
    const MANY: u64 = 150_000_000;
    let named = |elements: u64, fpr: &str| -> Option<&'static str> {
        Some(match (elements, fpr) {
            (3, "0.01") => "core-unit-test",
            (1, "0.1") => "no-bytes",
            (9, "0.01") => "integer-division",
            (17_004, "0.0001") => "above-36000-bytes",
            (MANY, _) => "150-million-elements",
            _ => return None,
        })
    };
    let mut rows: Vec<(u64, f64, u64, u64)> = Vec::new();
    for row in sources.core("sizing") {
        let fpr = row["fpr"].as_f64().expect("a rate");
        rows.push((int(&row["elements"]), fpr, int(&row["bytes"]), int(&row["hash_funcs"])));
    }
    // Filters that Bitcoin Core's own unit tests build: their lengths are in the payloads.
    for (elements, fpr, len, hash_funcs) in [(3, 0.01, 3, 5), (2, 0.001, 3, 8)] {
        rows.push((elements, fpr, len, hash_funcs));
    }
    // More bits than an `i32` counts, fewer than a `u32`.
    // A filter that may let everything through needs no bits.
    for (elements, fpr) in [(MANY, 0.001), (1, 1e-20), (10, 1.0)] {
        let (len, hash_funcs) = core_size(elements, fpr);
        rows.push((elements, fpr, len as u64, hash_funcs.into()));
    }
    let cases = rows.into_iter().map(|(elements, fpr, len, hash_funcs)| {
        let texts = text_sizes(elements, fpr);
        let of = |len: u64, hash_funcs: u64| {
            Answer::Value(json!({ "bytes": len, "hash_funcs": hash_funcs }))
        };
        let rate = fpr.to_string();
        let bits = format!("{:016x}", fpr.to_bits());
        let input = json!({ "elements": elements, "fpr": rate, "fpr_bits": bits });
        let core = of(len, hash_funcs);
        let of_text = texts.map(|(len, hash_funcs)| ("bip-text", of(len, hash_funcs)));
        let expect = sides([("core", core.clone()), ("strict", core)].into_iter().chain(of_text));
        let divides = hash_funcs != texts[0].1;
        let rounds = texts[0] != texts[1];
        let why = if len == 0 {
            "no byte at all, which matches everything"
        } else if hash_funcs == 0 {
            "no hash function, which matches everything"
        } else if len == 36_000 {
            "the data is cut, and fewer hash functions fit it"
        } else if hash_funcs == 50 {
            "the number of hash functions is cut"
        } else if divides {
            "Core's integer division leaves fewer hash functions than the formula of BIP37"
        } else if rounds {
            "whether the size is rounded first decides the number of hash functions by BIP37"
        } else {
            "all ways to compute it agree: a formula with another constant or rounding does not"
        };
        let case = Case::new(format!("{elements} elements at {rate}: {why}"), input, expect)
            .flag_if(divides, "IntegerDivision")
            .flag_if(rounds, "RoundedSize")
            .flag_if(len == 36_000, "LargestData")
            .flag_if(hash_funcs == 50, "MostFunctions")
            .flag_if(len == 0, "NoData")
            .flag_if(len > 0 && hash_funcs == 0, "NoFunctions");
        match named(elements, &rate) {
            Some(name) => case.named(name),
            None => case,
        }
    });
    Area {
        name: "bip37.sizing",
        title: "Size of a filter for a number of elements and a false-positive rate",
        about: "A wallet that sizes its filter otherwise still finds its payments, but its filter is \
                not the one that others build for the same wish, so it can be told apart.\n\nBIP37 gives \
                the size in bytes as S = (-1 / ln(2)^2 × N × ln(P)) / 8 and the number of hash functions \
                as S × 8 / N × ln(2). It does not say whether S is rounded to bytes before the second \
                formula: where that matters, both results are answers of `bip-text`. Nor does it say how \
                to round; all results are rounded down, as in Bitcoin Core, and cut at 36,000 bytes and 50 \
                hash functions.",
        source: "Bitcoin Core 28.1, CBloomFilter's constructor; for `bip-text`, the formulas of BIP37",
        input: vec![
            member("elements", Kind::Integer, "number of elements, at least 1"),
            member("fpr", Kind::Decimal, "wished false-positive rate"),
            member(
                "fpr_bits",
                Kind::Fixed(8),
                "the same as bits of an IEEE 754 double, big-endian",
            ),
        ],
        value: vec![
            member("bytes", Kind::Integer, "length of the filter's data"),
            member("hash_funcs", Kind::Integer, "number of hash functions"),
        ],
        flags: &[
            (
                "IntegerDivision",
                "Core divides the bits by the elements as integers before it multiplies by ln 2",
            ),
            (
                "RoundedSize",
                "by BIP37, the number of hash functions depends on whether the size is rounded to bytes first",
            ),
            (
                "LargestData",
                "the data is cut to 36,000 bytes; the number of hash functions follows from what is left",
            ),
            ("MostFunctions", "the number of hash functions is cut to 50"),
            ("NoData", "the size is 0 bytes: a filter that matches everything"),
            ("NoFunctions", "no hash function: a filter that matches everything"),
        ],
        groups: vec![Group { cases: cases.collect(), ..Group::default() }],
    }
}
