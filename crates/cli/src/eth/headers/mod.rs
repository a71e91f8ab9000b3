//! Headers from files and standard input, in batches, whatever they are written in.
//!
//! Each format has a reader that appends the RLP of one header after the other. An archive is
//! never in memory as a whole: a batch is linked and looked at before the next is read.

mod e2store;
mod json;
mod lines;
mod rlp;

use std::collections::VecDeque;
use std::fmt;

use anyhow::{Context as _, anyhow, bail};
use chainsieve::eth::header::{ChainError, HeaderChain, HeaderView};
use chainsieve::simd::Backend;

pub(crate) use e2store::{Compressed, Entries, Entry, Kind};

use crate::args::eth::HeaderFormat;
use crate::output::grouped;
use crate::progress::Progress;
use crate::source::Source;

/// Far more than any header has: its extra data has 32 bytes on mainnet, some hundreds elsewhere.
/// A length in a file is believed up to this.
pub(crate) const MAX_HEADER: u64 = 64 << 10;

/// Headers and bytes that a batch holds at the most, so that memory stays bounded.
const BATCH_HEADERS: usize = 8192;
const BATCH_BYTES: usize = 8 << 20;

/// Where a header stands in its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Byte(u64),
    Line(u64),
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Byte(at) => write!(f, "byte {}", grouped(*at)),
            Self::Line(line) => write!(f, "line {line}"),
        }
    }
}

/// A format's reader.
trait Records {
    /// Appends the RLP of the next header. None behind the last one.
    fn next(&mut self, rlp: &mut Vec<u8>) -> anyhow::Result<Option<Place>>;

    /// The source, for how far it was read.
    fn source(&self) -> &Source;
}

/// Headers of one source, in its order.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) source: String,
    rlp: Vec<u8>,
    /// Where each header ends in `rlp`, and where it stands in the source.
    ends: Vec<(usize, Place)>,
}

impl Batch {
    /// The headers, each with the words for where it stands.
    pub(crate) fn headers(&self) -> impl Iterator<Item = anyhow::Result<(Place, HeaderView<'_>)>> {
        let starts = std::iter::once(0).chain(self.ends.iter().map(|(end, _)| *end));
        starts.zip(&self.ends).map(|(start, &(end, place))| {
            let header =
                HeaderView::decode(&self.rlp[start..end]).with_context(|| self.at(place))?;
            Ok((place, header))
        })
    }

    /// Links the headers to a chain.
    pub(crate) fn link(&self, chain: &mut HeaderChain, backend: Backend) -> anyhow::Result<()> {
        self.link_up_to(self.rlp.len(), chain, backend)
    }

    /// Links the first header alone.
    pub(crate) fn link_first(
        &self,
        chain: &mut HeaderChain,
        backend: Backend,
    ) -> anyhow::Result<()> {
        self.link_up_to(self.ends.first().map_or(0, |(end, _)| *end), chain, backend)
    }

    fn link_up_to(
        &self,
        end: usize,
        chain: &mut HeaderChain,
        backend: Backend,
    ) -> anyhow::Result<()> {
        let before = chain.len();
        chain.extend_from_rlp(backend, &self.rlp[..end]).map(drop).map_err(|error| {
            // Those before the header at fault are linked.
            let place = self.ends.get(chain.len() - before).map(|(_, place)| self.at(*place));
            let error = match error {
                // Its index counts within the batch, the place says it better.
                ChainError::Header { error, .. } => anyhow!(error),
                // Its parent is right, and has a child already.
                ChainError::Parent { number, expected, found } if expected == found => anyhow!(
                    "another block {number}, where the next one belongs: give one chain's headers"
                ),
                error => anyhow!(error),
            };
            error.context(place.unwrap_or_else(|| format!("headers, {}", self.source)))
        })
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Drops headers before `from` and behind `to` at the two ends. What is malformed stays, to be
    /// an error when it is linked.
    pub(crate) fn keep(&mut self, from: Option<u64>, to: Option<u64>) {
        if from.is_none() && to.is_none() {
            return;
        }
        let outside = |start: usize, end: usize| {
            HeaderView::decode(&self.rlp[start..end]).is_ok_and(|header| {
                from.is_some_and(|from| header.number() < from)
                    || to.is_some_and(|to| header.number() > to)
            })
        };
        let spans: Vec<_> = std::iter::once(0)
            .chain(self.ends.iter().map(|(end, _)| *end))
            .zip(self.ends.iter().map(|(end, _)| *end))
            .collect();
        let before = spans.iter().take_while(|&&(start, end)| outside(start, end)).count();
        let behind = spans[before..].iter().rev().take_while(|&&(start, end)| outside(start, end));
        let last = spans.len() - behind.count();
        let start = spans.get(before).map_or(0, |&(start, _)| start);
        let end = last.checked_sub(1).map_or(0, |last| spans[last].1);
        self.ends.truncate(last);
        self.ends.drain(..before);
        self.ends.iter_mut().for_each(|(end, _)| *end -= start);
        self.rlp.truncate(end);
        self.rlp.drain(..start);
    }

    fn at(&self, place: Place) -> String {
        format!("headers, {}, {place}", self.source)
    }
}

/// Reads the headers of several sources one after the other.
pub(crate) struct Headers<'a> {
    arguments: VecDeque<&'a str>,
    format: HeaderFormat,
    open: Option<Box<dyn Records>>,
    /// Whether the open source has given a header.
    given: bool,
    progress: Progress,
    /// Bytes of the sources that were read to their end.
    done: u64,
}

impl<'a> Headers<'a> {
    pub(crate) fn new(arguments: &'a [String], format: HeaderFormat) -> Self {
        let arguments: VecDeque<_> = arguments.iter().map(String::as_str).collect();
        let progress = Progress::over_files(arguments.iter().copied());
        Self { arguments, format, open: None, given: false, progress, done: 0 }
    }

    pub(crate) fn progress(&self) -> &Progress {
        &self.progress
    }

    /// The next batch, of at least one header. None behind the last.
    pub(crate) fn next_batch(&mut self) -> anyhow::Result<Option<Batch>> {
        loop {
            let mut records = match self.open.take() {
                Some(records) => records,
                None => match self.arguments.pop_front() {
                    None => return Ok(None),
                    Some(argument) => {
                        self.given = false;
                        open(argument, self.format)?
                    }
                },
            };
            let mut batch = Batch {
                source: records.source().name().to_owned(),
                rlp: Vec::new(),
                ends: Vec::new(),
            };
            while batch.ends.len() < BATCH_HEADERS && batch.rlp.len() < BATCH_BYTES {
                let next = records.next(&mut batch.rlp);
                match next.with_context(|| format!("headers, {}", batch.source))? {
                    Some(place) => batch.ends.push((batch.rlp.len(), place)),
                    None => break,
                }
            }
            self.progress.at(self.done + records.source().offset());
            if batch.ends.is_empty() {
                if !self.given {
                    bail!("headers, {}: no headers in it", batch.source);
                }
                self.done += records.source().offset();
                continue;
            }
            self.given = true;
            self.open = Some(records);
            return Ok(Some(batch));
        }
    }
}

/// Opens a source of headers, and looks what it is written in unless that was said.
fn open(argument: &str, format: HeaderFormat) -> anyhow::Result<Box<dyn Records>> {
    let mut source = Source::open(argument, "headers")?;
    let named = format!("headers, {}", source.name());
    let start = source.peek().with_context(|| named.clone())?;
    let format = match format {
        HeaderFormat::Auto if start.is_empty() => bail!("{named}: nothing in it"),
        HeaderFormat::Auto => recognise(start).with_context(|| {
            let first = start[0];
            format!(
                "{named}: it starts with byte 0x{first:02x}, as neither RLP, JSON, hex nor an era1 or \
                 ere archive does"
            )
        })?,
        format => format,
    };
    Ok(match format {
        HeaderFormat::Json => Box::new(json::JsonHeaders::new(source)),
        HeaderFormat::Hex => Box::new(lines::HexLines::new(source)),
        HeaderFormat::Era => Box::new(e2store::EraHeaders::new(source)),
        HeaderFormat::Rlp | HeaderFormat::Auto => Box::new(rlp::RlpHeaders::new(source)),
    })
}

/// What the first bytes show. `start` is not empty.
fn recognise(start: &[u8]) -> Option<HeaderFormat> {
    // The version record of e2store is "e2" with length 0, which as hex text would go on.
    if start.starts_with(b"e2\0") {
        return Some(HeaderFormat::Era);
    }
    let text = start.strip_prefix("\u{feff}".as_bytes()).unwrap_or(start).trim_ascii_start();
    match text.first() {
        Some(b'{' | b'[' | b'"') => Some(HeaderFormat::Json),
        Some(b'#' | b'0'..=b'9' | b'a'..=b'f' | b'A'..=b'F') => Some(HeaderFormat::Hex),
        // An RLP list.
        _ if start[0] >= 0xc0 => Some(HeaderFormat::Rlp),
        _ => None,
    }
}
