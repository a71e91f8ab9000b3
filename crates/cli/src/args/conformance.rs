//! Arguments of `conformance …`.

use clap::Subcommand;

use super::conformance_node::{AuditNodeArgs, ServeNodeArgs};

#[derive(Debug, Subcommand)]
pub(crate) enum ConformanceCommand {
    /// Run a Bitcoin or Ethereum node that conforms, or lies in one named way
    ServeNode(ServeNodeArgs),
    /// Hold a running node to the rules over a range of blocks
    AuditNode(AuditNodeArgs),
}
