//! Reads the headers of all sources in the arguments, in batches, and links them on all cores.

use std::collections::VecDeque;
use std::ops::Bound;

use anyhow::{Context as _, anyhow, bail};
use chainsieve::eth::files::{FileError, FileProblem, HeaderBatch, HeaderReader, Position};
use chainsieve::eth::header::{ChainError, HeaderView, LinkedHeaders};
use chainsieve_report::{Bytes, Progress, Source};
use rayon::prelude::*;

use crate::args::eth::{HeaderFormat, LinkedHeaderArgs};

/// A batch of headers of one source, in the order of the source.
#[derive(Debug)]
pub(crate) struct Batch {
    pub(crate) source: String,
    headers: HeaderBatch,
}

impl Batch {
    /// Returns the headers, each with its position in the source.
    pub(crate) fn headers(
        &self,
    ) -> impl Iterator<Item = anyhow::Result<(Position, HeaderView<'_>)>> {
        self.headers.headers().map(|header| header.with_context(|| named(&self.source)))
    }

    /// Links the headers to a chain.
    pub(crate) fn link(&self, chain: &mut LinkedHeaders) -> anyhow::Result<()> {
        self.headers.link(chain).map_err(|error| self.not_linked(error))
    }

    /// Links only the first header to a chain.
    pub(crate) fn link_first(&self, chain: &mut LinkedHeaders) -> anyhow::Result<()> {
        self.headers.link_first(chain).map_err(|error| self.not_linked(error))
    }

    fn not_linked(&self, error: FileError) -> anyhow::Error {
        let error = match error.problem {
            // The parent is in the chain, but the chain already contains another child of it.
            FileProblem::Chain(ChainError::Parent { number, expected, found })
                if expected == found =>
            {
                anyhow!(
                    "{}: a second block {number} with the same parent: give the headers of one \
                     chain only",
                    error.position
                )
            }
            _ => anyhow!(error),
        };
        error.context(named(&self.source))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.headers.is_empty()
    }

    /// Drops the headers before block `from` and after block `to`.
    pub(crate) fn keep(&mut self, from: Option<u64>, to: Option<u64>) {
        let bound = |number: Option<u64>| number.map_or(Bound::Unbounded, Bound::Included);
        self.headers.trim((bound(from), bound(to)));
    }
}

/// Reads the headers of several sources one after the other.
pub(crate) struct Headers<'a> {
    arguments: VecDeque<&'a str>,
    format: HeaderFormat,
    open: Option<Open>,
    progress: Progress,
    /// Number of bytes of the sources that were read completely.
    done: u64,
}

/// The source that is being read.
struct Open {
    name: String,
    headers: HeaderReader<Bytes>,
    /// `true` once a header was returned.
    given: bool,
}

impl<'a> Headers<'a> {
    pub(crate) fn new(arguments: &'a [String], format: HeaderFormat) -> Self {
        let arguments: VecDeque<_> = arguments.iter().map(String::as_str).collect();
        let progress = Progress::over_files(arguments.iter().copied());
        Self { arguments, format, open: None, progress, done: 0 }
    }

    /// Returns the next batch, of at least one header; `None` after the last header.
    pub(crate) fn next_batch(&mut self) -> anyhow::Result<Option<Batch>> {
        loop {
            let mut open = match self.open.take() {
                Some(open) => open,
                None => match self.arguments.pop_front() {
                    None => return Ok(None),
                    Some(argument) => Open::new(argument, self.format)?,
                },
            };
            let batch = open.headers.next_batch().with_context(|| named(&open.name))?;
            self.progress.at(self.done + open.headers.offset());
            let Some(headers) = batch else {
                if !open.given {
                    bail!("{}: no headers were found", named(&open.name));
                }
                self.done += open.headers.offset();
                continue;
            };
            open.given = true;
            let source = open.name.clone();
            self.open = Some(open);
            return Ok(Some(Batch { source, headers }));
        }
    }
}

impl Open {
    fn new(argument: &str, format: HeaderFormat) -> anyhow::Result<Self> {
        let source = Source::open(argument, "headers")?;
        let name = source.name().to_owned();
        let input = source.input;
        let headers = match format {
            None => HeaderReader::new(input),
            Some(format) => HeaderReader::with_format(input, format),
        };
        let headers = headers.with_context(|| named(&name))?;
        Ok(Self { name, headers, given: false })
    }
}

fn named(source: &str) -> String {
    format!("headers, {source}")
}

/// The range of blocks to read; `None` means no bound.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Bounds {
    pub(crate) from: Option<u64>,
    pub(crate) to: Option<u64>,
}

/// Links all headers of `args` within `bounds`. Each batch is passed to `work` on any thread. Then
/// the batch and the result of `work` are passed to `take`, in the order of the batches.
///
/// The headers within a batch are linked in parallel with other batches. Then the batch is linked
/// to the batch before it.
pub(crate) fn for_each_linked<R: Send>(
    args: &LinkedHeaderArgs,
    bounds: Bounds,
    work: impl Fn(&LinkedHeaders) -> R + Sync,
    mut take: impl FnMut(&LinkedHeaders, R) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let threads = args.threads.map_or(0, usize::from);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().context("threads")?;
    let mut headers = Headers::new(&args.headers, args.format);
    // An empty chain that continues the last batch.
    let mut last: Option<LinkedHeaders> = None;
    loop {
        let mut batches = Vec::new();
        while batches.len() < pool.current_num_threads() {
            let Some(mut batch) = headers.next_batch()? else { break };
            batch.keep(bounds.from, bounds.to);
            if !batch.is_empty() {
                batches.push(batch);
            } else if last.is_some() && bounds.to.is_some() {
                // This batch is after the range, so nothing more is read.
                break;
            }
        }
        if batches.is_empty() {
            return Ok(());
        }
        let link = |batch: &Batch| {
            let mut chain = LinkedHeaders::new();
            let linked = batch.link(&mut chain);
            let found = linked.is_ok().then(|| work(&chain));
            (chain, linked, found)
        };
        let linked: Vec<_> = pool.install(|| batches.par_iter().map(link).collect());
        for (batch, (chain, linked, found)) in batches.iter().zip(linked) {
            if let Some(mut last) = last.take() {
                batch.link_first(&mut last)?;
            }
            linked?;
            if let Some(found) = found {
                take(&chain, found)?;
            }
            last = Some(chain.following());
        }
    }
}
