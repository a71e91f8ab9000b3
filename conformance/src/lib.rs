//! Conformance vectors of Bitcoin's and Ethereum's filters, as JSON.

/// The fixtures that references of the vectors name: path below `fixtures/`, and text.
pub static FIXTURES: &[(&str, &str)] = &[
    (
        "ethereum/blocks/mainnet_17686111.json",
        include_str!("../fixtures/ethereum/blocks/mainnet_17686111.json"),
    ),
    (
        "ethereum/blocks/mainnet_17686112.json",
        include_str!("../fixtures/ethereum/blocks/mainnet_17686112.json"),
    ),
];
