//! Requests headers from a node, and checks the hash of each. Requests transactions of blocks, which are
//! verified later.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering};

use chainsieve::alloy_primitives::{B256, Bytes};
use chainsieve::eth::files::MAX_HEADER;
use chainsieve::eth::header::{BlockRef, HeaderBuf};
use chainsieve::eth::log_query::BlockTag;
use chainsieve::eth::transactions::BlockTransactions;
use serde::Deserialize;
use serde_json::json;

use super::ask::in_order;
use super::calls::{Call, Caller};
use super::error::RpcError;
use super::{Node, Note, named};

/// The answer for each of several headers; `None` if the node does not have the block.
type Answers = Vec<Result<Option<HeaderBuf>, RpcError>>;

/// The method that is preferred for headers by number: its answer is the RLP that the block hash
/// commits to. The JSON of a block also lists the hashes of all its transactions, and the RLP of
/// the header must be rebuilt from the JSON. Many nodes do not serve this method.
const RAW: &str = "debug_getRawHeader";

impl Node {
    /// Requests the header with this number; returns `None` above the node's head.
    ///
    /// # Errors
    /// Returns an [`RpcError`] if the request fails, or if the answer has another number.
    pub fn header(&self, number: u64) -> Result<Option<HeaderBuf>, RpcError> {
        let mut headers = self.some_headers(&[number])?;
        headers.pop().unwrap_or(Ok(None))
    }

    /// Requests the header with this hash; returns `None` if the node does not have the block.
    ///
    /// # Errors
    /// Returns an [`RpcError`] if the request fails, or if the answer has another hash.
    pub fn header_by_hash(&self, hash: B256) -> Result<Option<HeaderBuf>, RpcError> {
        let read = |result: &str| from_json(result, "a block by its hash");
        let header = self.caller.call(&call(hash, false), read)?;
        header.map(|header| of_hash(header, hash)).transpose()
    }

    /// Requests the header of the block that a tag or number currently names; returns `None` if
    /// there is no such block. In this case, most nodes answer with `null`. geth answers with error
    /// −39001, "unknown block", if no block is finalised yet.
    ///
    /// # Errors
    /// Returns an [`RpcError`] if the request fails, or if the answer has another number.
    pub fn header_at(&self, tag: BlockTag) -> Result<Option<HeaderBuf>, RpcError> {
        let call = Call::new("eth_getBlockByNumber", &json!([tag.to_string(), false]));
        let header = self.caller.call(&call, |result| from_json(result, &named(tag)));
        let header = match header {
            // geth answers with error -39001, "unknown block", if no block is finalised yet.
            Err(RpcError::Node { code: -39001, .. }) => Ok(None),
            header => header,
        }?;
        match (header, tag) {
            (Some(header), BlockTag::Number(number)) => of_number(header, number).map(Some),
            (header, _) => Ok(header),
        }
    }

    /// Requests the headers of consecutive blocks, several requests in parallel, and passes them to
    /// `take` in order.
    ///
    /// The headers are not linked here: a node may answer with headers of two branches.
    ///
    /// # Errors
    /// Returns the errors of `take`, and an [`RpcError`] if a request fails or if the node does not
    /// have a block of the range.
    pub fn headers<E: From<RpcError>>(
        &self,
        numbers: RangeInclusive<u64>,
        mut take: impl FnMut(Vec<HeaderBuf>) -> Result<(), E>,
    ) -> Result<(), E> {
        let (first, last) = (*numbers.start(), *numbers.end());
        if first > last {
            return Ok(());
        }
        let step = self.options().batch.max(1) as u64;
        let starts = std::iter::successors(Some(first), move |start| {
            start.checked_add(step).filter(|&start| start <= last)
        });
        let parts = starts.map(|start| start..=start.saturating_add(step - 1).min(last));
        let once = |numbers: &[u64]| -> Result<Vec<HeaderBuf>, RpcError> {
            let headers = self.some_headers(numbers)?;
            let found = headers.into_iter().zip(numbers).map(|(header, number)| {
                header?.ok_or_else(|| RpcError::NotFound { what: format!("block {number}") })
            });
            found.collect()
        };
        // A missing block is requested again: one name may lead to several nodes, some of which
        // lag.
        let lags = |error: &RpcError| matches!(error, RpcError::NotFound { .. });
        let work = |part: RangeInclusive<u64>| {
            let numbers: Vec<u64> = part.collect();
            self.caller.transport.retried_while(lags, || once(&numbers))
        };
        in_order(self.options().parallel, parts, work, |headers| take(headers?))
    }

    /// Requests the headers with these hashes, several requests in parallel, and passes them to
    /// `take` in order.
    ///
    /// # Errors
    /// Returns an [`RpcError`] if a request fails, or if the node does not have one of the blocks.
    pub fn headers_of(
        &self,
        hashes: &[B256],
        mut take: impl FnMut(HeaderBuf),
    ) -> Result<(), RpcError> {
        let work = |hashes: &[B256]| -> Result<Vec<HeaderBuf>, RpcError> {
            let calls: Vec<Call> = hashes.iter().map(|hash| call(*hash, false)).collect();
            let headers = self.caller.calls(&calls, |at, result| {
                let what = format!("block {}", hashes[at]);
                let header = from_json(result, &what)?;
                of_hash(header.ok_or(RpcError::NotFound { what })?, hashes[at])
            });
            headers?.into_iter().collect()
        };
        let chunks = hashes.chunks(self.options().batch.max(1));
        in_order(self.options().parallel, chunks, work, |headers| {
            headers?.into_iter().for_each(&mut take);
            Ok(())
        })
    }

    /// Requests headers by number, and returns the answers in the same order.
    fn some_headers(&self, numbers: &[u64]) -> Result<Answers, RpcError> {
        if self.raw_headers.may_be()
            && let Some(headers) = self.raw_headers(numbers)?
        {
            return Ok(headers);
        }
        let calls: Vec<Call> = numbers
            .iter()
            .map(|number| {
                Call::new("eth_getBlockByNumber", &json!([format!("{number:#x}"), false]))
            })
            .collect();
        self.caller.calls(&calls, |at, result| {
            let number = numbers[at];
            let header = from_json(result, &format!("block {number}"))?;
            header.map(|header| of_number(header, number)).transpose()
        })
    }

    /// Requests headers by `debug_getRawHeader`. Returns `None` if the node does not serve this
    /// method, or does not return a header for each of these blocks.
    fn raw_headers(&self, numbers: &[u64]) -> Result<Option<Answers>, RpcError> {
        let call = |number: &u64| Call::new(RAW, &json!([format!("{number:#x}")]));
        let ask = |numbers: &[u64]| {
            let calls: Vec<Call> = numbers.iter().map(call).collect();
            self.caller.calls(&calls, |at, result| raw(result, numbers[at]))
        };
        // The first time, only one call is sent: otherwise a node without the method would have to
        // answer a whole batch with errors.
        let known = self.raw_headers.is_known();
        let answers = ask(if known { numbers } else { &numbers[..1] });
        let mut answers = match answers {
            Ok(answers) => answers,
            Err(error @ RpcError::Http { .. }) if !known => vec![Err(error)],
            Err(error) => return Err(error),
        };
        if answers.iter().any(|answer| matches!(answer, Err(RpcError::MethodMissing { .. }))) {
            // The note is given only once, even if several parallel requests receive this error.
            if self.raw_headers.set_missing() {
                self.note(&Note::NoRawHeaders);
            }
            return Ok(None);
        }
        // A missing header may be a fault of this method only: all headers are requested as JSON
        // instead.
        if answers.iter().any(|answer| {
            matches!(answer, Ok(None) | Err(RpcError::Node { .. } | RpcError::Http { .. }))
        }) {
            return Ok(None);
        }
        if !known && answers.iter().all(Result::is_ok) {
            self.raw_headers.set_present();
        }
        if answers.len() < numbers.len() {
            answers.extend(ask(&numbers[answers.len()..])?);
        }
        Ok(Some(answers))
    }
}

/// Reads a header from the JSON of a block; returns `None` for `null`.
pub(super) fn from_json(result: &str, what: &str) -> Result<Option<HeaderBuf>, RpcError> {
    // A node answers `null` for a block that it does not have.
    if result == "null" {
        return Ok(None);
    }
    let wrong = |error: String| RpcError::Malformed(format!("{what}: {error}"));
    let header = HeaderBuf::from_json(result).map_err(|error| wrong(error.to_string()))?;
    let size = header.rlp().len();
    if size as u64 > MAX_HEADER {
        return Err(wrong(format!("a header of {size} bytes, the limit is {MAX_HEADER}")));
    }
    Ok(Some(header))
}

fn raw(result: &str, number: u64) -> Result<Option<HeaderBuf>, RpcError> {
    // A node answers `null` for a block that it does not have.
    if result == "null" {
        return Ok(None);
    }
    let wrong = |error: String| RpcError::Malformed(format!("block {number}: {error}"));
    // Each byte is two hex digits.
    if result.len() as u64 > 2 * MAX_HEADER {
        return Err(wrong(format!("a header of {} digits", result.len())));
    }
    let rlp: Bytes = serde_json::from_str(result).map_err(|error| wrong(error.to_string()))?;
    let header = HeaderBuf::from_rlp(rlp.to_vec()).map_err(|error| wrong(error.to_string()))?;
    of_number(header, number).map(Some)
}

fn of_number(header: HeaderBuf, number: u64) -> Result<HeaderBuf, RpcError> {
    let found = header.view().number();
    // A node may answer with the header of another block, whose hash is valid too.
    if found == number { Ok(header) } else { Err(other_header(number, found)) }
}

fn of_hash(header: HeaderBuf, hash: B256) -> Result<HeaderBuf, RpcError> {
    let found = header.hash();
    if found == hash { Ok(header) } else { Err(other_header(hash, found)) }
}

fn other_header<T: std::fmt::Display>(asked: T, found: T) -> RpcError {
    RpcError::Malformed(format!(
        "the header of block {asked} was requested, but the answer is that of block {found}"
    ))
}

/// The transactions of a block as a node sent them; `None` if the node does not have the block.
pub(crate) type ReceivedTransactions = Result<Option<BlockTransactions>, RpcError>;

/// Maximum number of blocks in one request. A block has some hundred kilobytes; if more blocks are
/// requested, providers begin to refuse the answer for its size.
const AT_A_TIME: usize = 8;

/// Returns the call for the block with this hash. `is_whole` asks for transactions instead of their
/// hashes.
pub(super) fn call(hash: B256, is_whole: bool) -> Call {
    Call::new("eth_getBlockByHash", &json!([hash, is_whole]))
}

fn read(result: &str, hash: B256) -> ReceivedTransactions {
    #[derive(Deserialize)]
    struct Block {
        transactions: BlockTransactions,
    }
    let block: Option<Block> =
        serde_json::from_str(result).map_err(|error| malformed(hash, &error))?;
    Ok(block.map(|block| block.transactions))
}

/// Returns the error of a malformed answer to [`call`].
pub(super) fn malformed(hash: B256, error: &serde_json::Error) -> RpcError {
    RpcError::Malformed(format!("the transactions of block {hash}: {error}"))
}

impl Node {
    /// Requests all transactions of each of these blocks, several requests in parallel, and passes
    /// each result to `take` in order.
    ///
    /// # Errors
    /// Returns the errors of `take`.
    pub(crate) fn transactions_of<E>(
        &self,
        blocks: &[BlockRef],
        mut take: impl FnMut(BlockRef, ReceivedTransactions) -> Result<(), E>,
    ) -> Result<(), E> {
        let parallel = self.options().parallel;
        // Few blocks are spread over all parallel requests.
        let at_a_time = blocks.len().div_ceil(parallel).min(self.caller.batch());
        let parts = blocks.chunks(at_a_time.clamp(1, AT_A_TIME));
        let are_batches_accepted = AtomicBool::new(true);
        let work = |part| (part, self.some_transactions(part, &are_batches_accepted));
        in_order(parallel, parts, work, |(part, received): (&[BlockRef], _)| {
            part.iter().zip(received).try_for_each(|(&at, received)| take(at, received))
        })
    }

    fn some_transactions(
        &self,
        blocks: &[BlockRef],
        are_batches_accepted: &AtomicBool,
    ) -> Vec<ReceivedTransactions> {
        let calls: Vec<Call> = blocks.iter().map(|block| call(block.hash, true)).collect();
        let read = |at: usize, result: &str| read(result, blocks[at].hash);
        if calls.len() > 1 && are_batches_accepted.load(Ordering::Relaxed) {
            match self.caller.batch_of(&calls, read) {
                Ok(received) => return received,
                // Batches of shorter answers may still be accepted, so this is not remembered for
                // other methods.
                Err(error) if Caller::accepted(calls.len(), &error).is_some() => {
                    are_batches_accepted.store(false, Ordering::Relaxed);
                }
                Err(error) if is_silence(&error) => return vec![Err(error); calls.len()],
                // The error of one block spoils no other.
                Err(_) => {}
            }
        }
        let mut received: Vec<ReceivedTransactions> = Vec::with_capacity(calls.len());
        let (mut bytes, limit) = (0, self.caller.transport.max_body);
        for (at, call) in calls.iter().enumerate() {
            // Each further call to a silent node could take a whole timeout too.
            let silence = match received.last() {
                Some(Err(error)) if is_silence(error) => Some(error.clone()),
                _ => None,
            };
            let one = match silence {
                Some(error) => Err(error),
                // All answers together are no longer than one may be.
                None if bytes > limit => Err(RpcError::TooLarge { limit }),
                None => self.caller.call(call, |result| {
                    let transactions = read(at, result)?;
                    Ok((transactions, result.len() as u64))
                }),
            };
            received.push(one.map(|(transactions, length)| {
                bytes += length;
                transactions
            }));
        }
        received
    }
}

/// Returns `true` if the node did not answer at all, so that another request would not be answered,
/// either.
fn is_silence(error: &RpcError) -> bool {
    matches!(error.origin(), RpcError::Timeout { .. } | RpcError::Transport(_) | RpcError::Stopped)
}
