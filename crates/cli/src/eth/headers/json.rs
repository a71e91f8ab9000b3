//! Headers as JSON: objects of `eth_getBlockByNumber` and its like, bare, a line each, in an
//! array or in the replies of a node, and hex strings of `debug_getRawHeader`.

use std::collections::VecDeque;

use anyhow::{Context as _, anyhow, bail};
use chainsieve::alloy_primitives::B256;
use chainsieve::eth::header::{HeaderBuf, HeaderView};
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{MAX_HEADER, Place, Records, lines};
use crate::eth::json_values::{JsonValues, in_text};
use crate::output::grouped;
use crate::source::Source;

/// A block with all its transactions is smaller.
const MAX_VALUE: u64 = 64 << 20;

pub(super) struct JsonHeaders {
    values: JsonValues,
    /// Headers of one reply that are not yet handed out.
    ready: VecDeque<(Place, Vec<u8>)>,
}

impl JsonHeaders {
    pub(super) fn new(source: Source) -> Self {
        Self { values: JsonValues::new(source, MAX_VALUE), ready: VecDeque::new() }
    }
}

impl Records for JsonHeaders {
    fn next(&mut self, rlp: &mut Vec<u8>) -> anyhow::Result<Option<Place>> {
        loop {
            if let Some((place, header)) = self.ready.pop_front() {
                rlp.extend(header);
                return Ok(Some(place));
            }
            let Some(value) = self.values.next()? else { return Ok(None) };
            let mut headers = Vec::new();
            // The errors of `serde_json` count lines and columns from the value's start.
            read(&value.text, 0, &mut headers)
                .map_err(|error| anyhow!("{}", in_text(&format!("{error:#}"), &value)))?;
            let place = Place::Line(value.line);
            self.ready.extend(headers.into_iter().map(|header| (place, header)));
        }
    }

    fn source(&self) -> &Source {
        self.values.source()
    }
}

/// What wraps a header, and the fields that tell the wrappings apart.
#[derive(Deserialize)]
struct Wrapped<'a> {
    jsonrpc: Option<serde::de::IgnoredAny>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    /// Of a subscription's message.
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    /// RLP in hex beside what is known of it, or an object of its own.
    #[serde(borrow)]
    header: Option<&'a RawValue>,
    hash: Option<B256>,
}

/// Replies hold arrays, these objects, and these their headers: no deeper.
const MAX_DEPTH: u8 = 4;

fn read(text: &str, depth: u8, headers: &mut Vec<Vec<u8>>) -> anyhow::Result<()> {
    if depth > MAX_DEPTH {
        bail!("no header within {MAX_DEPTH} wrappings");
    }
    match text.trim_start().bytes().next() {
        Some(b'"') => {
            let hex: String = serde_json::from_str(text)?;
            headers.push(raw(&hex)?);
            Ok(())
        }
        Some(b'[') => {
            let elements: Vec<&RawValue> = serde_json::from_str(text)?;
            elements.into_iter().try_for_each(|element| read(element.get(), depth + 1, headers))
        }
        Some(b'{') => object(text, depth, headers),
        _ => bail!("a header is an object or a string of hex"),
    }
}

fn object(text: &str, depth: u8, headers: &mut Vec<Vec<u8>>) -> anyhow::Result<()> {
    let wrapped: Wrapped<'_> = serde_json::from_str(text)?;
    if let Some(error) = wrapped.error {
        bail!("the node's reply is an error: {:.200}", error.get());
    }
    if let Some(inner) = wrapped.result.or(wrapped.params) {
        return read(inner.get(), depth + 1, headers).context("result");
    }
    if wrapped.jsonrpc.is_some() {
        bail!("the node's reply has no result: it does not have the block");
    }
    let Some(header) = wrapped.header else {
        headers.push(HeaderBuf::from_json(text)?.rlp().to_vec());
        return Ok(());
    };
    let before = headers.len();
    read(header.get(), depth + 1, headers).context("header")?;
    if let (Some(claimed), [header]) = (wrapped.hash, &headers[before..]) {
        let computed = HeaderView::decode(header).context("header")?.hash();
        if computed != claimed {
            bail!("the header hashes to {computed}, the claimed hash is {claimed}");
        }
    }
    Ok(())
}

fn raw(hex: &str) -> anyhow::Result<Vec<u8>> {
    if hex.len() as u64 > 2 * MAX_HEADER + 2 {
        bail!(
            "a header of {} digits; the limit is {}",
            grouped(hex.len() as u64),
            grouped(2 * MAX_HEADER)
        );
    }
    let bytes = lines::header(hex)?;
    // Read here, where the error can name the line.
    HeaderView::decode(&bytes)?;
    Ok(bytes)
}
