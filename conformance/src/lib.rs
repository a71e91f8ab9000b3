//! Conformance vectors of Bitcoin's and Ethereum's filters, as JSON.
