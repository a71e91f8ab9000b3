//! Start of a run: resolves tags and anchors, and checks that anchors, index, provider and cursor
//! belong to the same chain.

use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use alloy_primitives::B256;

use super::cursor::Cursor;
use super::rules::{Rules, Subject};
use super::{Config, Fault, FollowNote, Indexed, Question};
use crate::eth::chain_profile::ProfileRange;
use crate::eth::header::{BlockRef, HeaderBuf};
use crate::eth::log_query::{BlockTag, LogQuery};

/// Results of the questions asked so far.
#[derive(Debug, Clone)]
pub(super) struct Start {
    tag: BlockTag,
    to: Option<u64>,
    from: Option<u64>,
    /// Blocks of the anchors, in the order of the configured hashes.
    pub(super) anchors: Vec<BlockRef>,
    /// Last block of the cursor, kept until it is compared with the index.
    left: Option<BlockRef>,
    /// `true` if the index must not be used, because it does not contain the cursor's last block.
    /// In that case, all headers are linked, to find out where the branches part.
    leaves_index_out: bool,
    /// `true` if the provider has the index's last block.
    is_index_shared: bool,
    /// Number of anchors already compared with the index.
    compared: usize,
    /// Highest anchor that the index contains.
    pub(super) indexed_anchor: Option<BlockRef>,
    /// The newest anchor that arrived during the start.
    pub(super) newer_anchor: Option<B256>,
}

/// Next step of the start.
#[derive(Debug)]
pub(super) enum Next {
    Ask(Question),
    Note(FollowNote),
    Done,
}

impl Start {
    pub(super) fn new(tag: BlockTag, to: Option<u64>, left: Option<&Cursor>) -> Self {
        Self {
            tag,
            to,
            from: left.map(Cursor::first),
            anchors: Vec::new(),
            left: left.and_then(|left| left.blocks.last()).map(|block| block.at),
            leaves_index_out: false,
            is_index_shared: false,
            compared: 0,
            indexed_anchor: None,
            newer_anchor: None,
        }
    }

    /// Returns the index if it can be used for the requested blocks.
    fn index(&self, config: &Config) -> Option<Indexed> {
        let is_of_use = |index: &Indexed| {
            !self.leaves_index_out && self.from.is_some_and(|from| from <= index.last.number)
        };
        config.index.filter(is_of_use)
    }

    fn indexed_anchors<'a>(&'a self, config: &Config) -> impl Iterator<Item = BlockRef> + 'a {
        let to = self.index(config).map(|index| index.last.number);
        self.anchors.iter().copied().filter(move |anchor| Some(anchor.number) <= to)
    }

    pub(super) fn next(&mut self, config: &Config) -> Result<Next, Box<Fault>> {
        let from = match (self.from, self.tag) {
            (Some(from), _) | (None, BlockTag::Number(from)) => from,
            (None, tag) => return Ok(Next::Ask(Question::Block(tag))),
        };
        self.from = Some(from);
        if let Some(to) = self.to.filter(|&to| to < from) {
            return Err(Fault::EmptyRange { from, to }.into());
        }
        if let Some(hash) = config.anchors.get(self.anchors.len()) {
            return Ok(Next::Ask(Question::Header(*hash)));
        }
        // The index must cover the range from the first requested block on, without a gap.
        if let Some(index) = config.index.filter(|index| index.first > from) {
            return Err(Fault::IndexBegins { first: index.first, from }.into());
        }
        let Some(index) = self.index(config) else { return Ok(Next::Done) };
        let to = index.last.number;
        if !self.is_index_shared {
            // Every filter in the range of the index must prove absence, or the index would skip
            // blocks with logs.
            let proves = |range: &ProfileRange| range.bloom.proves_absence();
            if !config.profile.within(&(from..=to)).iter().all(proves) {
                return Err(Fault::IndexUnsound(to).into());
            }
            return Ok(Next::Ask(Question::Headers(to..=to)));
        }
        if let Some(last) = self.left.filter(|last| last.number <= to) {
            if last.number >= index.first {
                return Ok(Next::Ask(Question::IndexedBlock(last.number)));
            }
            // The cursor ends before the index begins, so the two can't be compared.
            self.leaves_index_out = true;
            return Ok(Next::Done);
        }
        let anchor = self.indexed_anchors(config).nth(self.compared);
        match anchor {
            None => Ok(Next::Done),
            Some(anchor) if anchor.number < index.first => {
                self.compared += 1;
                Ok(Next::Note(FollowNote::AnchorNotCompared(anchor)))
            }
            Some(anchor) => Ok(Next::Ask(Question::IndexedBlock(anchor.number))),
        }
    }

    /// Sets the first block to the block that the tag names now.
    pub(super) fn on_block(&mut self, at: BlockRef) {
        self.from = Some(at.number);
    }

    /// Adds the block of the next anchor, after its hash was checked.
    pub(super) fn on_anchor(&mut self, at: BlockRef) {
        self.anchors.push(at);
    }

    /// Compares the provider's header with the index's last block.
    pub(super) fn on_header(
        &mut self,
        header: &HeaderBuf,
        config: &Config,
    ) -> Result<(), Box<Fault>> {
        let Some(index) = self.index(config) else { return Ok(()) };
        let theirs = header.hash();
        if theirs != index.last.hash {
            return Err(Fault::OtherThanIndex { ours: index.last, theirs }.into());
        }
        self.is_index_shared = true;
        Ok(())
    }

    /// Compares a block of the index with the cursor's last block, or with the next anchor if that
    /// comparison is already done.
    pub(super) fn on_indexed(&mut self, at: BlockRef, config: &Config) -> Result<(), Box<Fault>> {
        // If the cursor ends on another branch than the index, the index cannot be used for the
        // followed chain and is left out.
        if let Some(last) = self.left.take_if(|last| last.number == at.number) {
            self.leaves_index_out = at != last;
            return Ok(());
        }
        let Some(anchor) = self.indexed_anchors(config).nth(self.compared) else { return Ok(()) };
        // The caller trusts the anchor, so the index belongs to another chain, and its filters
        // prove nothing.
        if at != anchor {
            return Err(Fault::OtherThanAnchor { anchor, found: at.hash, of: "the index" }.into());
        }
        self.compared += 1;
        self.indexed_anchor = self.indexed_anchor.max(Some(anchor));
        Ok(())
    }

    /// Keeps a newer anchor until the start is complete. The newer anchor replaces an older anchor:
    /// the chain is compared with the newest anchor first.
    ///
    /// The anchor is not treated as a configured anchor, because a provider that lags does not have
    /// its block yet.
    pub(super) fn add_anchor(&mut self, hash: B256) {
        self.newer_anchor = Some(hash);
    }

    /// Returns the anchors after the range of the index, which are compared with linked headers.
    pub(super) fn linked_anchors(&self, config: &Config) -> Vec<BlockRef> {
        let index_to = self.index(config).map(|index| index.last.number);
        let later = self.anchors.iter().copied().filter(|anchor| Some(anchor.number) > index_to);
        later.collect()
    }

    /// Returns the resolved rules, after all questions are answered.
    pub(super) fn rules(&self, config: &Config, left: Option<&Subject>) -> Rules {
        let from = self.from.unwrap_or(0);
        let index_to = self.index(config).map(|index| index.last.number);
        let anchors = self.linked_anchors(config);
        let lowest = anchors.iter().map(|anchor| anchor.number).fold(from, u64::min);
        let queries = config.queries();
        let subject = Subject {
            chain_id: config.chain_id,
            query: to_json(&queries),
            semantics: config.semantics,
            start: left.map_or(lowest, |left| left.start),
            from,
        };
        Rules {
            queries,
            subject,
            profile: config.profile.clone(),
            to: self.to,
            confirmations: config.confirmations,
            keep: config.keep,
            transaction_hashes: config.transaction_hashes,
            index_to,
        }
    }
}

/// Encodes the queries for a cursor: a JSON object for one query, or a JSON list for several
/// queries.
fn to_json(queries: &[LogQuery]) -> String {
    let queries: Vec<String> = queries.iter().map(LogQuery::to_json).collect();
    match queries.as_slice() {
        [query] => query.clone(),
        queries => format!("[{}]", queries.join(",")),
    }
}
