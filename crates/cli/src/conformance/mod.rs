//! The `conformance` commands.

mod node;

use crate::args::conformance::ConformanceCommand;
use crate::output::Report;

pub(crate) fn run(command: &ConformanceCommand, json: bool) -> anyhow::Result<Report> {
    match command {
        ConformanceCommand::ServeNode(args) => node::serve(args, json),
        ConformanceCommand::AuditNode(args) => node::audit(args),
    }
}
