//! The `eth` commands.

pub(crate) mod chart;
pub(crate) mod header;
pub(crate) mod headers;
pub(crate) mod json_values;
pub(crate) mod stats;
