//! The programs of the README, as tests of documentation. They see the packages as their users do.

#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
