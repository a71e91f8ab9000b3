#![doc = include_str!("../README.md")]

mod adapter;
mod answer;
#[cfg(feature = "nodes")]
pub mod audit;
mod baseline;
mod expect;
mod finding_kind;
mod node;
mod pack;
mod report;
mod run;
mod select;
#[cfg(feature = "nodes")]
pub mod serve;
mod shorten;
mod subject;

pub use adapter::answer_questions;
pub use answer::{Answer, Failure, Violation};
pub use baseline::{Baseline, BaselineError, Change, Judgement};
pub use expect::{Alternative, Comparison, Expect, Expected};
pub use finding_kind::FindingKind;
pub use node::RpcNode;
pub use pack::{
    Area, Case, CaseFault, FORMAT, InputError, Inputs, Level, Needs, Pack, PackError, Profile,
};
pub use report::Report;
pub use run::{AreaRun, CaseRun, Counts, Detail, Outcome, Progress, RunError, SubjectRun, run};
pub use select::{SelectError, Selection, matches};
pub use shorten::shortened;
pub use subject::{
    GaveUp, InProcess, Introduction, Limits, Process, Question, StartError, Subject,
};
