//! What is asked next and what is printed next, from answers alone: no network, no clock.
//!
//! The driver asks what is [wanted](Machine::want), hands in what comes, and prints each
//! [batch](Machine::batch) that is ready. Nothing that comes is believed: headers are linked to
//! the blocks before, receipts are held against the root of their header.

use chainsieve::alloy_primitives::{B256, b256};
use chainsieve::eth::header::{ChainBlock, HeaderBuf, HeaderChain};
use chainsieve::eth::receipts::BlockReceipts;
use chainsieve::eth::scan::Scanner;
use chainsieve::simd::Backend;

use super::blocks::{Block, Blocks, Point, Work};
use super::evidence;
use super::fault::{Fault, Refused};
use super::messages::{Batch, INDEXED, Reorg, Rules, STRETCH, Seen, Want};

/// Bytes of receipts, as a forecast has them in JSON, that are asked for at a time.
const RECEIPTS: u64 = 32 << 20;
/// Root of no receipts.
const NO_RECEIPTS: B256 =
    b256!("0x56e81f171bcc55a6ff8345e692c0f86e5b48e01b996cadc001622fb5e363b421");

/// Headers from another branch down to the chain that is followed.
#[derive(Debug, Clone)]
struct Branch {
    /// What comes next, going down.
    next: Point,
    /// The highest first.
    headers: Vec<HeaderBuf>,
}

/// The state.
#[derive(Debug, Clone)]
pub(super) struct Machine {
    rules: Rules,
    scanner: Option<Scanner>,
    blocks: Blocks,
    head: Option<Point>,
    /// What the provider called finalised.
    finalized_claim: Option<Point>,
    /// The highest block of this chain that was called so.
    finalized: Option<Point>,
    branch: Option<Branch>,
    /// A block whose receipts don't come: it may have left the chain.
    doubted: Option<u64>,
    reorg: Option<Reorg>,
    /// Anchors that were passed, and how many of them were said.
    anchored: Option<Point>,
    anchored_said: bool,
    /// Blocks whose receipts were looked into.
    pub(super) examined: u64,
}

impl Machine {
    #[cfg(test)]
    pub(super) fn new(rules: Rules) -> Self {
        Self::resume(rules, Blocks::default(), None, None)
    }

    /// Goes on from what an earlier process had printed.
    pub(super) fn resume(
        rules: Rules,
        blocks: Blocks,
        reorg: Option<Reorg>,
        anchored: Option<Point>,
    ) -> Self {
        Self {
            rules,
            scanner: None,
            blocks,
            head: None,
            finalized_claim: None,
            finalized: None,
            branch: None,
            doubted: None,
            reorg,
            anchored,
            anchored_said: true,
            examined: 0,
        }
    }

    pub(super) fn rules(&self) -> &Rules {
        &self.rules
    }

    pub(super) fn blocks(&self) -> &Blocks {
        &self.blocks
    }

    pub(super) fn head(&self) -> Option<Point> {
        self.head
    }

    pub(super) fn finalized(&self) -> Option<Point> {
        self.finalized
    }

    pub(super) fn pending_reorg(&self) -> Option<&Reorg> {
        self.reorg.as_ref()
    }

    pub(super) fn anchored(&self) -> Option<Point> {
        self.anchored
    }

    /// An anchor is a block of the chain: an index says so.
    pub(super) fn anchor(&mut self, anchor: Point) {
        if self.anchored.is_none_or(|before| before.number < anchor.number) {
            self.anchored = Some(anchor);
            self.anchored_said = false;
        }
    }

    /// An anchor that was passed and not yet said.
    pub(super) fn take_anchored(&mut self) -> Option<Point> {
        let said = std::mem::replace(&mut self.anchored_said, true);
        self.anchored.filter(|_| !said)
    }

    /// The number that the next block has.
    pub(super) fn next_number(&self) -> u64 {
        self.blocks.last().map_or(self.rules.start, |last| last.number.saturating_add(1))
    }

    /// Whether everything that was asked for is printed.
    pub(super) fn is_at_end(&self) -> bool {
        let printed = self.blocks.last_printed().map(|last| last.number);
        self.rules.to.is_some_and(|to| printed >= Some(to)) && self.reorg.is_none()
    }

    pub(super) fn want(&self) -> Want {
        if let Some(branch) = &self.branch {
            return Want::Header(branch.next);
        }
        if self.is_at_end() {
            return Want::End;
        }
        if let Some(number) = self.doubted {
            return Want::Check(number);
        }
        let receipts = self.wanted_receipts();
        if !receipts.is_empty() {
            return Want::Receipts(receipts);
        }
        let next = self.next_number();
        let last = self.last_of_interest();
        if let Some(indexed) = self.rules.index_to.map(|to| to.min(last)).filter(|&to| next <= to) {
            return Want::Index(next..=indexed.min(next.saturating_add(INDEXED - 1)));
        }
        let is_last = self.blocks.last().is_some_and(|block| block.number == u64::MAX);
        match self.head {
            // Behind the last number that there is comes none.
            Some(head) if head.number.min(last) >= next && !is_last => {
                Want::Headers(next..=head.number.min(last).min(next.saturating_add(STRETCH - 1)))
            }
            _ => Want::Head,
        }
    }

    /// The last block that has to be linked.
    fn last_of_interest(&self) -> u64 {
        let to = self.rules.to.unwrap_or(u64::MAX);
        to.saturating_add(self.rules.confirmations)
    }

    /// The last block that may be printed.
    fn last_confirmed(&self) -> Option<u64> {
        let last = self.blocks.last()?.number.checked_sub(self.rules.confirmations)?;
        Some(last.min(self.rules.to.unwrap_or(u64::MAX)))
    }

    fn wanted_receipts(&self) -> Vec<Point> {
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
    pub(super) fn on_head(&mut self, head: Point) -> Seen {
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
            return Seen::Behind;
        }
        if self.branch.is_none() {
            self.branch = Some(Branch { next: head, headers: Vec::new() });
        }
        self.head = Some(head);
        Seen::Other
    }

    /// What the provider calls finalised.
    pub(super) fn on_finalized(&mut self, point: Point) {
        if self.finalized_claim.is_none_or(|claim| claim.number <= point.number) {
            self.finalized_claim = Some(point);
        }
        self.finalize();
    }

    fn finalize(&mut self) {
        let Some(claim) = self.finalized_claim else { return };
        let printed = self.blocks.last_printed().is_some_and(|last| last.number >= claim.number);
        let is_new = self.finalized.is_none_or(|before| before.number < claim.number);
        if printed && is_new && self.blocks.has(claim) {
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
            return Err(Refused::Answer(format!("block {number}, and {asked} was asked for")));
        }
        if self.blocks.last().is_some_and(|last| last.hash != first.parent_hash()) {
            let next = Point { number: first.number(), hash: first.hash() };
            self.branch = Some(Branch { next, headers: Vec::new() });
            return self.on_header(&headers[0]);
        }
        let mut chain = HeaderChain::new();
        let views: Vec<_> = headers.iter().map(HeaderBuf::view).collect();
        let linked = chain.extend(Backend::best(), &views);
        self.extend(&chain)?;
        // What does not follow is of another branch: asked for again, it shows.
        linked.map_err(|error| Refused::Answer(error.to_string()))
    }

    /// A header by hash, which a branch goes on with.
    pub(super) fn on_header(&mut self, header: &HeaderBuf) -> Result<(), Refused> {
        let Some(branch) = &mut self.branch else { return Ok(()) };
        let view = header.view();
        let found = Point { number: view.number(), hash: header.hash() };
        if found != branch.next {
            let Point { number, hash } = branch.next;
            let error = format!(
                "block {}, {}, and {number}, {hash}, was asked for",
                found.number, found.hash
            );
            return Err(Refused::Answer(error));
        }
        branch.headers.push(header.clone());
        let parent =
            found.number.checked_sub(1).map(|number| Point { number, hash: view.parent_hash() });
        let first = self.blocks.first().unwrap_or(found);
        let can_replace_all = !self.blocks.has_let_go() && found.number <= first.number;
        if parent.is_some_and(|parent| self.blocks.has(parent)) {
            return self.join(parent);
        }
        if can_replace_all {
            return self.join(None);
        }
        match parent {
            Some(parent) if parent.number > first.number || !self.blocks.has_let_go() => {
                branch.next = parent;
                Ok(())
            }
            _ => Err(Fault::TooDeep {
                branch: parent.unwrap_or(found),
                first,
                printed: self.blocks.last_printed().map(|last| last.number),
                finalized: self.finalized.map(|finalized| finalized.number),
            }
            .into()),
        }
    }

    /// Receipts of a block don't come. A longer branch does not show by itself as long as they are
    /// waited for.
    pub(super) fn doubt(&mut self, at: Point) {
        self.doubted = self.blocks.has(at).then_some(at.number);
    }

    /// The header that has the number of a block in doubt.
    pub(super) fn on_check(&mut self, header: &HeaderBuf) -> Result<(), Refused> {
        let found = Point { number: header.view().number(), hash: header.hash() };
        let asked = self.doubted.take();
        if asked != Some(found.number) || self.blocks.has(found) || self.branch.is_some() {
            return Ok(());
        }
        self.branch = Some(Branch { next: found, headers: Vec::new() });
        self.on_header(header)
    }

    /// What leads to the head can't be had: the provider may have thought better of it.
    pub(super) fn forget_head(&mut self) {
        self.branch = None;
        self.doubted = None;
        self.head = self.blocks.last();
    }

    /// Goes over to the branch, which parts behind `ancestor`.
    fn join(&mut self, ancestor: Option<Point>) -> Result<(), Refused> {
        let Some(mut branch) = self.branch.take() else { return Ok(()) };
        if let Some(anchor) = self.anchored
            && ancestor.is_none_or(|ancestor| ancestor.number < anchor.number)
        {
            let ancestor = ancestor.map(|ancestor| ancestor.number);
            return Err(Fault::BelowAnchor { anchor, ancestor }.into());
        }
        branch.headers.reverse();
        let views: Vec<_> = branch.headers.iter().map(HeaderBuf::view).collect();
        let mut chain = HeaderChain::new();
        let linked = chain.extend(Backend::best(), &views);
        linked.map_err(|error| Refused::Answer(error.to_string()))?;
        self.check_anchors(&chain)?;
        let removed = self.blocks.cut(ancestor.map(|ancestor| ancestor.number));
        if !removed.is_empty() {
            match &mut self.reorg {
                // Nothing of the one before was printed yet.
                Some(reorg) => {
                    reorg.removed.extend(removed);
                    reorg.ancestor = ancestor;
                }
                None => self.reorg = Some(Reorg { ancestor, removed }),
            }
        }
        self.extend(&chain)
    }

    /// Links consecutive headers behind the last block.
    fn extend(&mut self, chain: &HeaderChain) -> Result<(), Refused> {
        self.check_anchors(chain)?;
        let compiled = self.rules.query.compile(Backend::best());
        let by = || Scanner::ordered_by(Backend::best(), &compiled, chain.blooms());
        let scanner = self.scanner.get_or_insert_with(by);
        let mut candidates = scanner.candidates(chain.blooms()).into_iter().peekable();
        for (index, block) in chain.blocks().enumerate() {
            let is_candidate = candidates.next_if_eq(&index).is_some();
            let at = Point { number: block.number, hash: block.hash };
            let mut known = Block::without_logs(at);
            if self.wants_receipts(&block, is_candidate) {
                known.work = Work::Wanted(Box::new(evidence::wanted(&block)));
            }
            if self.rules.anchors.contains(&at) {
                self.anchored = Some(at);
                self.anchored_said = false;
            }
            self.blocks.push(known);
        }
        Ok(())
    }

    /// The candidates up to a block, as an index has them: each with the hash that it has there.
    pub(super) fn on_index(&mut self, candidates: &[HeaderBuf], end: Point) {
        for header in candidates {
            let mut chain = HeaderChain::new();
            if chain.extend(Backend::best(), &[header.view()]).is_ok() {
                for block in chain.blocks() {
                    let at = Point { number: block.number, hash: block.hash };
                    let mut known = Block::without_logs(at);
                    if self.wants_receipts(&block, true) {
                        known.work = Work::Wanted(Box::new(evidence::wanted(&block)));
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
        (self.rules.from..=to).contains(&block.number)
            && (is_candidate || !proves_absence)
            && block.receipts_root != NO_RECEIPTS
    }

    fn check_anchors(&self, chain: &HeaderChain) -> Result<(), Fault> {
        for &anchor in &self.rules.anchors {
            match chain.block(anchor.number) {
                Some(block) if block.hash != anchor.hash => {
                    return Err(Fault::Anchor { anchor, found: block.hash });
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Receipts of a block; of one that left the chain since they are of no use.
    pub(super) fn on_receipts(
        &mut self,
        at: Point,
        receipts: &BlockReceipts,
    ) -> Result<(), Refused> {
        let Some(block) = self.blocks.get_mut(at.number).filter(|block| block.at == at) else {
            return Ok(());
        };
        let Work::Wanted(wanted) = &block.work else { return Ok(()) };
        let logs = evidence::logs(&self.rules, at, wanted, receipts)?;
        block.work = Work::Logs(logs);
        self.examined += 1;
        Ok(())
    }

    /// What can be printed now.
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

    /// The batch was printed.
    pub(super) fn settle(&mut self, batch: Batch) {
        match batch {
            Batch::Reorg => self.reorg = None,
            Batch::Blocks(count) => self.blocks.print(count, self.rules.keep),
        }
        let printed = self.blocks.last_printed();
        if let Some(to) =
            self.rules.index_to.filter(|&to| printed.is_some_and(|at| at.number >= to))
        {
            // Where blocks are left out, no branch is followed.
            self.blocks.finalize(to);
        }
        self.finalize();
    }
}
