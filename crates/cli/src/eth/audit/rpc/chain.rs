//! The chain that answers are held against, from whichever provider has it.

use anyhow::{Context as _, anyhow};
use chainsieve::alloy_primitives::B256;

use crate::eth::rpc::{FetchedChain, Provider};
use crate::output::{grouped, print_note};
use crate::progress::Progress;

/// A chain and the provider that gave it.
pub(super) struct Source {
    pub(super) fetched: FetchedChain,
    /// Index of the provider.
    pub(super) provider: usize,
}

/// Fetches the headers from `first` to `end`: from the first provider whose chain holds an anchor,
/// else from the first that has all of them.
pub(super) fn fetch(
    providers: &[Provider],
    anchors: &[B256],
    (first, end): (u64, u64),
    keep_rlp: bool,
    warnings: &mut Vec<String>,
) -> anyhow::Result<Source> {
    let mut failed = None;
    let mut unanchored = None;
    for (index, provider) in providers.iter().enumerate() {
        let mut fetched = FetchedChain::new(keep_rlp);
        let progress = Progress::counting((end - first).saturating_add(1), "headers");
        match fetched.fetch(provider, first..=end, &progress) {
            Ok(()) if anchors.is_empty() || fetched.chain.anchored_to(anchors).is_some() => {
                return Ok(Source { fetched, provider: index });
            }
            Ok(()) => {
                if providers.len() > 1 {
                    let name = provider.name();
                    warnings.push(format!("the chain of {name} does not hold the anchor"));
                }
                unanchored = unanchored.or(Some(Source { fetched, provider: index }));
            }
            Err(error) => {
                let error = error.context(format!("blocks {first} to {end}"));
                if index + 1 < providers.len() {
                    print_note(&format!("{error:#}"));
                    warnings.push(format!("{error:#}"));
                }
                failed = Some(error);
            }
        }
    }
    match (unanchored, failed) {
        (Some(source), _) => Ok(source),
        (None, Some(error)) => Err(error),
        (None, None) => Err(anyhow!("no provider")),
    }
}

/// What a provider has at the height of another one's block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Beside {
    Same,
    Another(B256),
    /// It does not have a block there, or does not say which.
    Nothing,
}

/// What each other provider has in place of this block, by its index.
pub(super) fn beside(
    providers: &[Provider],
    source: usize,
    number: u64,
    hash: B256,
) -> anyhow::Result<Vec<(usize, Beside)>> {
    let others = providers.iter().enumerate().filter(|(index, _)| *index != source);
    let asked = others.map(|(index, provider)| {
        let header = provider
            .header(number)
            .with_context(|| format!("{}, block {}", provider.name(), grouped(number)))?;
        let beside = match header.map(|header| header.hash()) {
            Some(found) if found == hash => Beside::Same,
            Some(found) => Beside::Another(found),
            None => Beside::Nothing,
        };
        Ok((index, beside))
    });
    asked.collect()
}
