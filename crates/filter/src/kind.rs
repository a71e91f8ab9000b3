//! The list of filter kinds: the number of each kind in the encoded format, its name, and its cost.

use chainsieve_lanes::named;

use super::sizing::{Cost, SizingError, checked, cost};

/// Computes the cost of a kind for a number of keys (at least 1) at a false-positive rate between 0
/// and 1.
type Sizing = fn(u64, f64) -> Result<Cost, SizingError>;

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $number:literal, $name:literal, $cost:expr;)+) => {
        /// A kind of filter, as encoded filters name it.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[non_exhaustive]
        #[repr(u8)]
        pub enum Kind {
            $($(#[$doc])* $kind = $number,)+
        }

        impl Kind {
            /// All kinds, in the order of their numbers.
            pub const ALL: [Self; [$($number),+].len()] = [$(Self::$kind),+];

            const NAMES: &'static [&'static str] = &[$($name),+];

            /// Returns the name of the kind. The command line accepts this name, except for kinds
            /// that the command line can't build.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$kind => $name,)+
                }
            }

            const fn sizing(self) -> Sizing {
                match self {
                    $(Self::$kind => $cost,)+
                }
            }
        }
    };
}

kinds! {
    /// Classic Bloom filter over 64-bit hashes.
    Bloom = 1, "bloom", cost::bloom;
    /// Classic Bloom filter over 128-bit hashes.
    WideBloom = 2, "wide-bloom", cost::bloom;
    /// Partitioned Bloom filter.
    Partitioned = 3, "partitioned", cost::partitioned;
    /// Split-block Bloom filter with blocks of 512 bits.
    SplitBlock512 = 4, "split-block-512", |n, fpr| cost::split_block(n, fpr, 64);
    /// Split-block Bloom filter with blocks of 256 bits, as in Parquet files.
    SplitBlock256 = 5, "split-block-256", |n, fpr| cost::split_block(n, fpr, 32);
    /// Counting Bloom filter with 4-bit counters in blocks of 128 counters.
    Counting = 6, "counting", cost::counting;
    /// Scalable Bloom filter. The cost of this kind assumes that the filter grew by doubling from a
    /// hundredth of the keys.
    Scalable = 7, "scalable", cost::scalable;
    /// Rolling Bloom filter, which remembers only the most recent keys.
    Rolling = 8, "rolling", cost::rolling;
    /// Classic Bloom filter, entropy-coded for transmission.
    Compressed = 9, "compressed", cost::compressed;
    /// Cuckoo filter with 8-bit fingerprints.
    Cuckoo8 = 10, "cuckoo8", |n, fpr| cost::cuckoo(n, fpr, 8);
    /// Cuckoo filter with 12-bit fingerprints.
    Cuckoo12 = 11, "cuckoo12", |n, fpr| cost::cuckoo(n, fpr, 12);
    /// Cuckoo filter with 16-bit fingerprints.
    Cuckoo16 = 12, "cuckoo16", |n, fpr| cost::cuckoo(n, fpr, 16);
    /// Binary fuse filter with 8-bit fingerprints.
    Fuse8 = 13, "fuse8", |n, fpr| cost::fuse(n, fpr, 8, "fuse8");
    /// Binary fuse filter with 16-bit fingerprints.
    Fuse16 = 14, "fuse16", |n, fpr| cost::fuse(n, fpr, 16, "fuse16");
    /// Ribbon filter.
    Ribbon = 15, "ribbon", cost::ribbon;
    /// Count-min sketch with 32-bit counters. The cost of this kind is that of a sketch used as a
    /// filter: the false-positive rate is the probability that a key that was never counted has an
    /// estimate above zero.
    CountMin = 16, "count-min", cost::count_min;
}

named!(Kind, "a kind of filter");

impl Kind {
    /// Computes what a filter of this kind costs for `n` keys at a false-positive rate of `fpr`.
    /// Zero keys cost as much as one key.
    ///
    /// # Errors
    /// Returns an error if the rate is not between 0 and 1, if this kind can't reach the rate, or
    /// if the filter would be larger than any memory.
    ///
    /// # Examples
    /// ```
    /// use chainsieve_filter::Kind;
    /// let cost = Kind::Cuckoo16.cost(100_000_000, 1e-3)?;
    /// assert!(cost.bits_per_key < 17.1 && cost.fpr < 1.2e-4 && cost.removes);
    /// assert!(Kind::Fuse8.cost(100_000_000, 1e-3).is_err());
    /// # Ok::<(), chainsieve_filter::sizing::SizingError>(())
    /// ```
    pub fn cost(self, n: u64, fpr: f64) -> Result<Cost, SizingError> {
        self.sizing()(n.max(1), checked(fpr)?)
    }
}
