//! Audits of running nodes: everything that a node answers over a range of blocks is computed again
//! and compared.
//!
//! The audits use the library's own machines. A difference names the [rule](rules) that the node
//! broke, with the expected and the found value.

pub mod bitcoin;
pub mod ethereum;
mod report;

pub use report::{AuditError, AuditReport, Difference, rules};
