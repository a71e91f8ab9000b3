//! Hash functions over byte slices, one file each.

pub mod murmur3;

pub use murmur3::murmur3_32;
