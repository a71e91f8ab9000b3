//! Data sets as engines hand them over, against what is known of them.

mod corpus;
mod engines;
mod order;
mod tables;
