//! Audits: nothing is found in a true answer, every lie is, and nothing is claimed beyond the
//! evidence. Expected logs come from alloy's decoding and a matcher of a few lines.

#[path = "audit/attacks.rs"]
mod attacks;
#[path = "audit/certificates.rs"]
mod certificates;
#[path = "support/corpus_index.rs"]
mod corpus_index;
#[path = "audit/evidence.rs"]
mod evidence;
#[path = "audit/json.rs"]
mod json;
#[path = "audit/lies.rs"]
mod lies;
#[path = "audit/naive.rs"]
mod naive;
#[path = "audit/profiles.rs"]
mod profiles;
#[path = "support/rng.rs"]
#[expect(dead_code, reason = "shared, and not all of it is used here")]
mod rng;
#[path = "audit/runs.rs"]
mod runs;
#[path = "audit/synthetic.rs"]
mod synthetic;
