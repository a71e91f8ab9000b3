//! The list of kinds: the number of each in the format, its name, and how it is sized.

use super::sizing::{Cost, SizingError, checked, cost};

/// Sizes a kind for so many keys, at least one, at a rate between 0 and 1.
type Sizing = fn(u64, f64) -> Result<Cost, SizingError>;

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $number:literal, $name:literal, $cost:expr;)+) => {
        /// Which filter encoded bytes hold.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[non_exhaustive]
        #[repr(u8)]
        pub enum Kind {
            $($(#[$doc])* $kind = $number,)+
        }

        impl Kind {
            /// Every kind.
            pub const ALL: [Self; [$($number),+].len()] = [$(Self::$kind),+];

            /// The name. The command line takes it, but for a kind that it does not build.
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
    /// Classic Bloom over hashes of 64 bits.
    Bloom = 1, "bloom", cost::bloom;
    /// Classic Bloom over hashes of 128 bits.
    WideBloom = 2, "wide-bloom", cost::bloom;
    /// Partitioned Bloom.
    Partitioned = 3, "partitioned", cost::partitioned;
    /// Split-block Bloom, blocks of 512 bits.
    SplitBlock512 = 4, "split-block-512", |n, fpr| cost::split_block(n, fpr, 64);
    /// Split-block Bloom, blocks of 256 bits, as Parquet's.
    SplitBlock256 = 5, "split-block-256", |n, fpr| cost::split_block(n, fpr, 32);
    /// Counting Bloom: counters of 4 bits, blocks of 128 counters.
    Counting = 6, "counting", cost::counting;
    /// Scalable Bloom. Its cost is that of one grown from a hundredth of the keys by doubling.
    Scalable = 7, "scalable", cost::scalable;
    /// Rolling Bloom, which remembers the last keys.
    Rolling = 8, "rolling", cost::rolling;
    /// Classic Bloom, entropy-coded for the wire.
    Compressed = 9, "compressed", cost::compressed;
    /// Cuckoo with fingerprints of 8 bits.
    Cuckoo8 = 10, "cuckoo8", |n, fpr| cost::cuckoo(n, fpr, 8);
    /// Cuckoo with fingerprints of 12 bits.
    Cuckoo12 = 11, "cuckoo12", |n, fpr| cost::cuckoo(n, fpr, 12);
    /// Cuckoo with fingerprints of 16 bits.
    Cuckoo16 = 12, "cuckoo16", |n, fpr| cost::cuckoo(n, fpr, 16);
    /// Binary fuse with fingerprints of 8 bits.
    Fuse8 = 13, "fuse8", |n, fpr| cost::fuse(n, fpr, 8, "fuse8");
    /// Binary fuse with fingerprints of 16 bits.
    Fuse16 = 14, "fuse16", |n, fpr| cost::fuse(n, fpr, 16, "fuse16");
    /// Ribbon.
    Ribbon = 15, "ribbon", cost::ribbon;
    /// Count-Min sketch: counters of 32 bits. Its cost is that of a filter in which a stranger has
    /// a count at the rate asked for.
    CountMin = 16, "count-min", cost::count_min;
}

impl Kind {
    /// What `n` keys at the rate `fpr` cost. No keys cost as much as one.
    ///
    /// # Errors
    /// If the rate is not between 0 and 1 or out of reach of this kind, or if no memory could be
    /// as large.
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
