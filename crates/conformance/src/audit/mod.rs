//! Audits of running nodes.
