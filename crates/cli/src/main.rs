//! The `chainsieve` command.
fn main() {}
