//! The chain that is followed: what leads to its head, which of its blocks have logs, and what is
//! ready to be delivered. Nothing that comes is believed: headers are linked to the blocks before,
//! receipts are checked against the root of their header.

use alloc::boxed::Box;
use alloc::vec::Vec;

use alloy_trie::EMPTY_ROOT_HASH;

use super::anchors::Anchors;
use super::blocks::{Block, Blocks, Work};
use super::refused::Refused;
use super::rules::Rules;
use super::{AnswerError, Fault, Question, receipts};
use crate::eth::chain_profile::{ReceiptsScope, Stretch};
use crate::eth::header::{BlockRef, ChainBlock, HeaderBuf, HeaderChain};
use crate::eth::receipts::BlockReceipts;
use crate::eth::scan::QuerySet;

/// Headers requested at a time.
const HEADERS: u64 = 8192;
/// Blocks that an index is asked about at a time.
const INDEXED: u64 = 1 << 20;
/// Estimated bytes of receipts in JSON that are requested at a time.
const RECEIPTS: u64 = 32 << 20;

/// What the chain needs to go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Want {
    /// The answer to this.
    Answer(Question),
    /// A newer head.
    Head,
    /// Nothing: the last block was delivered.
    End,
}

/// What is ready to be delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Batch {
    /// The logs of blocks that left the chain.
    Reorg,
    /// The first pending blocks, so many.
    Blocks(usize),
}

/// Delivered blocks left the chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reorg {
    /// The last block that stays; `None` if none does.
    pub(super) ancestor: Option<BlockRef>,
    /// Those that left, the highest first.
    pub(super) removed: Vec<Block>,
}

/// The provider's head, seen from the chain that is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seen {
    /// The last block, or one after it.
    Ahead,
    /// One of the earlier blocks, or one before those that are kept: the provider lags.
    Lagging,
    /// On another branch.
    Branch,
}

/// Headers of another branch, down to the chain that is followed.
#[derive(Debug, Clone)]
struct Branch {
    /// The next one down.
    next: BlockRef,
    /// The highest first.
    headers: Vec<HeaderBuf>,
}

/// The chain that is followed.
#[derive(Debug, Clone)]
pub(super) struct Chain {
    rules: Rules,
    /// The rules' queries, compiled.
    queries: QuerySet,
    blocks: Blocks,
    head: Option<BlockRef>,
    /// What the provider called finalised.
    finalized_claim: Option<BlockRef>,
    /// The highest block of this chain that was called so.
    finalized: Option<BlockRef>,
    branch: Option<Branch>,
    /// A block whose receipts do not come: it may have left the chain.
    doubted: Option<u64>,
    reorg: Option<Reorg>,
    anchors: Anchors,
    /// The number of blocks whose receipts were verified.
    pub(super) examined: u64,
}

impl Chain {
    /// Goes on from what an earlier run had delivered.
    pub(super) fn resume(
        rules: Rules,
        blocks: Blocks,
        reorg: Option<Reorg>,
        anchors: Anchors,
    ) -> Self {
        let mut queries = QuerySet::new();
        for query in &rules.queries {
            queries.insert(query.compile(), 0);
        }
        Self {
            rules,
            queries,
            blocks,
            head: None,
            finalized_claim: None,
            finalized: None,
            branch: None,
            doubted: None,
            reorg,
            anchors,
            examined: 0,
        }
    }

    pub(super) fn rules(&self) -> &Rules {
        &self.rules
    }

    pub(super) fn blocks(&self) -> &Blocks {
        &self.blocks
    }

    pub(super) fn head(&self) -> Option<BlockRef> {
        self.head
    }

    pub(super) fn finalized(&self) -> Option<BlockRef> {
        self.finalized
    }

    pub(super) fn pending_reorg(&self) -> Option<&Reorg> {
        self.reorg.as_ref()
    }

    pub(super) fn anchors(&self) -> &Anchors {
        &self.anchors
    }

    pub(super) fn anchors_mut(&mut self) -> &mut Anchors {
        &mut self.anchors
    }

    /// The number that the next block has.
    pub(super) fn next_number(&self) -> u64 {
        self.blocks.last().map_or(self.rules.subject.start, |last| last.number.saturating_add(1))
    }

    /// Whether everything that was asked for is delivered, and the chain is linked to an anchor
    /// after it, if there is one.
    pub(super) fn is_at_end(&self) -> bool {
        let Some(to) = self.rules.to else { return false };
        let delivered = self.blocks.last_delivered().map(|last| last.number);
        let linked = self.blocks.last().map(|last| last.number);
        delivered >= Some(to) && linked >= Some(self.anchors.needed_for(to)) && self.reorg.is_none()
    }

    pub(super) fn want(&self) -> Want {
        // A header of the branch that replaces delivered blocks, from its newest back.
        if let Some(branch) = &self.branch {
            return Want::Answer(Question::Header(branch.next.hash));
        }
        if self.is_at_end() {
            return Want::End;
        }
        // The header that has the number of the block in doubt now.
        if let Some(number) = self.doubted {
            return Want::Answer(Question::Headers(number..=number));
        }
        let receipts = self.wanted_receipts();
        if !receipts.is_empty() {
            return Want::Answer(Question::Receipts(receipts));
        }
        let next = self.next_number();
        let last = self.last_of_interest();
        if let Some(indexed) = self.rules.index_to.map(|to| to.min(last)).filter(|&to| next <= to) {
            let last = indexed.min(next.saturating_add(INDEXED - 1));
            return Want::Answer(Question::Candidates(next..=last));
        }
        let is_last = self.blocks.last().is_some_and(|block| block.number == u64::MAX);
        match self.head {
            // After the last number that there is comes none.
            Some(head) if head.number.min(last) >= next && !is_last => {
                let last = head.number.min(last).min(next.saturating_add(HEADERS - 1));
                Want::Answer(Question::Headers(next..=last))
            }
            _ => Want::Head,
        }
    }

    /// The last block that has to be linked.
    fn last_of_interest(&self) -> u64 {
        let to = self.rules.to.unwrap_or(u64::MAX);
        to.saturating_add(self.rules.confirmations).max(self.anchors.needed_for(to))
    }

    /// The last block that may be delivered.
    fn last_confirmed(&self) -> Option<u64> {
        let last = self.blocks.last()?.number.checked_sub(self.rules.confirmations)?;
        Some(last.min(self.rules.to.unwrap_or(u64::MAX)))
    }

    fn wanted_receipts(&self) -> Vec<BlockRef> {
        let confirmed = self.last_confirmed();
        let pending = self.blocks.pending();
        let pending = pending.take_while(|block| Some(block.at.number) <= confirmed);
        let (mut wanted, mut bytes) = (Vec::new(), 0_u64);
        for block in pending {
            let Work::Wanted(work) = &block.work else { continue };
            bytes = bytes.saturating_add(work.cost);
            if bytes > RECEIPTS && !wanted.is_empty() {
                break;
            }
            wanted.push(block.at);
        }
        wanted
    }

    /// The provider's head.
    pub(super) fn on_head(&mut self, head: BlockRef) -> Seen {
        let Some(last) = self.blocks.last() else {
            self.head = Some(head);
            return Seen::Ahead;
        };
        if head.number > last.number || head == last {
            self.head = Some(head);
            return Seen::Ahead;
        }
        let first = self.blocks.first().map_or(0, |first| first.number);
        let lowest = self.rules.index_to.map_or(first, |to| first.max(to));
        if self.blocks.has(head) || head.number < lowest {
            return Seen::Lagging;
        }
        if self.branch.is_none() {
            self.branch = Some(Branch { next: head, headers: Vec::new() });
        }
        self.head = Some(head);
        Seen::Branch
    }

    /// What the provider calls finalised.
    pub(super) fn on_finalized(&mut self, point: BlockRef) {
        // Not the highest: one that is never on the chain would stand for ever.
        self.finalized_claim = Some(point);
        self.finalize();
    }

    fn finalize(&mut self) {
        let Some(claim) = self.finalized_claim else { return };
        let delivered =
            self.blocks.last_delivered().is_some_and(|last| last.number >= claim.number);
        let is_new = self.finalized.is_none_or(|before| before.number < claim.number);
        if delivered && is_new && self.blocks.has(claim) {
            self.finalized = Some(claim);
            self.blocks.finalize(claim.number);
        }
    }

    /// Headers by number, from the next block on.
    pub(super) fn on_headers(&mut self, headers: &[HeaderBuf]) -> Result<(), Refused> {
        if self.branch.is_some() {
            return Ok(());
        }
        let Some(first) = headers.first().map(HeaderBuf::view) else { return Ok(()) };
        if first.number() != self.next_number() {
            let (asked, number) = (self.next_number(), first.number());
            return Err(AnswerError::OtherNumber { asked, found: number }.into());
        }
        if self.blocks.last().is_some_and(|last| last.hash != first.parent_hash()) {
            let next = BlockRef { number: first.number(), hash: first.hash() };
            self.branch = Some(Branch { next, headers: Vec::new() });
            return self.on_header(&headers[0]);
        }
        let mut chain = HeaderChain::new();
        let views: Vec<_> = headers.iter().map(HeaderBuf::view).collect();
        let linked = chain.extend(&views);
        self.extend(&chain)?;
        // What does not follow is of another branch: asked for again, it shows.
        Ok(linked.map_err(AnswerError::Unlinked)?)
    }

    /// A header by hash, which a branch goes on with.
    pub(super) fn on_header(&mut self, header: &HeaderBuf) -> Result<(), Refused> {
        let Some(branch) = &mut self.branch else { return Ok(()) };
        let view = header.view();
        let found = BlockRef::from(header);
        if found != branch.next {
            return Err(AnswerError::OtherBlock { asked: branch.next.hash, found }.into());
        }
        branch.headers.push(header.clone());
        let parent =
            found.number.checked_sub(1).map(|number| BlockRef { number, hash: view.parent_hash() });
        let first = self.blocks.first().unwrap_or(found);
        let can_replace_all = !self.blocks.has_dropped() && found.number <= first.number;
        if parent.is_some_and(|parent| self.blocks.has(parent)) {
            return self.join(parent);
        }
        if can_replace_all {
            return self.join(None);
        }
        match parent {
            Some(parent) if parent.number > first.number || !self.blocks.has_dropped() => {
                branch.next = parent;
                Ok(())
            }
            _ => Err(Fault::TooDeep {
                branch: parent.unwrap_or(found),
                first,
                finalized: self.finalized.filter(|finalized| finalized.number >= first.number),
            }
            .into()),
        }
    }

    /// Whether the next header that comes is that of the block in doubt.
    pub(super) fn is_in_doubt(&self) -> bool {
        self.doubted.is_some() && self.branch.is_none()
    }

    /// Receipts of a block do not come. While they are waited for, a longer branch would go unseen.
    pub(super) fn doubt(&mut self, at: BlockRef) {
        self.doubted = self.blocks.has(at).then_some(at.number);
    }

    /// The header that has the number of a block in doubt.
    pub(super) fn on_check(&mut self, header: &HeaderBuf) -> Result<(), Refused> {
        let found = BlockRef::from(header);
        let asked = self.doubted.take();
        if asked != Some(found.number) || self.blocks.has(found) || self.branch.is_some() {
            return Ok(());
        }
        self.branch = Some(Branch { next: found, headers: Vec::new() });
        self.on_header(header)
    }

    /// What leads to the head cannot be had: the provider may have left that branch.
    pub(super) fn forget_head(&mut self) {
        self.branch = None;
        self.doubted = None;
        self.head = self.blocks.last();
    }

    /// Changes to the branch, which leaves the chain after `ancestor`.
    fn join(&mut self, ancestor: Option<BlockRef>) -> Result<(), Refused> {
        let Some(mut branch) = self.branch.take() else { return Ok(()) };
        if let Some(anchor) = self.anchors.held()
            && ancestor.is_none_or(|ancestor| ancestor.number < anchor.number)
        {
            return Err(Fault::BeforeAnchor(anchor).into());
        }
        branch.headers.reverse();
        let views: Vec<_> = branch.headers.iter().map(HeaderBuf::view).collect();
        let mut chain = HeaderChain::new();
        let linked = chain.extend(&views);
        linked.map_err(AnswerError::Unlinked)?;
        self.anchors.check(&chain)?;
        let removed = self.blocks.cut(ancestor.map(|ancestor| ancestor.number));
        if !removed.is_empty() {
            match &mut self.reorg {
                // Nothing of the one before was delivered yet.
                Some(reorg) => {
                    reorg.removed.extend(removed);
                    reorg.ancestor = ancestor;
                }
                None => self.reorg = Some(Reorg { ancestor, removed }),
            }
        }
        self.extend(&chain)
    }

    /// Links consecutive headers after the last block.
    fn extend(&mut self, chain: &HeaderChain) -> Result<(), Refused> {
        self.anchors.check(chain)?;
        // By their place in this part of the chain: a provider may claim any number.
        self.queries.rewind(0);
        let hits = self.queries.scan(0, chain.blooms());
        let mut candidates = hits.iter().map(|(place, _)| place).peekable();
        for (place, block) in (0..).zip(chain.blocks()) {
            let is_candidate = candidates.next_if_eq(&place).is_some();
            let at = BlockRef::from(block);
            let mut known = Block::without_logs(at);
            if self.wants_receipts(&block, is_candidate) {
                known.work = Work::Wanted(Box::new(receipts::wanted(&block)));
            }
            if self.anchors.linked().contains(&at) {
                self.anchors.hold(at);
            }
            self.blocks.push(known);
        }
        Ok(())
    }

    /// The candidates up to a block, as an index has them: each with the hash that it has there.
    pub(super) fn on_index(&mut self, candidates: &[HeaderBuf], end: BlockRef) {
        for header in candidates {
            let mut chain = HeaderChain::new();
            if chain.extend(&[header.view()]).is_ok() {
                for block in chain.blocks() {
                    let at = BlockRef::from(block);
                    let mut known = Block::without_logs(at);
                    if self.wants_receipts(&block, true) {
                        known.work = Work::Wanted(Box::new(receipts::wanted(&block)));
                    }
                    self.blocks.push(known);
                }
            }
        }
        if self.blocks.last() != Some(end) {
            self.blocks.push(Block::without_logs(end));
        }
    }

    fn wants_receipts(&self, block: &ChainBlock<'_>, is_candidate: bool) -> bool {
        let to = self.rules.to.unwrap_or(u64::MAX);
        let proves_absence = self.rules.profile.at(block.number).bloom.proves_absence();
        (self.rules.subject.from..=to).contains(&block.number)
            && (is_candidate || !proves_absence)
            && block.receipts_root != EMPTY_ROOT_HASH
    }

    /// Whether receipts hold every log of the blocks that come next, up to this one.
    pub(super) fn is_every_log_in_receipts(&self, last: u64) -> bool {
        let next = self.blocks.last_delivered().map_or(0, |before| before.number.saturating_add(1));
        let first = next.max(self.rules.subject.from).min(last);
        let every_log = |stretch: &Stretch| stretch.receipts == ReceiptsScope::EveryLog;
        let profile = &self.rules.profile;
        let mut later = profile.stretches().iter().filter(|it| (first..=last).contains(&it.first));
        every_log(profile.at(first)) && later.all(every_log)
    }

    /// Receipts of a block; of one that left the chain since they are of no use.
    pub(super) fn on_receipts(
        &mut self,
        at: BlockRef,
        found: &BlockReceipts,
    ) -> Result<(), Refused> {
        let Some(block) = self.blocks.get_mut(at.number).filter(|block| block.at == at) else {
            return Ok(());
        };
        let Work::Wanted(wanted) = &block.work else { return Ok(()) };
        let logs = receipts::logs(&self.rules, at, wanted, found)?;
        block.work = Work::Logs(logs);
        self.examined += 1;
        Ok(())
    }

    /// What can be delivered now.
    pub(super) fn batch(&self) -> Option<Batch> {
        if self.reorg.is_some() {
            return Some(Batch::Reorg);
        }
        let confirmed = self.last_confirmed();
        let ready = |block: &&Block| Some(block.at.number) <= confirmed && !block.is_wanted();
        match self.blocks.pending().take_while(ready).count() {
            0 => None,
            count => Some(Batch::Blocks(count)),
        }
    }

    /// The batch was delivered.
    pub(super) fn settle(&mut self, batch: Batch) {
        match batch {
            Batch::Reorg => self.reorg = None,
            Batch::Blocks(count) => self.blocks.deliver(count, self.rules.keep),
        }
        let delivered = self.blocks.last_delivered();
        if let Some(to) =
            self.rules.index_to.filter(|&to| delivered.is_some_and(|at| at.number >= to))
        {
            // Where blocks are left out, no branch is followed.
            self.blocks.finalize(to);
        }
        self.finalize();
    }
}
