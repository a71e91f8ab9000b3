//! Chainsieve as a subject of the conformance vectors, without the rest of the command: it is built in
//! a part of the time.

#[path = "../../../crates/cli/src/conformance/answer/mod.rs"]
mod answer;

use std::io;

use chainsieve::eth::log_query::Semantics;

fn main() -> io::Result<()> {
    answer::serve(Semantics::default())
}
