//! Block headers as received.

mod chain;
mod view;
