//! Audits: nothing is found in a true answer, every lie is, and nothing is claimed beyond the
//! evidence. Expected logs come from alloy's decoding and a matcher of a few lines.

mod attacks;
mod certificates;
mod evidence;
mod json;
mod lies;
mod naive;
mod profiles;
mod synthetic;
