//! `chainsieve.eth`: queries for logs, scans of filters, and proven logs from nodes.

use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

use chainsieve::alloy_primitives::B256;
use chainsieve::eth::audit::AuditQuestion;
use chainsieve::eth::bloom::{BYTES, BloomView};
use chainsieve::eth::certificate::Certificate;
use chainsieve::eth::chain_profile::ChainProfile;
use chainsieve::eth::follow::{Cursor, News};
use chainsieve::eth::header::BlockRef;
use chainsieve::eth::log::LocatedLog;
use chainsieve::eth::log_query::{
    self, BlockSelection, BlockTag, CompiledQuery, ResolvedBlocks, Semantics,
};
use chainsieve::eth::scan;
use chainsieve_provider::{self as provider, LogUpdate, LogUpdates, LogsError, Stop, Trust};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString};

use crate::answers::truth_values;
use crate::errors::{IncompleteError, InvalidInput, ProviderError, invalid};
use crate::keys::Keys;

/// How often a wait looks for signals, such as Ctrl-C.
const SIGNALS: Duration = Duration::from_millis(50);

/// Returns the JSON of a dictionary of web3.py: numbers and bytes become hex.
fn json_of(object: &Bound<'_, PyAny>) -> PyResult<String> {
    if let Ok(text) = object.cast::<PyString>() {
        return Ok(text.to_str()?.to_owned());
    }
    let convert = object.py().import("chainsieve._json")?.getattr("to_json")?;
    convert.call1((object,))?.extract()
}

/// Returns the Python value of a report, through its JSON.
fn value_of<'py>(py: Python<'py>, report: &impl serde::Serialize) -> PyResult<Bound<'py, PyAny>> {
    let text = serde_json::to_string(report).map_err(invalid)?;
    py.import("json")?.getattr("loads")?.call1((text,))
}

/// Reads a query: a `LogQuery`, a dictionary, or JSON.
fn query_of(object: &Bound<'_, PyAny>) -> PyResult<log_query::LogQuery> {
    if let Ok(query) = object.cast::<LogQuery>() {
        return Ok(query.get().query.clone());
    }
    log_query::LogQuery::from_json(&json_of(object)?, Semantics::Geth).map_err(invalid)
}

/// Reads block hashes: one or several, as hex or as 32 bytes.
fn hashes(object: &Bound<'_, PyAny>) -> PyResult<Vec<B256>> {
    let one = |object: &Bound<'_, PyAny>| {
        if let Ok(text) = object.cast::<PyString>() {
            return text.to_str()?.parse().map_err(|error| {
                InvalidInput::new_err(format!("a block hash is 32 bytes in hex: {error}"))
            });
        }
        let bytes = object
            .cast::<PyBytes>()
            .map_err(|_| PyTypeError::new_err("a block hash is hex or 32 bytes"))?;
        B256::try_from(bytes.as_bytes())
            .map_err(|_| InvalidInput::new_err("a block hash has 32 bytes"))
    };
    if object.is_instance_of::<PyString>() || object.is_instance_of::<PyBytes>() {
        return Ok(vec![one(object)?]);
    }
    object.try_iter()?.map(|object| one(&object?)).collect()
}

/// Returns a log as web3.py has it: numbers as `int`, hashes and data as `bytes`.
fn log_of<'py>(py: Python<'py>, log: &LocatedLog) -> PyResult<Bound<'py, PyDict>> {
    let bytes = |bytes: &[u8]| PyBytes::new(py, bytes);
    let dictionary = PyDict::new(py);
    dictionary.set_item("address", log.log.address.to_checksum(None))?;
    let topics: Vec<_> = log.log.topics().iter().map(|topic| bytes(topic.as_slice())).collect();
    dictionary.set_item("topics", topics)?;
    dictionary.set_item("data", bytes(&log.log.data.data))?;
    dictionary.set_item("blockNumber", log.block_number)?;
    dictionary.set_item("blockHash", bytes(log.block_hash.as_slice()))?;
    dictionary
        .set_item("transactionHash", log.transaction_hash.map(|hash| bytes(hash.as_slice())))?;
    dictionary.set_item("transactionIndex", log.transaction_index)?;
    dictionary.set_item("logIndex", log.log_index)?;
    dictionary.set_item("removed", log.removed)?;
    if let Some(timestamp) = log.block_timestamp {
        dictionary.set_item("blockTimestamp", timestamp)?;
    }
    Ok(dictionary)
}

fn logs_of<'py>(py: Python<'py>, logs: &[LocatedLog]) -> PyResult<Bound<'py, PyList>> {
    let logs: PyResult<Vec<_>> = logs.iter().map(|log| log_of(py, log)).collect();
    PyList::new(py, logs?)
}

/// Reads the logs of an answer: a list of dictionaries, or JSON.
fn answer_of(object: &Bound<'_, PyAny>) -> PyResult<Vec<LocatedLog>> {
    LocatedLog::list_from_json(&json_of(object)?).map_err(invalid)
}

fn block_of(py: Python<'_>, block: BlockRef) -> (u64, Bound<'_, PyBytes>) {
    (block.number, PyBytes::new(py, block.hash.as_slice()))
}

/// A query for logs: the filter that `eth_getLogs` takes, by the rules of go-ethereum.
///
/// `LogQuery(filter)` takes web3.py's dictionary or its JSON. Block numbers may be `int`; addresses
/// and topics may be hex or bytes.
///
/// >>> from chainsieve.eth import LogQuery
/// >>> weth = "0xc02aaa39b223fe8d0a0e5c4f27ead9083c756cc2"
/// >>> query = LogQuery({"address": weth, "fromBlock": 17686111, "toBlock": 17686112})
/// >>> query.to_json()
/// '{"fromBlock":"0x10dde5f","toBlock":"0x10dde60","address":["0xc02aaa39b223fe8d0a0e5c4f27ead9083c756cc2"]}'
/// >>> list(map(bool, query.scan([bytes(256), b"\xff" * 256])))
/// [False, True]
#[pyclass(module = "chainsieve.eth", frozen)]
pub(crate) struct LogQuery {
    query: log_query::LogQuery,
    compiled: CompiledQuery,
}

#[pymethods]
impl LogQuery {
    #[new]
    fn new(filter: &Bound<'_, PyAny>) -> PyResult<Self> {
        let query = query_of(filter)?;
        let compiled = query.compile();
        Ok(Self { query, compiled })
    }

    /// Return the query in its canonical form.
    fn to_json(&self) -> String {
        self.query.to_json()
    }

    /// Return whether a log, as in an answer of `eth_getLogs`, has an address and topics that match.
    fn matches(&self, log: &Bound<'_, PyAny>) -> PyResult<bool> {
        let log = LocatedLog::from_json(&json_of(log)?).map_err(invalid)?;
        Ok(self.query.matches(&log.log, Semantics::Geth))
    }

    /// Test many blocks: return an array of bool, whether each block may have a matching log.
    ///
    /// `blooms` has the `logsBloom` of each block, 256 bytes: `uint8[n, 256]` of numpy, a column of
    /// Arrow, a list of bytes. A filter of another length, or with all bits set, has no information,
    /// and gives True. False is a proof if the header is authentic and the chain's filters have all
    /// bits, as on Ethereum. The interpreter is not held meanwhile.
    fn scan<'py>(&self, blooms: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        scan_blooms(&self.compiled, blooms)
    }

    fn __eq__(&self, other: &Self) -> bool {
        self.query == other.query
    }

    fn __repr__(&self) -> String {
        format!("LogQuery({})", self.query.to_json())
    }
}

fn scan_blooms<'py>(
    query: &CompiledQuery,
    blooms: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = blooms.py();
    let blooms = Keys::of(blooms)?;
    blooms.refuse_text()?;
    let answers = py.detach(|| {
        if let Some(runs) = blooms.contiguous(BYTES) {
            let mut answers = vec![false; blooms.len()];
            let mut start = 0;
            for run in runs {
                let (filters, _) = run.as_chunks::<BYTES>();
                for candidate in scan::par_candidates(query, filters) {
                    if let Some(answer) = answers.get_mut(start + candidate) {
                        *answer = true;
                    }
                }
                start += filters.len();
            }
            answers
        } else {
            let mut answers = Vec::with_capacity(blooms.len());
            blooms.for_each(|bloom| {
                answers.push(query.answer(BloomView::from_wire(bloom)).is_candidate());
            });
            answers
        }
    });
    truth_values(py, &answers)
}

/// Test many blocks: `LogQuery(filter).scan(blooms)`.
#[pyfunction]
#[pyo3(name = "scan")]
pub(crate) fn scan_function<'py>(
    filter: &Bound<'py, PyAny>,
    blooms: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    scan_blooms(&query_of(filter)?.compile(), blooms)
}

/// Verify a certificate: the claim of anybody that a query has a certain result.
///
/// The query and the anchors, hashes of blocks that you trust, are yours, and never come from the
/// certificate. `chain` names the chain, such as "ethereum". `logs` is the result, if the
/// certificate has no receipts. Returns a dictionary: `complete` (whether the result is proven),
/// `logs` (None if they are unknown), `unverified` (the numbers of blocks that are not proven, each
/// with the reason). A contradiction raises `InvalidInput`.
#[pyfunction]
#[pyo3(signature = (certificate, filter, anchor, *, chain = "ethereum", logs = None))]
pub(crate) fn verify_certificate<'py>(
    py: Python<'py>,
    certificate: &str,
    filter: &Bound<'py, PyAny>,
    anchor: &Bound<'py, PyAny>,
    chain: &str,
    logs: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    let query = query_of(filter)?;
    let anchors = hashes(anchor)?;
    let known = || InvalidInput::new_err(format!("chain {chain:?} is unknown"));
    let profile = ChainProfile::by_name(chain).ok_or_else(known)?;
    let result = logs.map(answer_of).transpose()?;
    let verified = py.detach(|| {
        let certificate = Certificate::from_json(certificate).map_err(|error| error.to_string())?;
        let chain = certificate.chain().map_err(|error| error.to_string())?;
        let blocks = numbered(&query)?;
        let semantics = Semantics::Geth;
        let question = AuditQuestion {
            chain: &chain,
            anchors: &anchors,
            query: &query,
            blocks,
            semantics,
            profile: &profile,
        };
        let verified = certificate.verify(question, |_, _| None, result.as_deref());
        verified.map_err(|error| error.to_string())
    });
    let verified = verified.map_err(invalid)?;
    let dictionary = PyDict::new(py);
    dictionary.set_item("complete", verified.is_complete())?;
    let logs = verified.logs.as_ref().map(|logs| logs_of(py, logs)).transpose()?;
    dictionary.set_item("logs", logs)?;
    let unverified: Vec<_> =
        verified.unverified().map(|(block, why)| (block, why.to_string())).collect();
    dictionary.set_item("unverified", unverified)?;
    Ok(dictionary)
}

/// Returns the blocks of a query that names them itself: a tag such as `latest` has no meaning without
/// a node.
fn numbered(query: &log_query::LogQuery) -> Result<ResolvedBlocks, String> {
    match *query.blocks() {
        BlockSelection::AtHash(hash) => Ok(ResolvedBlocks::AtHash(hash)),
        BlockSelection::Range {
            from: Some(BlockTag::Number(first)),
            to: Some(BlockTag::Number(last)),
        } => Ok(ResolvedBlocks::Range { first, last }),
        BlockSelection::Range { .. } => {
            Err("the query must name its blocks by numbers or by a hash".to_owned())
        }
    }
}

/// Runs `work` in a thread of its own, without holding the interpreter, until it is done or a signal
/// such as Ctrl-C raises an exception here. Then `stop` ends the work.
fn wait<T: Send + 'static>(
    py: Python<'_>,
    stop: &Stop,
    work: impl FnOnce() -> T + Send + 'static,
) -> PyResult<T> {
    let (sender, mut results) = channel();
    let thread = std::thread::Builder::new().name("chainsieve-call".into());
    let started = thread.spawn(move || {
        // Nobody waits any more after a signal.
        drop(sender.send(work()));
    });
    started.map_err(|error| ProviderError::new_err(format!("cannot start a thread: {error}")))?;
    loop {
        let result;
        (result, results) = py.detach(move || (results.recv_timeout(SIGNALS), results));
        match result {
            Ok(result) => return Ok(result),
            Err(RecvTimeoutError::Timeout) => py.check_signals().inspect_err(|_| stop.set())?,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(ProviderError::new_err("the operation has ended without a result"));
            }
        }
    }
}

fn failed(error: impl std::fmt::Display) -> PyErr {
    ProviderError::new_err(error.to_string())
}

/// Ethereum nodes that are not trusted, and what can be proven about their answers.
///
/// `Provider(url, anchor=hash)` asks one node, or a list of nodes in turn. `anchor` is the hash of a
/// block that you trust, or several; blocks up to it are then authentic. Without an anchor,
/// `trust_head=True` must say that the nodes are trusted to name the last block of the chain: logs
/// are then complete for the chain that the nodes show. `headers` go with each request, such as
/// "Authorization: Bearer KEY". Exceptions show of a URL only scheme, host and port.
///
/// Calls wait without holding the interpreter, and Ctrl-C ends them.
///
/// >>> from chainsieve.eth import Provider
/// >>> Provider("https://mainnet.example/v3/secret", trust_head=True)
/// <Provider of https://mainnet.example>
#[pyclass(module = "chainsieve.eth", frozen)]
pub(crate) struct Provider(provider::Provider);

#[pymethods]
impl Provider {
    #[new]
    #[pyo3(signature = (url, *, anchor = None, trust_head = false, headers = Vec::new(), timeout = 30.0,
        retries = 5, max_headers = None, max_receipts = None))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments")]
    fn new(
        url: &Bound<'_, PyAny>,
        anchor: Option<&Bound<'_, PyAny>>,
        trust_head: bool,
        headers: Vec<String>,
        timeout: f64,
        retries: u32,
        max_headers: Option<u64>,
        max_receipts: Option<u64>,
    ) -> PyResult<Self> {
        let urls: Vec<String> = match url.cast::<PyString>() {
            Ok(url) => vec![url.to_str()?.to_owned()],
            Err(_) => url.extract()?,
        };
        let timeout = Duration::try_from_secs_f64(timeout).map_err(invalid)?;
        let mut builder = provider::Provider::builder().timeout(timeout).retries(retries);
        for url in &urls {
            builder = builder.url(url);
            for header in &headers {
                builder = builder.header(header);
            }
        }
        if let Some(anchor) = anchor {
            let anchors = hashes(anchor)?;
            if anchors.is_empty() {
                return Err(InvalidInput::new_err("the list of anchors is empty"));
            }
            builder = builder.anchor(anchors);
        }
        if trust_head {
            builder = builder.trust_head();
        }
        if let Some(limit) = max_headers {
            builder = builder.max_headers(limit);
        }
        if let Some(limit) = max_receipts {
            builder = builder.max_receipts(limit);
        }
        builder.build().map(Self).map_err(invalid)
    }

    /// Return all logs of a query, with proof that none is missing, or raise an exception.
    ///
    /// `filter` is web3.py's dictionary, JSON, or a `LogQuery`. The result is a list of
    /// dictionaries as `web3.eth.get_logs` returns them, with `bytes` for hashes and data. Its
    /// attributes say what the proof depends on. `transactionHash` is None if no node proves it.
    ///
    /// Raises `IncompleteError` if some blocks are not proven: it has the logs of the others.
    fn logs<'py>(&self, filter: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = filter.py();
        let query = query_of(filter)?;
        let (stop, provider) = self.child();
        let proven = match wait(py, &stop, move || provider.logs(&query))? {
            Ok(proven) => proven,
            Err(LogsError::Incomplete(incomplete)) => {
                let missing: Vec<_> = incomplete
                    .missing
                    .iter()
                    .map(|(block, why)| (*block, why.to_string()))
                    .collect();
                let logs = logs_of(py, &incomplete.proven.logs)?.unbind();
                return Err(IncompleteError::new_err((incomplete.to_string(), logs, missing)));
            }
            Err(error) => return Err(failed(error)),
        };
        let fields = PyDict::new(py);
        fields.set_item("blocks", (*proven.blocks.start(), *proven.blocks.end()))?;
        fields.set_item("tip", block_of(py, proven.tip.block))?;
        fields.set_item("anchored", proven.tip.trust == Trust::Anchored)?;
        fields.set_item("verified", proven.verified)?;
        let warnings: Vec<_> = proven.warnings.iter().map(ToString::to_string).collect();
        fields.set_item("warnings", warnings)?;
        let class = py.import("chainsieve._proven")?.getattr("ProvenLogs")?;
        class.call((logs_of(py, &proven.logs)?,), Some(&fields))
    }

    /// Check answers to `eth_getLogs`: return a report for each node, or for `logs`.
    ///
    /// Without `logs`, each node is asked. `logs` is an answer from elsewhere: a list of
    /// dictionaries, or JSON. A report is a dictionary: `status` ("complete", "undecided" or
    /// "wrong"), `findings` (what is left out, made up or changed, with evidence), `blocks`,
    /// `examined`, and others: those of the command `chainsieve eth audit --json`, and `node`.
    #[pyo3(signature = (filter, logs = None))]
    fn audit<'py>(
        &self,
        filter: &Bound<'py, PyAny>,
        logs: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyList>> {
        let py = filter.py();
        let query = query_of(filter)?;
        let answer = logs.map(answer_of).transpose()?;
        let (stop, provider) = self.child();
        let is_given = answer.is_some();
        let result = wait(py, &stop, move || match answer {
            Some(logs) => provider.audit_answer(&query, &logs),
            None => provider.audit(&query),
        })?;
        let result = result.map_err(failed)?;
        let reports = PyList::empty(py);
        for (at, report) in result.reports.iter().enumerate() {
            let value = value_of(py, report)?;
            let node = self.0.nodes().get(at).filter(|_| !is_given);
            value.set_item("node", node.map(|node| node.endpoint().to_string()))?;
            reports.append(value)?;
        }
        Ok(reports)
    }

    /// Follow a query's logs, past and new: return an iterator of `Update`.
    ///
    /// It begins at the query's first block, or after the last acknowledged update of `cursor` (the
    /// `cursor` of an update) or `cursor_file` (a path). Asking for the next update acknowledges the
    /// one before. With `once`, the iterator ends at the head; otherwise it waits for new blocks, or
    /// ends at the query's last block.
    ///
    /// Logs of blocks that leave the chain come again, with `removed` set. The file is written
    /// before an update is delivered, so each log is delivered at least once, even after a kill.
    #[pyo3(signature = (filter, *, cursor = None, cursor_file = None, once = false, confirmations = 0,
        poll = 2.0))]
    #[expect(clippy::too_many_arguments, reason = "keyword arguments")]
    fn follow(
        &self,
        py: Python<'_>,
        filter: &Bound<'_, PyAny>,
        cursor: Option<&str>,
        cursor_file: Option<PathBuf>,
        once: bool,
        confirmations: u64,
        poll: f64,
    ) -> PyResult<Following> {
        let query = query_of(filter)?;
        let poll = Duration::try_from_secs_f64(poll).map_err(invalid)?;
        let cursor = cursor.map(Cursor::from_json).transpose().map_err(invalid)?;
        let (stop, provider) = self.child();
        let started = wait(py, &stop, move || {
            let mut builder = provider.follow(&query).confirmations(confirmations).poll(poll);
            if let Some(cursor) = cursor {
                builder = builder.cursor(cursor);
            }
            if let Some(file) = cursor_file {
                builder = builder.cursor_file(file);
            }
            if once {
                builder = builder.once();
            }
            builder.start()
        })?;
        let following = started.map_err(failed)?;
        let updates = following.updates();
        Ok(Following { running: Some(Running { following, updates, stop }), delivered: None })
    }

    fn __repr__(&self) -> String {
        let nodes: Vec<_> = self.0.nodes().iter().map(|node| node.endpoint().to_string()).collect();
        format!("<Provider of {}>", nodes.join(", "))
    }
}

impl Provider {
    /// Returns a provider for one call, and the handle that stops the call alone.
    fn child(&self) -> (Stop, provider::Provider) {
        let stop = self.0.stop().child();
        (stop.clone(), self.0.with_stop(stop))
    }
}

struct Running {
    following: provider::Following,
    updates: LogUpdates,
    stop: Stop,
}

/// An iterator of the updates of `Provider.follow`.
///
/// Asking for the next update acknowledges the one before. A failure that no retry mends raises
/// `ProviderError`. `close()` stops the requests, and so does the end of a `with` block.
#[pyclass(module = "chainsieve.eth")]
pub(crate) struct Following {
    running: Option<Running>,
    delivered: Option<LogUpdate>,
}

#[pymethods]
impl Following {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&mut self, py: Python<'_>) -> PyResult<Option<Update>> {
        let Some(running) = &mut self.running else { return Ok(None) };
        if let Some(delivered) = self.delivered.take() {
            running.following.acknowledge(&delivered);
        }
        loop {
            let Running { following, updates, .. } = &mut *running;
            // A follower that has ended may still have delivered an update, so ask first.
            let (is_running, next) = py.detach(|| {
                let is_running = following.is_running();
                (is_running, updates.next_within(SIGNALS))
            });
            match next {
                Some(update) => {
                    let news = Update::new(py, &update)?;
                    self.delivered = Some(update);
                    return Ok(Some(news));
                }
                None if is_running => py.check_signals()?,
                None => return self.close(py).map(|()| None),
            }
        }
    }

    /// Acknowledge the last update: it will not be delivered again.
    ///
    /// The next update does that, too. Call this if the iteration ends here.
    fn acknowledge(&mut self) {
        if let (Some(running), Some(delivered)) = (&self.running, self.delivered.take()) {
            running.following.acknowledge(&delivered);
        }
    }

    /// Stop, and wait until the cursor is stored. Updates that were not acknowledged come again.
    fn close(&mut self, py: Python<'_>) -> PyResult<()> {
        let Some(Running { following, updates, stop }) = self.running.take() else { return Ok(()) };
        drop(updates);
        // A request in flight ends with its answer or its timeout.
        stop.set();
        wait(py, &stop, move || following.shutdown())?.map(drop).map_err(failed)
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_error))]
    fn __exit__(
        &mut self,
        py: Python<'_>,
        _error: &Bound<'_, pyo3::types::PyTuple>,
    ) -> PyResult<()> {
        self.close(py)
    }
}

/// Without a request in flight, dropping takes no time. With one, it would hold the interpreter.
impl Drop for Following {
    fn drop(&mut self) {
        if let Some(Running { following, stop, .. }) = self.running.take() {
            stop.set();
            std::thread::spawn(move || drop(following));
        }
    }
}

/// What a follower has found.
///
/// `kind` is "started" (once, at the start), "anchored" (blocks up to `block` are authentic),
/// "blocks" (the next blocks, with their logs) or "removed" (blocks left the chain; their logs come
/// again with `removed` set, the last first).
#[pyclass(module = "chainsieve.eth", frozen)]
pub(crate) struct Update {
    /// "started", "anchored", "blocks" or "removed".
    #[pyo3(get)]
    kind: &'static str,
    /// The logs, in the order of the chain, as dictionaries of web3.py.
    #[pyo3(get)]
    logs: Py<PyList>,
    /// The last block of the update, if there is one: its number and its hash.
    #[pyo3(get)]
    block: Option<(u64, Py<PyBytes>)>,
    /// The place after this update, for `follow(cursor=…)`; None if there is a file.
    #[pyo3(get)]
    cursor: Option<String>,
}

impl Update {
    fn new(py: Python<'_>, update: &LogUpdate) -> PyResult<Self> {
        let (kind, logs, block): (_, &[LocatedLog], _) = match &update.news {
            News::Anchored(block) => ("anchored", &[], Some(*block)),
            News::Removed(removed) => ("removed", &removed.logs, removed.ancestor),
            News::Blocks(blocks) => ("blocks", &blocks.logs, Some(blocks.last)),
            News::Started(started) => ("started", &[], started.resumed),
            _ => ("other", &[], None),
        };
        Ok(Self {
            kind,
            logs: logs_of(py, logs)?.unbind(),
            block: block
                .map(|block| (block.number, PyBytes::new(py, block.hash.as_slice()).unbind())),
            cursor: update.cursor.as_ref().map(Cursor::to_json),
        })
    }
}

#[pymethods]
impl Update {
    fn __repr__(&self, py: Python<'_>) -> String {
        let logs = self.logs.bind(py).len();
        let block =
            self.block.as_ref().map_or_else(String::new, |(number, _)| format!(" at {number}"));
        format!("<Update {}{block}, {logs} logs>", self.kind)
    }
}
