//! Runs the conformance vectors against any implementation.

#[cfg(feature = "nodes")]
pub mod audit;
#[cfg(feature = "nodes")]
pub mod serve;
