#![doc = include_str!("../README.md")]

mod cells;
mod dataset;
mod error;
mod export;
mod file;
mod headers;
mod place;
mod rows;
mod schema;
mod stream;
mod summary;
mod table;
mod verdicts;

pub use dataset::{Dataset, Order, Progress};
pub use error::Error;
pub use file::File;
pub use headers::rlp_headers;
pub use place::{Found, Place, Table};
pub use stream::Stream;
pub use summary::{Gap, Grades, Range, Run, Summary, UnreadableFile};
pub use verdicts::{Verdict, Verdicts};
