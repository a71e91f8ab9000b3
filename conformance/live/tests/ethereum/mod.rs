//! Ethereum chains that the tests build: contracts that emit any log, made without a compiler, and
//! blocks of every shape.

mod code;
mod proofs;
mod queries;
mod shapes;

pub(crate) use code::{Log, creation_with, runner, script};
pub(crate) use proofs::{is_in_receipt, receipt_of_proof};
pub(crate) use queries::Query;
pub(crate) use shapes::{Chain, STEPS, Step, logs_of_receipts};
