//! State of the followed chain: linked headers, wanted receipts, and blocks ready for delivery.
//!
//! No answer is trusted. Headers must link to the preceding blocks, and receipts must match the
//! root in their header.

use alloc::boxed::Box;
use alloc::vec::Vec;

use alloy_primitives::B256;
use alloy_trie::EMPTY_ROOT_HASH;

use super::anchors::Anchors;
use super::blocks::{Block, Blocks, Work};
use super::rules::{self, Refused, Rules};
use super::{AnswerError, Fault, FollowNote, Question};
use crate::eth::chain_profile::{ProfileRange, ReceiptsScope};
use crate::eth::header::{BlockRef, ChainBlock, HeaderBuf, LinkedHeaders};
use crate::eth::receipts::BlockReceipts;
use crate::eth::scan::QuerySet;
use crate::eth::transactions::BlockTransactions;

/// Number of headers requested at a time: about 5 MB, since a header has about 600 bytes. An
/// estimate.
const HEADERS: u64 = 8192;
/// Number of blocks for which the index is queried at a time.
const INDEXED: u64 = 1 << 20;
/// Estimated bytes of receipts in JSON that are requested at a time.
const RECEIPTS: u64 = 32 << 20;

/// The data that the chain needs next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Want {
    /// The answer to this question.
    Answer(Question),
    /// A head of the provider that is newer than the last known head.
    Head,
    /// No further data: the last block was delivered.
    End,
}

/// Update that is ready to be delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Batch {
    /// The logs of blocks that a reorganisation removed.
    Reorg,
    /// The first pending blocks; the value is their number.
    Blocks(usize),
}

/// A reorganisation that removed delivered blocks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reorg {
    /// Last common block; `None` if no block remains.
    pub(super) ancestor: Option<BlockRef>,
    /// The removed blocks, the highest first.
    pub(super) removed: Vec<Block>,
}

/// Position of the provider's head relative to the followed chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seen {
    /// The head is the last followed block, or has a higher number than that block.
    Ahead,
    /// The head is an earlier block of the followed chain, or the head's number is below the kept
    /// blocks: the provider lags.
    Lagging,
    /// The head is a block of another branch.
    Branch,
}

/// Headers of another branch, traced back towards the followed chain.
#[derive(Debug, Clone)]
struct Branch {
    /// The next block to request: the parent of the last received header.
    next: BlockRef,
    /// The received headers, the highest first.
    headers: Vec<HeaderBuf>,
}

/// The followed chain.
#[derive(Debug, Clone)]
pub(super) struct Chain {
    pub(super) rules: Rules,
    /// The compiled queries of the rules.
    queries: QuerySet,
    pub(super) blocks: Blocks,
    pub(super) head: Option<BlockRef>,
    /// Block that the provider most recently called finalised.
    finalized_claim: Option<BlockRef>,
    /// Highest delivered block of this chain that the provider called finalised.
    pub(super) finalized: Option<BlockRef>,
    branch: Option<Branch>,
    /// Number of a block whose receipts could not be obtained: the block may no longer be on the
    /// chain.
    doubted: Option<u64>,
    pub(super) reorg: Option<Reorg>,
    pub(super) anchors: Anchors,
    /// Number of blocks whose receipts were verified.
    pub(super) examined: u64,
}

impl Chain {
    /// Continues from the blocks that an earlier run delivered.
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

    /// Adds an anchor that the caller trusts since the start.
    pub(super) fn add_anchor(&mut self, hash: B256) {
        match self.blocks.find(hash) {
            Some(at) => self.anchors.hold(at),
            None => self.anchors.add(hash),
        }
    }

    /// Processes the number of a newer anchor, whose hash was checked. The result is a note if the
    /// anchor cannot be compared with the chain.
    pub(super) fn on_anchor(&mut self, at: BlockRef) -> Result<Option<FollowNote>, Box<Fault>> {
        // A newer anchor may have replaced this one since its header was requested.
        if !self.anchors.is_newer(at.hash) {
            return Ok(None);
        }
        let is_indexed = Some(at.number) <= self.rules.index_to;
        match self.blocks.at(at.number) {
            Some(block) if block == at => self.anchors.hold(at),
            // No branch is followed in the range of the index.
            Some(block) if is_indexed => {
                let (found, of) = (block.hash, "the index");
                return Err(Fault::OtherThanAnchor { anchor: at, found, of }.into());
            }
            // The provider may leave this branch: its current chain is checked next.
            Some(_) => self.anchors.locate(at),
            None if at.number >= self.next_number() && !is_indexed => self.anchors.locate(at),
            None => {
                self.anchors.forget(at.hash);
                let is_proven = self.anchors.held.is_some_and(|held| held.number >= at.number);
                return Ok((!is_proven).then_some(FollowNote::AnchorNotCompared(at)));
            }
        }
        Ok(None)
    }

    /// Returns a newer anchor that the chain contradicts, and the chain's block with the same
    /// number.
    ///
    /// No further block is linked or delivered until the provider leaves its branch.
    fn contradiction(&self) -> Option<(BlockRef, BlockRef)> {
        let of = |anchor: BlockRef| Some((anchor, self.blocks.at(anchor.number)?));
        self.anchors.located().filter_map(of).find(|(anchor, block)| anchor != block)
    }

    /// Returns `true` if a newer anchor contradicts the chain.
    pub(super) fn is_contradicted(&self) -> bool {
        self.contradiction().is_some()
    }

    /// Returns `true` if headers of another branch are requested by hash.
    pub(super) fn is_tracing(&self) -> bool {
        self.branch.is_some()
    }

    /// Returns the number of the next block to link.
    pub(super) fn next_number(&self) -> u64 {
        self.blocks.last().map_or(self.rules.subject.start, |last| last.number.saturating_add(1))
    }

    /// Returns `true` if all requested blocks are delivered. If there is a next anchor, the chain
    /// must also be linked up to that anchor.
    pub(super) fn is_at_end(&self) -> bool {
        let Some(to) = self.rules.to else { return false };
        let delivered = self.blocks.last_delivered().map(|last| last.number);
        let linked = self.blocks.last().map(|last| last.number);
        delivered >= Some(to)
            && linked >= Some(self.anchors.needed_for(to))
            && self.reorg.is_none()
            && !self.is_contradicted()
    }

    /// Returns the data that the chain needs next.
    pub(super) fn want(&self) -> Want {
        // A branch is traced back from its newest header until it meets the followed chain.
        if let Some(branch) = &self.branch {
            return Want::Answer(Question::Header(branch.next.hash));
        }
        // Request the header that the provider now has at the number of the anchor.
        if let Some((anchor, _)) = self.contradiction() {
            return Want::Answer(Question::Headers(anchor.number..=anchor.number));
        }
        if self.is_at_end() {
            return Want::End;
        }
        // Request the header that the provider now has at the number of the doubted block.
        if let Some(number) = self.doubted {
            return Want::Answer(Question::Headers(number..=number));
        }
        // Hashes come before further receipts: without them, logs that are known already wait.
        let unbound: Vec<_> = self.unbound().collect();
        if !unbound.is_empty() {
            return Want::Answer(Question::Transactions(unbound));
        }
        // Receipts come before new headers: pending blocks are delivered as early as possible.
        let receipts = self.wanted_receipts();
        if !receipts.is_empty() {
            return Want::Answer(Question::Receipts(receipts));
        }
        let next = self.next_number();
        let last = self.last_of_interest();
        // In the range of the index, only the headers of the index's candidates are requested: the
        // filters in the index prove that the other blocks contain no matching log.
        if let Some(indexed) = self.rules.index_to.map(|to| to.min(last)).filter(|&to| next <= to) {
            let last = indexed.min(next.saturating_add(INDEXED - 1));
            return Want::Answer(Question::Candidates(next..=last));
        }
        let is_last = self.blocks.last().is_some_and(|block| block.number == u64::MAX);
        match self.head {
            // No block can follow the highest possible number.
            Some(head) if head.number.min(last) >= next && !is_last => {
                let last = head.number.min(last).min(next.saturating_add(HEADERS - 1));
                Want::Answer(Question::Headers(next..=last))
            }
            _ => Want::Head,
        }
    }

    /// Returns the number of the last block that must be linked.
    fn last_of_interest(&self) -> u64 {
        let to = self.rules.to.unwrap_or(u64::MAX);
        to.saturating_add(self.rules.confirmations).max(self.anchors.needed_for(to))
    }

    /// Returns the number of the last block that may be delivered.
    fn last_confirmed(&self) -> Option<u64> {
        let last = self.blocks.last()?.number.checked_sub(self.rules.confirmations)?;
        Some(last.min(self.rules.to.unwrap_or(u64::MAX)))
    }

    /// Returns the pending blocks with enough confirmations.
    fn pending_confirmed(&self) -> impl Iterator<Item = &Block> {
        let confirmed = self.last_confirmed();
        self.blocks.pending().take_while(move |block| Some(block.at.number) <= confirmed)
    }

    /// Returns the blocks whose transactions are needed. Their number is at most the number of
    /// blocks whose receipts are requested at a time, because no further receipts are requested
    /// before these transactions.
    fn unbound(&self) -> impl Iterator<Item = BlockRef> {
        let unbound = |block: &&Block| matches!(block.work, Work::Unbound { .. });
        self.pending_confirmed().filter(unbound).map(|block| block.at)
    }

    /// Returns the next blocks whose receipts are needed, limited by their estimated size.
    fn wanted_receipts(&self) -> Vec<BlockRef> {
        let (mut wanted, mut bytes) = (Vec::new(), 0_u64);
        for block in self.pending_confirmed() {
            let Work::Wanted(work) = &block.work else { continue };
            bytes = bytes.saturating_add(work.cost);
            if bytes > RECEIPTS && !wanted.is_empty() {
                break;
            }
            wanted.push(block.at);
        }
        wanted
    }

    /// Processes the provider's head.
    pub(super) fn on_head(&mut self, head: BlockRef) -> Seen {
        let Some(last) = self.blocks.last() else {
            self.head = Some(head);
            return Seen::Ahead;
        };
        // A higher head may be on another branch. Linking the headers will show whether the head is
        // on another branch.
        if head.number > last.number || head == last {
            self.head = Some(head);
            return Seen::Ahead;
        }
        // The followed blocks before block `lowest` were dropped, or the index leaves them out. A
        // head before `lowest` can therefore not be compared.
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

    /// Processes the block that the provider calls finalised.
    pub(super) fn on_finalized(&mut self, point: BlockRef) {
        // Keep the newest claim, not the highest: otherwise a claimed block that never becomes part
        // of this chain would prevent all later claims.
        self.finalized_claim = Some(point);
        self.finalize();
    }

    fn finalize(&mut self) {
        // Blocks that contradict an anchor must not be dropped as final.
        let Some(claim) = self.finalized_claim.filter(|_| !self.is_contradicted()) else { return };
        let delivered =
            self.blocks.last_delivered().is_some_and(|last| last.number >= claim.number);
        let is_new = self.finalized.is_none_or(|before| before.number < claim.number);
        if delivered && is_new && self.blocks.has(claim) {
            self.finalized = Some(claim);
            self.blocks.finalize(claim.number);
        }
    }

    /// Processes headers that were requested by number, beginning with the next block.
    pub(super) fn on_headers(&mut self, headers: &[HeaderBuf]) -> Result<(), Refused> {
        // While a branch is traced back, only headers that were requested by hash are needed.
        if self.branch.is_some() {
            return Ok(());
        }
        let Some(first) = headers.first().map(HeaderBuf::view) else { return Ok(()) };
        // The first header must have the next number, because headers are linked only to the last
        // block.
        if first.number() != self.next_number() {
            let (asked, number) = (self.next_number(), first.number());
            return Err(AnswerError::OtherNumber { asked, found: number }.into());
        }
        // If the first header has another parent, the provider has reorganised: trace back its
        // branch.
        if self.blocks.last().is_some_and(|last| last.hash != first.parent_hash()) {
            let next = BlockRef { number: first.number(), hash: first.hash() };
            self.branch = Some(Branch { next, headers: Vec::new() });
            return self.on_header(&headers[0]);
        }
        let mut chain = LinkedHeaders::new();
        let views: Vec<_> = headers.iter().map(HeaderBuf::view).collect();
        let linked = chain.extend(&views);
        self.extend(&chain)?;
        // The headers before a broken link are kept. If the next header belongs to another branch,
        // requesting it again reveals that branch.
        Ok(linked.map_err(AnswerError::Unlinked)?)
    }

    /// Processes a header that was requested by hash and continues a branch.
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
        // If no block was dropped, a branch that reaches the first block can replace the whole
        // chain.
        let can_replace_all = !self.blocks.has_dropped && found.number <= first.number;
        if parent.is_some_and(|parent| self.blocks.has(parent)) {
            return self.join(parent);
        }
        if can_replace_all {
            return self.join(None);
        }
        match parent {
            Some(parent) if parent.number > first.number || !self.blocks.has_dropped => {
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

    /// Returns `true` if a block with this number is linked. A request for its header then checks
    /// the block, because the provider may have left the block's branch.
    pub(super) fn has_linked(&self, number: u64) -> bool {
        self.blocks.last().is_some_and(|last| last.number >= number)
    }

    /// Marks a block as possibly reorganised away, because its receipts could not be obtained.
    ///
    /// Without this mark, the follower would wait for these receipts and never see the branch that
    /// replaced the block.
    pub(super) fn doubt(&mut self, at: BlockRef) {
        self.doubted = self.blocks.has(at).then_some(at.number);
    }

    /// Processes the header that the provider now has at the number of the doubted block, or of a
    /// block that contradicts an anchor.
    pub(super) fn on_check(&mut self, header: &HeaderBuf) -> Result<(), Refused> {
        let found = BlockRef::from(header);
        let doubted = self.doubted.take();
        if let Some((anchor, block)) = self.contradiction() {
            let (asked, number) = (anchor.number, found.number);
            if number != asked {
                return Err(AnswerError::OtherNumber { asked, found: number }.into());
            }
            if found == block {
                return Err(AnswerError::OtherThanAnchor { anchor, found: found.hash }.into());
            }
        } else if doubted != Some(found.number) || self.blocks.has(found) {
            return Ok(());
        }
        if self.branch.is_some() {
            return Ok(());
        }
        self.branch = Some(Branch { next: found, headers: Vec::new() });
        self.on_header(header)
    }

    /// Discards the head and the branch, because the headers of the branch could not be obtained:
    /// the provider may have left that branch.
    pub(super) fn forget_head(&mut self) {
        self.branch = None;
        self.doubted = None;
        self.head = self.blocks.last();
    }

    /// Switches to the received branch, whose first block is the child of `ancestor`.
    fn join(&mut self, ancestor: Option<BlockRef>) -> Result<(), Refused> {
        let Some(mut branch) = self.branch.take() else { return Ok(()) };
        // All blocks up to an anchor are authentic, so no valid branch leaves the chain before that
        // anchor.
        if let Some(anchor) = self.anchors.held
            && ancestor.is_none_or(|ancestor| ancestor.number < anchor.number)
        {
            return Err(Fault::BeforeAnchor(anchor).into());
        }
        branch.headers.reverse();
        let views: Vec<_> = branch.headers.iter().map(HeaderBuf::view).collect();
        let mut chain = LinkedHeaders::new();
        let linked = chain.extend(&views);
        linked.map_err(AnswerError::Unlinked)?;
        self.anchors.check(&chain)?;
        let removed = self.blocks.cut(ancestor.map(|ancestor| ancestor.number));
        if !removed.is_empty() {
            match &mut self.reorg {
                // An earlier reorganisation is not delivered yet: merge both reorganisations.
                Some(reorg) => {
                    reorg.removed.extend(removed);
                    reorg.ancestor = ancestor;
                }
                None => self.reorg = Some(Reorg { ancestor, removed }),
            }
        }
        self.extend(&chain)
    }

    /// Links consecutive headers after the last block, and marks the blocks whose receipts are
    /// needed.
    fn extend(&mut self, chain: &LinkedHeaders) -> Result<(), Refused> {
        self.anchors.check(chain)?;
        // Scan by index within this batch, not by block number: a provider may claim any number,
        // and `QuerySet::scan` panics near `u64::MAX`.
        self.queries.rewind(0);
        let hits = self.queries.scan(0, chain.blooms());
        let mut candidates = hits.iter().map(|(place, _)| place).peekable();
        for (place, block) in (0..).zip(chain.blocks()) {
            let is_candidate = candidates.next_if_eq(&place).is_some();
            let at = BlockRef::from(block);
            let mut known = Block::without_logs(at);
            if self.wants_receipts(&block, is_candidate) {
                known.work = Work::Wanted(Box::new(rules::wanted(&block)));
            }
            if self.anchors.contains(at) {
                self.anchors.hold(at);
            }
            self.blocks.push(known);
        }
        Ok(())
    }

    /// Adds the candidates of the index up to the block `end`. Each candidate must have the hash
    /// that the index stores.
    pub(super) fn on_index(&mut self, candidates: &[HeaderBuf], end: BlockRef) {
        // Link each header alone: the blocks between candidates are left out, so the headers do not
        // link to each other.
        for header in candidates {
            let mut chain = LinkedHeaders::new();
            if chain.extend(&[header.view()]).is_ok() {
                for block in chain.blocks() {
                    let at = BlockRef::from(block);
                    let mut known = Block::without_logs(at);
                    if self.wants_receipts(&block, true) {
                        known.work = Work::Wanted(Box::new(rules::wanted(&block)));
                    }
                    self.blocks.push(known);
                }
            }
        }
        if self.blocks.last() != Some(end) {
            self.blocks.push(Block::without_logs(end));
        }
    }

    /// Returns `true` if the receipts of a block are needed to find its matching logs.
    fn wants_receipts(&self, block: &ChainBlock<'_>, is_candidate: bool) -> bool {
        let to = self.rules.to.unwrap_or(u64::MAX);
        let proves_absence = self.rules.profile.at(block.number).bloom.proves_absence();
        (self.rules.subject.from..=to).contains(&block.number)
            && (is_candidate || !proves_absence)
            && block.receipts_root != EMPTY_ROOT_HASH
    }

    /// Returns `true` if receipts contain every log of the undelivered blocks up to `last`.
    pub(super) fn is_every_log_in_receipts(&self, last: u64) -> bool {
        let next = self.blocks.last_delivered().map_or(0, |before| before.number.saturating_add(1));
        let first = next.max(self.rules.subject.from).min(last);
        let every_log = |range: &ProfileRange| range.receipts == ReceiptsScope::EveryLog;
        self.rules.profile.within(&(first..=last)).iter().all(every_log)
    }

    /// Processes the receipts of a block, or ignores them if the block is no longer on the chain.
    pub(super) fn on_receipts(
        &mut self,
        at: BlockRef,
        found: &BlockReceipts,
    ) -> Result<(), Refused> {
        let Some(block) = self.blocks.get_mut(at.number).filter(|block| block.at == at) else {
            return Ok(());
        };
        let Work::Wanted(wanted) = &block.work else { return Ok(()) };
        let logs = rules::logs(&self.rules, at, wanted, found)?;
        let transactions_root = wanted.transactions_root;
        // Without a matching log, nobody needs the transactions.
        block.work = if self.rules.transaction_hashes && !logs.is_empty() {
            Work::Unbound { transactions_root, logs }
        } else {
            Work::Logs(logs)
        };
        self.examined += 1;
        Ok(())
    }

    /// Returns `true` if the transactions of a block are needed.
    pub(super) fn wants_transactions(&self, at: BlockRef) -> bool {
        let block = self.blocks.get(at.number).filter(|block| block.at == at);
        block.is_some_and(|block| matches!(block.work, Work::Unbound { .. }))
    }

    /// Processes the transactions of a block, or ignores them if they are not needed.
    pub(super) fn on_transactions(
        &mut self,
        at: BlockRef,
        found: &BlockTransactions,
    ) -> Result<(), AnswerError> {
        let Some(block) = self.blocks.get_mut(at.number).filter(|block| block.at == at) else {
            return Ok(());
        };
        let Work::Unbound { transactions_root, logs } = &mut block.work else { return Ok(()) };
        let proven = found.prove_hashes(*transactions_root, logs.iter_mut());
        proven.map_err(AnswerError::Transactions)?;
        block.work = Work::Logs(core::mem::take(logs));
        Ok(())
    }

    /// Leaves the transaction hashes of a block's logs unproven.
    pub(super) fn leave_unbound(&mut self, at: BlockRef) {
        let block = self.blocks.get_mut(at.number).filter(|block| block.at == at);
        if let Some(Block { work, .. }) = block
            && let Work::Unbound { logs, .. } = work
        {
            *work = Work::Logs(core::mem::take(logs));
        }
    }

    /// Returns the update that can be delivered now.
    pub(super) fn batch(&self) -> Option<Batch> {
        // Removed blocks must be withdrawn before the blocks that replace them.
        if self.reorg.is_some() {
            return Some(Batch::Reorg);
        }
        // These blocks are not the chain that the caller trusts.
        if self.is_contradicted() {
            return None;
        }
        match self.pending_confirmed().take_while(|block| block.is_ready()).count() {
            0 => None,
            count => Some(Batch::Blocks(count)),
        }
    }

    /// Records that a batch was delivered and acknowledged.
    pub(super) fn settle(&mut self, batch: Batch) {
        match batch {
            Batch::Reorg => self.reorg = None,
            Batch::Blocks(count) => self.blocks.deliver(count, self.rules.keep),
        }
        let delivered = self.blocks.last_delivered();
        if let Some(to) =
            self.rules.index_to.filter(|&to| delivered.is_some_and(|at| at.number >= to))
        {
            // The index leaves out blocks, so no branch can be followed in the range of the index.
            // The blocks in this range are therefore treated as final.
            self.blocks.finalize(to);
        }
        self.finalize();
    }
}
