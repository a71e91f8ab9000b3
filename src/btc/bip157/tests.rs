//! Scripted peers on a mined chain.

mod disputes;
mod honest;
mod malformed;
mod patience;
mod trust;
mod world;
