//! Tests with simulated peers on a mined chain.

mod attacks;
mod disputes;
mod extend;
mod honest;
mod kept;
mod malformed;
mod random;
mod timeouts;
mod trust;
mod voices;
mod world;
