//! Data sets as engines hand them over, against what is known of them.

mod changes;
mod corpus;
mod engines;
mod fixture;
mod hostile;
mod order;
mod tables;
mod windows;
