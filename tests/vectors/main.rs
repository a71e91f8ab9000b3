//! Published test vectors: the classic BIP37 cases, those of BIP158, geth's tables, and golden
//! files. Bitcoin Core's answers are in the corpus and in the conformance vectors.

mod bip158;
mod bip37;
mod eth_index;
mod filter_container;
mod geth_filters;
