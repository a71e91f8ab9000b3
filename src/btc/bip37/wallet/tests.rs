//! Sessions against a simulated node, honest and lying.

mod honest;
mod lying;
mod node;
