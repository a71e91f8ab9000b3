//! Tests of watch sets: against a map of counts with every kind of store, with threads, and their
//! promises about memory and rates.

mod callbacks;
mod costs;
mod laws;
mod stores;
mod threads;
mod troubles;
