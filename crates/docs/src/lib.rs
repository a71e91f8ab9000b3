//! Runs the programs of the README as documentation tests. They use the packages as users do.

#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
