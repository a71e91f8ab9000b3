//! The `eth` commands.

pub(crate) mod chart;
pub(crate) mod forecast;
pub(crate) mod header;
pub(crate) mod headers;
pub(crate) mod json_values;
pub(crate) mod linked;
pub(crate) mod query;
pub(crate) mod scan;
pub(crate) mod stats;
