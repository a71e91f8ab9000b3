//! Headers of a provider linked to a chain, through reorganisations while they are fetched.

use std::fmt;
use std::ops::RangeInclusive;

use anyhow::{Context as _, bail};
use chainsieve::eth::header::{ChainError, HeaderBuf, HeaderChain, Linked};

use super::Provider;
use crate::output::{count, grouped};
use crate::progress::Progress;

/// How often a chain may change while it is fetched.
const TRIES: u32 = 6;
/// Blocks before a header that does not fit that are fetched again, four times as many each time.
const STEP_BACK: u64 = 8;

/// Headers of consecutive blocks.
#[derive(Debug, Default)]
pub(crate) struct FetchedChain {
    pub(crate) chain: HeaderChain,
    /// The RLP of each header, if it is kept.
    pub(crate) rlp: Option<Vec<Vec<u8>>>,
}

/// A header that does not follow on the one before it.
#[derive(Debug)]
struct Misfit {
    number: u64,
    error: ChainError,
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl std::error::Error for Misfit {}

impl FetchedChain {
    /// No headers yet.
    pub(crate) fn new(keep_rlp: bool) -> Self {
        Self { chain: HeaderChain::new(), rlp: keep_rlp.then(Vec::new) }
    }

    /// Fetches the headers of these blocks and links them. Where the provider's chain was
    /// reorganised meanwhile, or has been since what is here was fetched, the blocks before are
    /// fetched again, as far back as need be.
    ///
    /// # Errors
    /// Also where the headers still do not fit after some tries.
    pub(crate) fn fetch(
        &mut self,
        provider: &Provider,
        blocks: RangeInclusive<u64>,
        progress: &Progress,
    ) -> anyhow::Result<()> {
        let bottom = self.chain.numbers().map_or(*blocks.start(), |numbers| *numbers.start());
        let mut from = *blocks.start();
        for tried in 1.. {
            let fetched = provider.headers(from..=*blocks.end(), |headers| {
                for header in &headers {
                    self.link(header)?;
                }
                if let Some(last) = headers.last() {
                    progress.at(last.view().number().saturating_sub(bottom) + 1);
                }
                Ok(())
            });
            let Err(error) = fetched else { break };
            let Some(Misfit { number, .. }) = error.downcast_ref() else { return Err(error) };
            let number = *number;
            if tried == TRIES {
                return Err(error).with_context(|| {
                    format!(
                        "headers, {}: they are of no one chain, {tried} times in a row",
                        provider.name()
                    )
                });
            }
            let back = STEP_BACK << (2 * (tried - 1));
            from = number.saturating_sub(back).max(bottom);
            provider.note(&format!(
                "block {} does not follow on the one before: its chain was reorganised, \
                 {} fetched again",
                grouped(number),
                count(usize::try_from(number - from).unwrap_or(usize::MAX), "block")
            ));
            if from == bottom {
                // The first block may be another one too.
                self.chain = HeaderChain::new();
                self.rlp.iter_mut().for_each(Vec::clear);
            }
        }
        let (first, last) = (bottom, *blocks.end());
        if self.chain.numbers() != Some(first..=last) {
            bail!("headers, {}: not all of blocks {first} to {last}", provider.name());
        }
        Ok(())
    }

    fn link(&mut self, header: &HeaderBuf) -> anyhow::Result<()> {
        let view = header.view();
        let linked =
            self.chain.push(&view).map_err(|error| Misfit { number: view.number(), error })?;
        if let Some(rlp) = &mut self.rlp {
            if let Linked::Reorganised { removed } = &linked {
                rlp.truncate(rlp.len().saturating_sub(removed.len()));
            }
            if linked != Linked::Known {
                rlp.push(header.rlp().to_vec());
            }
        }
        Ok(())
    }
}
