//! Conformance vectors of Bitcoin's and Ethereum's filters, as JSON.

/// The files of the pack: path, such as `pack.json` or `vectors/bip37.sizing.json`, and text.
pub static FILES: &[(&str, &str)] = &[];

/// The fixtures that references of the vectors name: path below `fixtures/`, and text.
pub static FIXTURES: &[(&str, &str)] = &[];
