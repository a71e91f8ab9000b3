//! `chainsieve.filter`: membership filters for keys in bulk.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::PathBuf;

use chainsieve_filter::bloom::BloomFilter;
use chainsieve_filter::fuse::{BinaryFuse, BinaryFuse8, BinaryFuse16, FuseFingerprint};
use chainsieve_filter::hashing::HashFunction;
use chainsieve_filter::interop::{parquet, xor_singleheader};
use chainsieve_filter::split_block::SplitBlockFilter256;
use chainsieve_filter::{Filter, Insert, KeyHasher, Merge, Portable};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyType};

use crate::answers::truth_values;
use crate::errors::{InvalidInput, invalid};
use crate::keys::{Keys, one_key};

/// Number of keys that are hashed before a filter is asked for them: enough to prefetch their cache
/// lines, and few enough that their hashes stay in the first cache.
const BATCH: usize = 1024;

/// Lowest rate of a filter with blocks, below which equal halves of hashes count.
const LEAST_FPR: f64 = 1e-7;

/// Writes a file beside the old one, which it then replaces: a write that is interrupted leaves the old contents.
fn replace(path: PathBuf, bytes: &[u8]) -> io::Result<()> {
    // A link stays, and its target is replaced.
    let path = fs::canonicalize(&path).unwrap_or(path);
    let mut beside = path.clone().into_os_string();
    beside.push(format!(".{}.tmp", std::process::id()));
    let write = |mut file: File| {
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&beside, &path)
    };
    let written = File::create_new(&beside).and_then(write);
    if written.is_err() {
        // If it is still there, it only takes room.
        let _ = fs::remove_file(&beside);
    }
    written
}

/// Returns the hasher of these names, as the command names them.
fn hasher(name: &str, seed: &Bound<'_, PyAny>) -> PyResult<KeyHasher> {
    let bits = match name {
        "siphash13" => 128,
        "xxh3" | "xxh64" => 64,
        "murmur3" => 32,
        "fnv1a" => 0,
        _ => {
            return Err(InvalidInput::new_err(format!(
                "hash {name:?} is unknown: siphash13, xxh3, xxh64, murmur3, fnv1a"
            )));
        }
    };
    let seed = if let Ok(bytes) = seed.cast::<PyBytes>() {
        let mut wide = [0; 16];
        let bytes = bytes.as_bytes();
        let to = wide.get_mut(..bytes.len());
        let long = || InvalidInput::new_err(format!("a seed of {} bytes, at most 16", bytes.len()));
        to.ok_or_else(long)?.copy_from_slice(bytes);
        u128::from_le_bytes(wide)
    } else {
        seed.extract::<u128>()?
    };
    let wide = || InvalidInput::new_err(format!("the seed of {name} has at most {bits} bits"));
    let [low, high] =
        [seed, seed >> 64].map(|half| u64::try_from(half & u128::from(u64::MAX)).unwrap_or(0));
    let is_narrow = seed.checked_shr(bits).unwrap_or(0) == 0;
    if !is_narrow {
        return Err(wide());
    }
    Ok(KeyHasher::new(match name {
        "siphash13" => HashFunction::SipHash13 { key: [low, high] },
        "xxh3" => HashFunction::Xxh3 { seed: low },
        "xxh64" => HashFunction::Xxh64 { seed: low },
        "murmur3" => HashFunction::Murmur3 { seed: u32::try_from(low).map_err(|_| wide())? },
        _ => HashFunction::Fnv1a,
    }))
}

/// Returns an error for a format that a filter cannot be written in or read from.
fn unknown_format(format: &str, known: &str) -> PyErr {
    InvalidInput::new_err(format!("format {format:?} is unknown: {known}"))
}

/// Asks a filter for many keys, without holding the interpreter.
fn contains<'py>(
    filter: &(impl Filter<Hash = u64> + Sync),
    keys: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = keys.py();
    let keys = Keys::of(keys)?;
    let answers = py.detach(|| {
        let mut answers = vec![false; keys.len()];
        let mut rest = answers.as_mut_slice();
        let hasher = filter.hasher();
        keys.in_batches(
            BATCH,
            |key| hasher.hash::<u64>(key),
            |hashes| {
                let (now, later) = std::mem::take(&mut rest).split_at_mut(hashes.len());
                filter.contains_batch(hashes, now);
                rest = later;
            },
        );
        answers
    });
    truth_values(py, &answers)
}

/// Inserts many keys, without holding the interpreter.
fn update(
    py: Python<'_>,
    filter: &mut (impl Insert<Hash = u64> + Send),
    keys: &Keys,
) -> PyResult<()> {
    py.detach(|| {
        let hasher = *filter.hasher();
        let mut full = Ok(());
        keys.in_batches(
            BATCH,
            |key| hasher.hash::<u64>(key),
            |hashes| {
                if full.is_ok() {
                    full = filter.insert_batch(hashes);
                }
            },
        );
        full
    })
    .map_err(invalid)
}

/// Returns the number of distinct keys that a filter seems to have.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
fn len(filter: &impl Filter) -> usize {
    let added = usize::try_from(filter.len()).unwrap_or(usize::MAX);
    let estimate = filter.estimated_len().filter(|estimate| estimate.is_finite());
    // Python refuses lengths above the largest signed number.
    estimate.map_or(added, |estimate| added.min(estimate.round() as usize)).min(isize::MAX as usize)
}

/// The methods that every filter has. `$more` are those of one class.
macro_rules! filter_class {
    ($class:ident($filter:ty) { $($more:tt)* }) => {
        #[pymethods]
        impl $class {
            $($more)*

            /// Return an array of bool: for each key, whether it may be in the filter.
            ///
            /// `keys` is a list, an array of numpy or an Arrow array (see the module). False is
            /// certain. The interpreter is not held meanwhile. Without numpy, the result is a list.
            fn contains<'py>(&self, keys: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
                contains(&self.0, keys)
            }

            /// Return whether one key may be in the filter. False is certain.
            fn __contains__(&self, key: &Bound<'_, PyAny>) -> PyResult<bool> {
                one_key(key, |key| self.0.contains(key))
            }

            /// Return the number of distinct keys, estimated from the bits where it is not known.
            fn __len__(&self) -> usize {
                len(&self.0)
            }

            fn __bool__(&self) -> bool {
                !self.0.is_empty()
            }

            fn __eq__(&self, other: &Self) -> bool {
                self.0 == other.0
            }

            fn __repr__(&self) -> String {
                let (name, bits, added) = (stringify!($class), self.0.num_bits(), self.0.len());
                format!("<{name} of {bits} bits, {added} keys, {}>", self.0.hasher().name())
            }

            /// The number of keys that were added. A key that was added twice counts twice.
            #[getter]
            fn added(&self) -> u64 {
                self.0.len()
            }

            /// The size of the filter in bits.
            #[getter]
            fn num_bits(&self) -> u64 {
                self.0.num_bits()
            }

            /// The share of bits or cells that are taken, from 0 to 1.
            #[getter]
            fn fill(&self) -> f64 {
                self.0.fill()
            }

            /// The rate of false positives of the present contents.
            #[getter]
            fn expected_fpr(&self) -> f64 {
                self.0.expected_fpr()
            }

            /// The name of the hash function.
            #[getter]
            fn hash(&self) -> &'static str {
                self.0.hasher().name()
            }

            /// Write the filter to a file, in the form of `to_bytes`. If that fails, an older file stays.
            #[pyo3(signature = (path, format = "chainsieve"))]
            fn save(&self, py: Python<'_>, path: PathBuf, format: &str) -> PyResult<()> {
                let bytes = self.encoded(format)?;
                Ok(py.detach(|| replace(path, &bytes))?)
            }

            /// Return the filter as bytes.
            ///
            /// The format "chainsieve" is read by the Rust package and by the command `chainsieve
            /// filter`. The class names the others.
            #[pyo3(signature = (format = "chainsieve"))]
            fn to_bytes<'py>(&self, py: Python<'py>, format: &str) -> PyResult<Bound<'py, PyBytes>> {
                Ok(PyBytes::new(py, &self.encoded(format)?))
            }
        }
    };
}

/// A split-block Bloom filter, bit for bit as in Parquet files.
///
/// `SplitBlock(capacity, fpr=0.01)` has room for `capacity` keys at a rate of false positives of at
/// most `fpr`. More keys can be added, and raise the rate. With the default hash (XXH64 with seed 0,
/// as Parquet hashes) and up to 128 MiB, the number of blocks is a power of two, so that every
/// reader of Parquet accepts the filter. The fastest of the filters for keys that are added.
///
/// Formats: "chainsieve"; "parquet", the bytes that a Parquet file has at the offset of a column's
/// Bloom filter.
///
/// >>> from chainsieve.filter import SplitBlock
/// >>> seen = SplitBlock(1000, 0.001)
/// >>> seen.add("a0")
/// >>> "a0" in seen, "b0" in seen
/// (True, False)
/// >>> seen.update([b"a1", "a2", 3])
/// >>> list(map(bool, seen.contains([b"a1", b"a2", 3, 4])))
/// [True, True, True, False]
/// >>> "a0" in SplitBlock.from_bytes(seen.to_bytes("parquet"), "parquet")
/// True
#[pyclass(module = "chainsieve.filter")]
pub(crate) struct SplitBlock(SplitBlockFilter256);

impl SplitBlock {
    fn encoded(&self, format: &str) -> PyResult<Vec<u8>> {
        match format {
            "chainsieve" => self.0.encode().map_err(invalid),
            "parquet" => parquet::encode(&self.0).map_err(invalid),
            _ => Err(unknown_format(format, "chainsieve, parquet")),
        }
    }

    fn decoded(bytes: &[u8], format: &str) -> PyResult<Self> {
        match format {
            "chainsieve" => SplitBlockFilter256::decode(bytes).map(Self).map_err(invalid),
            "parquet" => parquet::decode(bytes).map(Self).map_err(invalid),
            _ => Err(unknown_format(format, "chainsieve, parquet")),
        }
    }

    fn sized(capacity: u64, fpr: f64, hasher: KeyHasher) -> PyResult<Self> {
        // A rate that no filter of this kind has is named by `with_fpr`, and so is a rate that is none.
        let is_reached = fpr >= LEAST_FPR;
        let blocks = parquet::num_blocks(capacity, fpr).ok();
        let blocks = blocks.filter(|_| is_reached && hasher == parquet::HASHER);
        let filter = match blocks {
            Some(blocks) => SplitBlockFilter256::with_blocks(blocks, hasher),
            // Other programs do not read this filter, or it is too large for a Parquet file.
            None => SplitBlockFilter256::with_fpr(capacity, fpr, hasher),
        };
        filter.map(Self).map_err(invalid)
    }
}

/// A classic Bloom filter, of any size and rate.
///
/// `Bloom(capacity, fpr=0.01)` has room for `capacity` keys at a rate of false positives of at most
/// `fpr`. More keys can be added, and raise the rate. Filters of equal shape and hash can be united.
/// Smaller than `SplitBlock` and, when large, several times slower.
///
/// The default hash is XXH3 with seed 0: fast, and equal in all processes. If strangers choose the
/// keys, take `hash="siphash13"` and a random `seed` of 16 bytes, which stays in the bytes of the
/// filter.
///
/// >>> from chainsieve.filter import Bloom
/// >>> words = Bloom.from_keys(["red", "green", "blue"], 0.001)
/// >>> "red" in words, "black" in words, len(words)
/// (True, False, 3)
/// >>> more = words.copy()
/// >>> more.add("black")
/// >>> words |= more
/// >>> "black" in words
/// True
/// >>> Bloom.from_bytes(words.to_bytes()) == words
/// True
#[pyclass(module = "chainsieve.filter")]
pub(crate) struct Bloom(BloomFilter);

impl Bloom {
    fn encoded(&self, format: &str) -> PyResult<Vec<u8>> {
        match format {
            "chainsieve" => self.0.encode().map_err(invalid),
            _ => Err(unknown_format(format, "chainsieve")),
        }
    }

    fn decoded(bytes: &[u8], format: &str) -> PyResult<Self> {
        match format {
            "chainsieve" => BloomFilter::decode(bytes).map(Self).map_err(invalid),
            _ => Err(unknown_format(format, "chainsieve")),
        }
    }

    fn sized(capacity: u64, fpr: f64, hasher: KeyHasher) -> PyResult<Self> {
        BloomFilter::with_fpr(capacity, fpr, hasher).map(Self).map_err(invalid)
    }
}

/// The methods of filters that keys are added to.
macro_rules! growing_class {
    ($class:ident($filter:ty), $hash:literal, { $($more:tt)* }) => {
        filter_class! { $class($filter) {
            #[new]
            #[pyo3(signature = (capacity, fpr = 0.01, *, hash = $hash, seed = None))]
            fn new(
                capacity: u64,
                fpr: f64,
                hash: &str,
                seed: Option<&Bound<'_, PyAny>>,
                py: Python<'_>,
            ) -> PyResult<Self> {
                Self::sized(capacity, fpr, seeded(py, hash, seed)?)
            }

            /// Return a filter of these keys, with room for as many keys as there are.
            #[classmethod]
            #[pyo3(signature = (keys, fpr = 0.01, *, hash = $hash, seed = None))]
            fn from_keys(
                cls: &Bound<'_, PyType>,
                keys: &Bound<'_, PyAny>,
                fpr: f64,
                hash: &str,
                seed: Option<&Bound<'_, PyAny>>,
            ) -> PyResult<Self> {
                let (py, keys) = (cls.py(), Keys::of(keys)?);
                let mut filter = Self::sized(keys.len() as u64, fpr, seeded(py, hash, seed)?)?;
                update(py, &mut filter.0, &keys)?;
                Ok(filter)
            }

            /// Return the filter that `to_bytes` has written, or another program.
            #[classmethod]
            #[pyo3(signature = (data, format = "chainsieve"))]
            fn from_bytes(_cls: &Bound<'_, PyType>, data: PyBackedBytes, format: &str) -> PyResult<Self> {
                Self::decoded(&data, format)
            }

            /// Return the filter of a file, in the form of `from_bytes`.
            #[classmethod]
            #[pyo3(signature = (path, format = "chainsieve"))]
            fn load(cls: &Bound<'_, PyType>, path: PathBuf, format: &str) -> PyResult<Self> {
                let bytes = cls.py().detach(|| fs::read(path))?;
                Self::decoded(&bytes, format)
            }

            /// Add one key.
            fn add(&mut self, key: &Bound<'_, PyAny>) -> PyResult<()> {
                one_key(key, |key| self.0.insert(key))?.map(drop).map_err(invalid)
            }

            /// Add many keys: a list, an array of numpy or an Arrow array (see the module).
            ///
            /// The interpreter is not held meanwhile.
            fn update(&mut self, keys: &Bound<'_, PyAny>) -> PyResult<()> {
                let read = Keys::of(keys)?;
                update(keys.py(), &mut self.0, &read)
            }

            /// Remove all keys.
            fn clear(&mut self) {
                self.0.clear();
            }

            /// Return a filter of the same keys.
            fn copy(&self) -> Self {
                Self(self.0.clone())
            }

            /// The number of distinct keys, estimated from the bits that are set.
            #[getter]
            fn approx_items(&self) -> f64 {
                self.0.estimated_len().unwrap_or(f64::INFINITY)
            }

            /// Return a filter of the keys of both, which must have equal shapes and hashes.
            fn __or__(&self, other: &Self) -> PyResult<Self> {
                let mut union = self.copy();
                union.0.merge(&other.0).map_err(invalid)?;
                Ok(union)
            }

            fn __ior__(slf: &Bound<'_, Self>, other: &Bound<'_, Self>) -> PyResult<()> {
                // The union of a filter with itself is the filter.
                if !slf.is(other) {
                    slf.try_borrow_mut()?.0.merge(&other.try_borrow()?.0).map_err(invalid)?;
                }
                Ok(())
            }

            $($more)*
        } }
    };
}

/// Returns the hasher of a name and a seed, whose default is 0.
fn seeded(py: Python<'_>, name: &str, seed: Option<&Bound<'_, PyAny>>) -> PyResult<KeyHasher> {
    match seed {
        Some(seed) => hasher(name, seed),
        None => hasher(name, 0_u8.into_pyobject(py)?.as_any()),
    }
}

growing_class! { SplitBlock(SplitBlockFilter256), "xxh64", {
    /// The number of blocks of 256 bits.
    #[getter]
    fn num_blocks(&self) -> u64 {
        self.0.num_blocks()
    }
} }

growing_class! { Bloom(BloomFilter), "xxh3", {
    /// The number of hash functions.
    #[getter]
    fn hash_funcs(&self) -> u32 {
        self.0.hash_funcs()
    }
} }

/// A binary fuse filter with fingerprints of 8 bits: about 9 bits a key, and a rate of 0.39 %.
///
/// `Fuse8(keys)` is the filter of a set that never changes. Formats: "chainsieve";
/// "xor_singleheader", of the C library of this name and its bindings. That format does not store
/// the hash function, so reading it needs `hash` and `seed`: the Python package pyfusefilter hashes
/// text by `hash="xxh64"` with seed 0.
///
/// >>> from chainsieve.filter import Fuse8
/// >>> blocked = Fuse8(["10.0.0.1", "10.0.0.2"])
/// >>> "10.0.0.1" in blocked, len(blocked)
/// (True, 2)
/// >>> Fuse8.from_bytes(blocked.to_bytes()) == blocked
/// True
#[pyclass(module = "chainsieve.filter", frozen)]
pub(crate) struct Fuse8(BinaryFuse8);

/// A binary fuse filter with fingerprints of 16 bits: about 18 bits a key, and a rate of 0.0015 %.
///
/// In all other respects, this is a `Fuse8`.
///
/// >>> from chainsieve.filter import Fuse16
/// >>> even = Fuse16(range(0, 1000, 2))
/// >>> 998 in even, sum(map(bool, even.contains(range(1, 1000, 2)))) < 3
/// (True, True)
#[pyclass(module = "chainsieve.filter", frozen)]
pub(crate) struct Fuse16(BinaryFuse16);

fn build<F: FuseFingerprint>(
    py: Python<'_>,
    keys: &Bound<'_, PyAny>,
    hasher: KeyHasher,
) -> PyResult<BinaryFuse<F>> {
    let keys = Keys::of(keys)?;
    py.detach(|| {
        let mut all = Vec::with_capacity(keys.len());
        keys.for_each(|key| all.push(hasher.hash::<u64>(key)));
        BinaryFuse::build(&all, hasher)
    })
    .map_err(invalid)
}

fn encoded_fuse<F: FuseFingerprint>(filter: &BinaryFuse<F>, format: &str) -> PyResult<Vec<u8>> {
    match format {
        "chainsieve" => filter.encode().map_err(invalid),
        "xor_singleheader" => xor_singleheader::encode(filter).map_err(invalid),
        _ => Err(unknown_format(format, "chainsieve, xor_singleheader")),
    }
}

fn decoded_fuse<F: FuseFingerprint>(
    py: Python<'_>,
    bytes: &[u8],
    format: &str,
    hash: Option<&str>,
    seed: Option<&Bound<'_, PyAny>>,
) -> PyResult<BinaryFuse<F>> {
    match (format, hash) {
        ("chainsieve", None) => BinaryFuse::decode(bytes).map_err(invalid),
        ("chainsieve", Some(_)) => {
            Err(PyTypeError::new_err("the format chainsieve has the hash function: leave out hash"))
        }
        ("xor_singleheader", Some(hash)) => {
            xor_singleheader::decode(bytes, seeded(py, hash, seed)?).map_err(invalid)
        }
        ("xor_singleheader", None) => Err(PyTypeError::new_err(
            "the format xor_singleheader does not name the hash function: pass hash and seed",
        )),
        _ => Err(unknown_format(format, "chainsieve, xor_singleheader")),
    }
}

/// The methods of filters of a set that never changes.
macro_rules! static_class {
    ($class:ident($filter:ty)) => {
        impl $class {
            fn encoded(&self, format: &str) -> PyResult<Vec<u8>> {
                encoded_fuse(&self.0, format)
            }
        }

        filter_class! { $class($filter) {
            #[new]
            #[pyo3(signature = (keys, *, hash = "xxh3", seed = None))]
            fn new(keys: &Bound<'_, PyAny>, hash: &str, seed: Option<&Bound<'_, PyAny>>) -> PyResult<Self> {
                build(keys.py(), keys, seeded(keys.py(), hash, seed)?).map(Self)
            }

            /// Return the filter that `to_bytes` has written, or another program.
            #[classmethod]
            #[pyo3(signature = (data, format = "chainsieve", *, hash = None, seed = None))]
            fn from_bytes(
                cls: &Bound<'_, PyType>,
                data: PyBackedBytes,
                format: &str,
                hash: Option<&str>,
                seed: Option<&Bound<'_, PyAny>>,
            ) -> PyResult<Self> {
                decoded_fuse(cls.py(), &data, format, hash, seed).map(Self)
            }

            /// Return the filter of a file, in the form of `from_bytes`.
            #[classmethod]
            #[pyo3(signature = (path, format = "chainsieve", *, hash = None, seed = None))]
            fn load(
                cls: &Bound<'_, PyType>,
                path: PathBuf,
                format: &str,
                hash: Option<&str>,
                seed: Option<&Bound<'_, PyAny>>,
            ) -> PyResult<Self> {
                let bytes = cls.py().detach(|| fs::read(path))?;
                decoded_fuse(cls.py(), &bytes, format, hash, seed).map(Self)
            }

            /// The number of shards, which are built independently. Others read only 1 shard.
            #[getter]
            fn num_shards(&self) -> usize {
                self.0.num_shards()
            }
        } }
    };
}

static_class! { Fuse8(BinaryFuse8) }
static_class! { Fuse16(BinaryFuse16) }
