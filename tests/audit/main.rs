//! Audits: a true answer has no findings, every lie is found, and no claim exceeds the evidence.
//! The expected logs come from alloy's decoding and a short matcher.

mod attacks;
mod certificates;
mod evidence;
mod json;
mod lies;
mod naive;
mod profiles;
mod synthetic;
