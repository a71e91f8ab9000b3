//! `eth index build --rpc`: adds headers from a provider.

use std::ops::RangeInclusive;

use anyhow::{Context as _, anyhow, bail, ensure};
use chainsieve::alloy_primitives::B256;
use chainsieve::eth::header::{BlockRef, HeaderBuf, HeaderView, LinkedHeaders};
use chainsieve::eth::log_query::BlockTag;
use chainsieve_provider::{Node, RpcError, Stop};
use chainsieve_report::{Exit, Progress, Report, print_note};

use super::adding::Adding;
use super::named;
use crate::args::eth::AddedHeaders;
use crate::eth::anchor::Trusted;
use crate::eth::builder;
use crate::exit::stop_on_signals;

/// Number of reorganisations of the provider's chain after which the command gives up.
const BRANCHES: u32 = 8;
/// Number of headers that are compared at a time to find the last common block.
const COMPARED: u64 = 64;

/// The reason why the headers ended early.
enum Ended {
    /// The headers do not continue the last block of the index.
    OtherBranch(String),
    /// The user pressed Ctrl-C.
    Stopped,
    Failed(anyhow::Error),
}

impl From<RpcError> for Ended {
    fn from(error: RpcError) -> Self {
        match error.origin() {
            RpcError::Stopped => Self::Stopped,
            _ => Self::Failed(error.into()),
        }
    }
}

/// Adds headers from a provider; an empty index starts at block `first`.
pub(super) fn run(
    mut adding: Adding<'_>,
    headers: &AddedHeaders,
    first: u64,
) -> anyhow::Result<Report> {
    let stop = stop_on_signals()?;
    let (builder, _) = builder(&headers.rpc, vec![headers.rpc.endpoint()?], stop.clone());
    let provider = builder.build()?;
    let node = provider.nodes()[0].clone();
    let chain_id = node.chain_id().with_context(|| node.endpoint().to_string())?;
    let label = adding.settings.label();
    ensure!(
        label != "mainnet" || chain_id == 1,
        "the provider's chain id is {chain_id}, but the index has the label mainnet: for another \
         chain, build an index with another --label"
    );
    let trusted = Trusted::default().bring(&headers.beacon, &headers.rpc, &provider)?;
    let finalized = trusted.finalized();
    let end = finalized.map(|block| BlockTag::Number(block.number));
    if let Some(block) = finalized {
        compare(&node, block)?;
    }
    let to = headers.to.or(end).unwrap_or(BlockTag::Latest);
    let mut source = Source { node, stop, to };
    let fetched = source.fetch(&mut adding, first);
    // Headers that were received before an error are kept.
    let synced = adding.sync();
    fetched.map_err(|error| adding.failed(error))?;
    synced?;
    if adding.last().is_none() {
        bail!("stopped before the first header was received");
    }
    let name = source.node.endpoint();
    let only = format!(
        "the headers were hashed locally, and each is the child of the previous one, but only {name} \
         claims that they are the chain"
    );
    match finalized {
        None => adding.warnings.push(only),
        Some(block) => {
            adding.warnings.extend(trusted.warnings());
            match adding.hash(block.number) {
                Some(hash) if hash == block.hash => {
                    trusted.lines().iter().for_each(|line| print_note(line));
                    if adding.last().is_some_and(|(last, _)| last > block.number) {
                        adding.warnings.push(format!("after block {}, {only}", block.number));
                    }
                }
                Some(hash) => {
                    return Err(Exit::Wrong.error(anyhow!(
                        "{}: {}; blocks of the index are false: build it again",
                        named(adding.path),
                        another(block, hash)
                    )));
                }
                None => adding.warnings.push(format!(
                    "{only}: the index does not reach the finalised block, {}, or has sealed it \
                     without its hash, so that it was not compared",
                    block.number
                )),
            }
        }
    }
    adding.report()
}

/// Compares the provider's chain with the finalised block before anything is added.
fn compare(node: &Node, block: BlockRef) -> anyhow::Result<()> {
    let name = || node.endpoint().to_string();
    let header = node.header_at(BlockTag::Number(block.number)).with_context(name)?;
    match header.map(|header| header.hash()) {
        Some(hash) if hash != block.hash => {
            Err(Exit::Wrong.error(anyhow!("{}: {}", name(), another(block, hash))))
        }
        _ => Ok(()),
    }
}

fn another(block: BlockRef, hash: B256) -> String {
    format!(
        "block {} is {hash}, but the finalised block is {}: another chain than the network's",
        block.number, block.hash
    )
}

struct Source {
    node: Node,
    stop: Stop,
    to: BlockTag,
}

impl Source {
    fn fetch(&mut self, adding: &mut Adding<'_>, first: u64) -> anyhow::Result<()> {
        let mut branches = 0;
        let mut bar = None;
        loop {
            let to = self.target()?;
            self.take_back(adding, to)?;
            let next = adding.last().map_or(first, |(last, _)| last + 1);
            // No header needs to be fetched, because the index already reaches the target.
            if next > to {
                // An empty index whose first block is above the target would stay empty.
                if adding.last().is_none() {
                    bail!(
                        "{}: the last block to add is {to}, but --from is {first}",
                        self.node.endpoint()
                    );
                }
                return Ok(());
            }
            let bar = bar.get_or_insert_with(|| {
                (Progress::counting((to - next).saturating_add(1), "blocks"), next)
            });
            match self.add(adding, next..=to, bar) {
                Ok(()) => return Ok(()),
                Err(Ended::Failed(error)) => return Err(error),
                Err(Ended::Stopped) => {
                    let last = adding.last().map_or(0, |(last, _)| last);
                    adding
                        .warnings
                        .push(format!("stopped at block {last}: blocks up to {to} are missing"));
                    return Ok(());
                }
                Err(Ended::OtherBranch(words)) => {
                    branches += 1;
                    let name = self.node.endpoint();
                    ensure!(
                        branches < BRANCHES,
                        "{name}: gave up after {branches} reorganisations: {words}"
                    );
                    print_note(&format!("{name}: {words}: looking for the last common block"));
                }
            }
        }
    }

    /// Returns the number of the last block to fetch.
    fn target(&self) -> anyhow::Result<u64> {
        let name = || self.node.endpoint().to_string();
        let head = |tag| self.node.block(tag).with_context(name);
        match self.to {
            BlockTag::Number(number) => {
                let BlockRef { number: latest, .. } = head(BlockTag::Latest)?;
                ensure!(
                    number <= latest,
                    "{}: the provider's head is block {latest}, but --to is {number}",
                    name()
                );
                Ok(number)
            }
            tag => Ok(head(tag)?.number),
        }
    }

    /// Removes the blocks that are not on the provider's chain.
    fn take_back(&self, adding: &mut Adding<'_>, to: u64) -> anyhow::Result<()> {
        let Some((last, _)) = adding.last() else { return Ok(()) };
        if to < last {
            print_note(&format!(
                "{}: the last block to add is {to}, but the index ends at block {last}",
                self.node.endpoint()
            ));
        }
        let mut end = last.min(to);
        if adding.hash(end).is_none() {
            return Ok(()); // sealed, and nothing is added
        }
        let lowest = loop {
            let lowest = adding.first_known(end);
            let start = end.saturating_sub(COMPARED - 1).max(lowest);
            let theirs = self.hashes(start..=end)?;
            let is_common = |(number, theirs): &(u64, B256)| adding.hash(*number) == Some(*theirs);
            match (start..=end).zip(theirs).filter(is_common).last() {
                // The index and the provider agree on the last block that is compared, so nothing
                // is removed. The head of a provider may be below the end of the index.
                Some((common, _)) if common == last.min(to) => return Ok(()),
                Some((common, _)) => return adding.cut(common),
                None if start == lowest => break lowest,
                None => end = start - 1,
            }
        };
        bail!(
            "{}: block {lowest} differs from that of {}, and lower blocks cannot be removed: the \
             index is of another chain, or the reorganisation is deeper than the unsealed blocks \
             of the index (--confirmations)",
            named(adding.path),
            self.node.endpoint()
        )
    }

    fn hashes(&self, numbers: RangeInclusive<u64>) -> anyhow::Result<Vec<B256>> {
        let mut hashes = Vec::new();
        self.node.headers(numbers, |headers| {
            hashes.extend(headers.iter().map(HeaderBuf::hash));
            Ok::<_, anyhow::Error>(())
        })?;
        Ok(hashes)
    }

    fn add(
        &self,
        adding: &mut Adding<'_>,
        numbers: RangeInclusive<u64>,
        (bar, start): &(Progress, u64),
    ) -> Result<(), Ended> {
        self.node.headers(numbers, |headers| {
            if self.stop.is_set() {
                return Err(Ended::Stopped);
            }
            let views: Vec<_> = headers.iter().map(HeaderBuf::view).collect();
            let mut chain = LinkedHeaders::new();
            let linked = chain.extend(&views);
            linked.map_err(|error| Ended::OtherBranch(error.to_string()))?;
            // The provider's chain was reorganised between two answers. Blocks of the new branch
            // must not follow blocks of the old one in the index.
            if adding.last().is_some_and(|(_, hash)| chain.parent_hash() != Some(hash)) {
                let number = views.first().map_or(0, HeaderView::number);
                return Err(Ended::OtherBranch(format!(
                    "block {number} is not the child of the block before it"
                )));
            }
            adding.take(&chain).map_err(Ended::Failed)?;
            bar.at(adding.last().map_or(0, |(last, _)| last + 1 - start));
            Ok(())
        })
    }
}
