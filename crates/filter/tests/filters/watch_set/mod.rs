//! Watch sets: against a map of counts with every kind of store, under threads, and what they
//! promise in bits and rates.

mod callbacks;
mod costs;
mod laws;
mod stores;
mod threads;
mod troubles;
