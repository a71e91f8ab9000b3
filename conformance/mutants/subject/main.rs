//! Chainsieve as a subject of the conformance vectors, without the rest of the command: it is built in
//! a part of the time. The argument names the rules for log queries.

#[path = "../../../crates/cli/src/conformance/answer/mod.rs"]
mod answer;

use std::{env, io};

use chainsieve::eth::log_query::Semantics;

fn main() -> io::Result<()> {
    let semantics = env::args().nth(1).map(|name| name.parse::<Semantics>());
    answer::serve(semantics.transpose().map_err(io::Error::other)?.unwrap_or_default())
}
