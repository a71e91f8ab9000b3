//! Runs the conformance vectors against any implementation.

mod answer;
mod expect;
mod pack;
mod select;
mod subject;

pub use answer::{Answer, Failure, Violation};
pub use expect::{Alternative, Comparison, Expect, Expected};
pub use pack::{
    Area, Case, CaseFault, FORMAT, InputError, Inputs, Level, Needs, Pack, PackError, Profile,
};
pub use select::{SelectError, Selection, matches};
pub use subject::{
    GaveUp, InProcess, Introduction, Limits, Process, Question, StartError, Subject,
};
