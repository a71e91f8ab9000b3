//! Scripted peers on a mined chain.

mod attacks;
mod disputes;
mod honest;
mod kept;
mod malformed;
mod patience;
mod trust;
mod world;
