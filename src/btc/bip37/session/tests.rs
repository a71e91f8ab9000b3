//! Tests of sessions with a simulated node, honest and lying.
#![expect(clippy::cast_possible_truncation, reason = "the numbers of these tests are small")]

mod closed;
mod crossing;
mod honest;
mod limits;
mod lying;
mod missed;
mod node;
