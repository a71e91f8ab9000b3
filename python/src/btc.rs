//! `chainsieve.btc`: the filters of BIP37 and BIP158.

use std::str::FromStr;

use chainsieve::bitcoin::bip158::FilterHeader;
use chainsieve::bitcoin::consensus::encode::{deserialize, serialize};
use chainsieve::bitcoin::hashes::Hash as _;
use chainsieve::bitcoin::{BlockHash, Network, OutPoint, ScriptBuf, Transaction, Txid};
use chainsieve::btc::bip37::{self, BlockElements, Elements, Policy, Proof, UpdateMode};
use chainsieve::btc::bip158::{self, Acceptance, Matcher, PreparedScripts};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyString, PyType};

use crate::answers::truth_values;
use crate::errors::{InvalidInput, invalid};
use crate::keys::Keys;

/// Reads a hash: text as explorers print it, or 32 bytes in the order of the wire.
fn hash<H>(object: &Bound<'_, PyAny>, of_wire: impl FnOnce([u8; 32]) -> H) -> PyResult<H>
where
    H: FromStr,
    H::Err: std::fmt::Display,
{
    if let Ok(text) = object.cast::<PyString>() {
        return text.to_str()?.parse().map_err(invalid);
    }
    let Ok(bytes) = object.cast::<PyBytes>() else {
        let name = object.get_type().name()?;
        return Err(PyTypeError::new_err(format!("a hash is text or 32 bytes, not {name}")));
    };
    let wrong =
        |_| InvalidInput::new_err(format!("a hash of {} bytes, not 32", bytes.as_bytes().len()));
    bytes.as_bytes().try_into().map(of_wire).map_err(wrong)
}

fn network(name: &str) -> PyResult<Network> {
    name.parse().map_err(|_| InvalidInput::new_err(format!("network {name:?} is unknown")))
}

/// Reads scripts, which are bytes and never text: hex would be taken for a script.
fn scripts(object: &Bound<'_, PyAny>) -> PyResult<PreparedScripts> {
    let keys = Keys::of(object)?;
    keys.refuse_text()?;
    if u32::try_from(keys.len()).is_err() {
        return Err(PyValueError::new_err("more than 2**32 - 1 scripts"));
    }
    let mut scripts = PreparedScripts::new();
    keys.for_each(|script| {
        scripts.push(script);
    });
    Ok(scripts)
}

/// A Bloom filter that a wallet loads on a node (BIP37), bit for bit as Bitcoin Core's.
///
/// `BloomFilter(elements, fpr, tweak, update="none")` has the size that Core computes. `update` says
/// what a match inserts: "none", "all" (the outpoint of each matching output) or "p2pubkey_only".
/// A filter that cannot be right (no elements, a rate outside of 0 to 1) raises `InvalidInput`.
///
/// >>> from chainsieve.btc import BloomFilter
/// >>> filter = BloomFilter(3, 0.01, 0, "all")
/// >>> filter.insert(bytes.fromhex("99108ad8ed9bb6274d3980bab5a85c048f0950c8"))
/// >>> bytes.fromhex("99108ad8ed9bb6274d3980bab5a85c048f0950c8") in filter
/// True
/// >>> filter.insert(bytes.fromhex("b5a2c786d9ef4658287ced5914b37a1b4aa32eee"))
/// >>> filter.insert(bytes.fromhex("b9300670b4c5366e95b2699e8b18bc75e5f729c5"))
/// >>> filter.to_bytes().hex()
/// '03614e9b050000000000000001'
#[pyclass(module = "chainsieve.btc")]
pub(crate) struct BloomFilter(bip37::BloomFilter);

#[pymethods]
impl BloomFilter {
    #[new]
    #[pyo3(signature = (elements, fpr, tweak, update = "none"))]
    fn new(elements: u32, fpr: f64, tweak: u32, update: &str) -> PyResult<Self> {
        let update: UpdateMode = update.parse().map_err(invalid)?;
        bip37::BloomFilter::new(elements, fpr, tweak, update).map(Self).map_err(invalid)
    }

    /// Read the payload of a `filterload` message, within the limits of Core.
    #[classmethod]
    fn from_bytes(_cls: &Bound<'_, PyType>, data: PyBackedBytes) -> PyResult<Self> {
        bip37::BloomFilter::decode(&data).map(Self).map_err(invalid)
    }

    /// Return the payload of a `filterload` message.
    fn to_bytes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.encode())
    }

    /// Insert an element: a script's data, a key, a key hash, a serialised outpoint.
    fn insert(&mut self, element: PyBackedBytes) {
        self.0.insert(&element);
    }

    /// Insert an outpoint. `txid` is text as explorers print it, or 32 bytes in wire order.
    fn insert_outpoint(&mut self, txid: &Bound<'_, PyAny>, vout: u32) -> PyResult<()> {
        let txid = hash(txid, Txid::from_byte_array)?;
        self.0.insert_outpoint(&OutPoint { txid, vout });
        Ok(())
    }

    /// Return whether the filter may contain an outpoint. False is certain.
    fn contains_outpoint(&self, txid: &Bound<'_, PyAny>, vout: u32) -> PyResult<bool> {
        let txid = hash(txid, Txid::from_byte_array)?;
        Ok(self.0.contains_outpoint(&OutPoint { txid, vout }))
    }

    /// Return an array of bool: for each element, whether the filter may contain it.
    ///
    /// `elements` is a list of bytes, or an array as in `chainsieve.filter`.
    fn contains<'py>(&self, elements: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = elements.py();
        let elements = Keys::of(elements)?;
        elements.refuse_text()?;
        let answers = py.detach(|| {
            let mut answers = Vec::with_capacity(elements.len());
            elements.for_each(|element| answers.push(self.0.contains(element)));
            answers
        });
        truth_values(py, &answers)
    }

    /// Return whether the filter may contain one element. False is certain.
    fn __contains__(&self, element: PyBackedBytes) -> bool {
        self.0.contains(&element)
    }

    /// Return whether a serialised transaction may be relevant.
    ///
    /// A match inserts outpoints into this filter, as `update` says, exactly as a node does.
    fn matches(&mut self, transaction: PyBackedBytes) -> PyResult<bool> {
        let elements = Elements::from_raw_transaction(&transaction).map_err(invalid)?;
        Ok(!self.0.match_elements(&elements).is_empty())
    }

    /// Return the transactions of a serialised block that may be relevant: index and txid.
    ///
    /// As in `matches`, outpoints are inserted, and later transactions are matched with them.
    fn matches_in_block(
        &mut self,
        py: Python<'_>,
        block: PyBackedBytes,
    ) -> PyResult<Vec<(u32, String)>> {
        let found = py.detach(|| {
            let block = BlockElements::from_raw(&block).map_err(|error| error.to_string())?;
            Ok::<_, String>(self.0.match_block(&block))
        });
        let found = found.map_err(invalid)?;
        Ok(found.iter().map(|found| (found.index, found.txid.to_string())).collect())
    }

    /// The size of the filter in bits.
    #[getter]
    fn num_bits(&self) -> u64 {
        self.0.num_bits()
    }

    /// The number of hash functions.
    #[getter]
    fn hash_funcs(&self) -> u32 {
        self.0.hash_funcs()
    }

    /// The number that makes the bits of two wallets differ.
    #[getter]
    fn tweak(&self) -> u32 {
        self.0.tweak()
    }

    /// What a match inserts: "none", "all" or "p2pubkey_only".
    #[getter]
    fn update(&self) -> String {
        self.0.update_mode().to_string()
    }

    /// The rate of false positives of the present contents.
    #[getter]
    fn expected_fpr(&self) -> f64 {
        self.0.false_positive_rate()
    }

    fn __eq__(&self, other: &Self) -> bool {
        self.0 == other.0
    }

    fn __repr__(&self) -> String {
        let (bits, functions) = (self.0.num_bits(), self.0.hash_funcs());
        format!("<BloomFilter of {bits} bits, {functions} hash functions>")
    }
}

/// The basic filter of a block (BIP158).
///
/// `BlockFilter(block_hash, content)` has the bytes of a `cfilter` message. The bytes are checked
/// when they are matched: malformed bytes raise `InvalidInput`, and never give a "no". A hash is
/// text as explorers print it, or 32 bytes in wire order.
///
/// >>> from chainsieve.btc import BlockFilter
/// >>> genesis = "000000000933ea01ad0ee984209779baaec3ced90fa3f408719526f8d77f4943"
/// >>> filter = BlockFilter(genesis, bytes.fromhex("019dfca8"))
/// >>> filter.filter_header("00" * 32)
/// '21584579b7eb08997773e5aeff3a7f932700042d0ed2a6129012b7d7ae81b750'
/// >>> filter.match_any([bytes.fromhex("76a914000000000000000000000000000000000000000088ac")])
/// False
#[pyclass(module = "chainsieve.btc", frozen)]
pub(crate) struct BlockFilter(bip158::BlockFilter);

#[pymethods]
impl BlockFilter {
    #[new]
    fn new(block_hash: &Bound<'_, PyAny>, content: PyBackedBytes) -> PyResult<Self> {
        let block_hash = hash(block_hash, BlockHash::from_byte_array)?;
        Ok(Self(bip158::BlockFilter { block_hash, content: content.to_vec() }))
    }

    /// Build the filter of a serialised block, byte for byte as Bitcoin Core does.
    ///
    /// `spent_scripts` has the script of each output that the block spends, in the order of the
    /// inputs, without the input of the coinbase.
    #[classmethod]
    fn build(
        cls: &Bound<'_, PyType>,
        block: PyBackedBytes,
        spent_scripts: &Bound<'_, PyAny>,
    ) -> PyResult<Self> {
        let keys = Keys::of(spent_scripts)?;
        keys.refuse_text()?;
        let built = cls.py().detach(|| {
            let mut scripts = Vec::with_capacity(keys.len());
            keys.for_each(|script| scripts.push(ScriptBuf::from_bytes(script.to_vec())));
            bip158::BlockFilter::from_raw_block(&block, &scripts)
        });
        built.map(Self).map_err(invalid)
    }

    /// The hash of the block, as explorers print it.
    #[getter]
    fn block_hash(&self) -> String {
        self.0.block_hash.to_string()
    }

    /// The encoded set, as in a `cfilter` message.
    #[getter]
    fn content<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.content)
    }

    /// The hash of the filter, as `cfheaders` messages have it.
    #[getter]
    fn filter_hash(&self) -> String {
        self.0.filter_hash().to_string()
    }

    /// Return the filter header that follows `previous`, which is all zeros before block 0.
    fn filter_header(&self, previous: &Bound<'_, PyAny>) -> PyResult<String> {
        let previous = hash(previous, FilterHeader::from_byte_array)?;
        Ok(self.0.filter_header(&previous).to_string())
    }

    /// Return whether the block may contain one of the scripts. False is certain, if the filter is
    /// right.
    fn match_any(&self, scripts: &Bound<'_, PyAny>) -> PyResult<bool> {
        let wanted = self::scripts(scripts)?;
        let gcs = self.0.gcs(Acceptance::Strict).map_err(invalid)?;
        scripts.py().detach(|| Matcher::new().match_any(&gcs, &wanted)).map_err(invalid)
    }

    /// Return the positions in `scripts` of those that the block may contain.
    fn matching(&self, scripts: &Bound<'_, PyAny>) -> PyResult<Vec<usize>> {
        let wanted = self::scripts(scripts)?;
        let gcs = self.0.gcs(Acceptance::Strict).map_err(invalid)?;
        scripts.py().detach(|| Matcher::new().matching(&gcs, &wanted)).map_err(invalid)
    }

    fn __eq__(&self, other: &Self) -> bool {
        self.0 == other.0
    }

    fn __repr__(&self) -> String {
        format!("<BlockFilter of block {}, {} bytes>", self.0.block_hash, self.0.content.len())
    }
}

/// Match many filters: return an array of bool, whether each block may contain one of the scripts.
///
/// `block_hashes` has 32 bytes in wire order for each block, and `filters` the bytes of its filter:
/// lists, or arrays as in `chainsieve.filter`. A malformed filter raises `InvalidInput` with its
/// position. The interpreter is not held meanwhile.
///
/// >>> from chainsieve.btc import match_any
/// >>> genesis = bytes.fromhex("000000000933ea01ad0ee984209779baaec3ced90fa3f408719526f8d77f4943")[::-1]
/// >>> list(map(bool, match_any([genesis], [bytes.fromhex("019dfca8")], [b"a script"])))
/// [False]
#[pyfunction]
pub(crate) fn match_any<'py>(
    block_hashes: &Bound<'py, PyAny>,
    filters: &Bound<'py, PyAny>,
    scripts: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = scripts.py();
    let wanted = self::scripts(scripts)?;
    let (hashes, filters) = (Keys::of(block_hashes)?, Keys::of(filters)?);
    hashes.refuse_text()?;
    filters.refuse_text()?;
    if hashes.len() != filters.len() {
        let (hashes, filters) = (hashes.len(), filters.len());
        return Err(InvalidInput::new_err(format!("{hashes} block hashes for {filters} filters")));
    }
    let answers = py.detach(|| {
        let mut blocks: Vec<Option<BlockHash>> = Vec::with_capacity(hashes.len());
        hashes.for_each(|hash| blocks.push(BlockHash::from_slice(hash).ok()));
        let (mut answers, mut matcher, mut first_error) =
            (Vec::with_capacity(blocks.len()), Matcher::new(), None);
        filters.for_each(|content| {
            let at = answers.len();
            let Some(Some(block_hash)) = blocks.get(at) else {
                answers.push(true);
                first_error.get_or_insert_with(|| format!("block hash {at} has not 32 bytes"));
                return;
            };
            let key = bip158::filter_key(block_hash);
            let gcs = bip158::GcsFilter::parse(
                bip158::GcsParams::BASIC,
                key,
                content,
                Acceptance::Strict,
            );
            answers.push(gcs.and_then(|gcs| matcher.match_any(&gcs, &wanted)).unwrap_or_else(
                |error| {
                    first_error.get_or_insert_with(|| format!("filter {at}: {error}"));
                    true
                },
            ));
        });
        first_error.map_or(Ok(answers), Err)
    });
    truth_values(py, &answers.map_err(invalid)?)
}

/// A merkle block (BIP37): a header, and the part of its merkle tree that leads to some
/// transactions.
///
/// `MerkleBlock.from_bytes(payload)` reads the payload of a `merkleblock` message. Only `verify`
/// says that a transaction is in the block. No merkle block proves that nothing was left out.
///
/// >>> from chainsieve.btc import MerkleBlock
/// >>> block = MerkleBlock.from_bytes(bytes.fromhex(
/// ...     "0100000055bd840a78798ad0da853f68974f3d183e2bd1db6a842c1feecf222a00000000ff104ccb05421ab9"
/// ...     "3e63f8c3ce5c2c2e9dbb37de2764b3a3175c8166562cac7d51b96a49ffff001d283e9e70020000000282501c"
/// ...     "1178fa0b222c1f3d474ec726b832013f0a532b44bb620cce8624a5feb1169e1e83e930853391bc6f35f605c6"
/// ...     "754cfead57cf8387639d3b4096c54f18f40107"))
/// >>> block.verify()[1]
/// (1, 'f4184fc596403b9d638783cf57adfe4c75c605f6356fbc91338530e9831e9e16')
#[pyclass(module = "chainsieve.btc", frozen)]
pub(crate) struct MerkleBlock(bip37::MerkleBlock);

#[pymethods]
impl MerkleBlock {
    /// Read the payload of a `merkleblock` message. Nothing is verified yet.
    #[classmethod]
    fn from_bytes(_cls: &Bound<'_, PyType>, data: PyBackedBytes) -> PyResult<Self> {
        bip37::MerkleBlock::decode(&data).map(Self).map_err(invalid)
    }

    /// Return the payload of a `merkleblock` message.
    fn to_bytes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.0.encode())
    }

    /// Verify the tree and the proof of work; return the index and the txid of each transaction.
    ///
    /// `transactions` are the serialised transactions that came with the block. Among them, the
    /// coinbase proves the depth of the tree. With `network=None`, the checks are only those of
    /// Bitcoin Core's tree, for callers who know the header from their own chain.
    #[pyo3(signature = (network = Some("bitcoin"), transactions = Vec::new()))]
    fn verify(
        &self,
        network: Option<&str>,
        transactions: Vec<PyBackedBytes>,
    ) -> PyResult<Vec<(u32, String)>> {
        let policy = match network {
            Some(name) => Policy::Strict(self::network(name)?),
            None => Policy::Core,
        };
        let delivered: Result<Vec<Transaction>, _> =
            transactions.iter().map(|bytes| deserialize(bytes)).collect();
        let delivered = delivered.map_err(invalid)?;
        let proof = Proof::verify(&self.0, policy, &delivered).map_err(invalid)?;
        Ok(proof.inclusions.iter().map(|leaf| (leaf.index, leaf.txid.to_string())).collect())
    }

    /// The hash of the header, as explorers print it.
    #[getter]
    fn block_hash(&self) -> String {
        self.0.header.block_hash().to_string()
    }

    /// The 80 bytes of the header.
    #[getter]
    fn header<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &serialize(&self.0.header))
    }

    /// The number of transactions in the block, as the sender claims.
    #[getter]
    fn num_transactions(&self) -> u32 {
        self.0.num_transactions
    }

    fn __eq__(&self, other: &Self) -> bool {
        self.0 == other.0
    }

    fn __repr__(&self) -> String {
        format!("<MerkleBlock {}, {} hashes>", self.0.header.block_hash(), self.0.hashes.len())
    }
}
