//! Tests with simulated peers on a mined chain.

mod attacks;
mod disputes;
mod extend;
mod honest;
mod kept;
mod malformed;
mod timeouts;
mod trust;
mod world;
