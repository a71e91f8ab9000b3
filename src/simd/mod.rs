//! SIMD.
