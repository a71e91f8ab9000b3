//! The `eth` commands.

pub(crate) mod anchor;
pub(crate) mod audit;
pub(crate) mod certificate;
pub(crate) mod chart;
pub(crate) mod follow;
pub(crate) mod forecast;
pub(crate) mod header;
pub(crate) mod headers;
pub(crate) mod index;
pub(crate) mod linked;
pub(crate) mod logs;
pub(crate) mod profile;
pub(crate) mod query;
pub(crate) mod receipts;
pub(crate) mod rpc;
pub(crate) mod scan;
pub(crate) mod serve;
pub(crate) mod stats;

