//! Links headers to one chain, batch by batch, on all cores.

use anyhow::Context as _;
use chainsieve::eth::header::LinkedHeaders;
use rayon::prelude::*;

use crate::args::eth::LinkedHeaderArgs;
use super::headers::{Batch, Headers};

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
pub(crate) fn for_each<R: Send>(
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
