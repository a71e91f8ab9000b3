//! Receipts and transactions on their way into an audit.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

use anyhow::{Context as _, bail};
use chainsieve::alloy_primitives::{B256, Bytes};
use chainsieve::eth::audit::{Action, Audit, Event};
use chainsieve::eth::header::{HeaderChain, HeaderView};
use chainsieve::eth::log::LocatedLog;
use chainsieve::eth::receipts::{BlockReceipts, VerifyError};

use crate::eth::headers::{Compressed, Entries, Kind, MAX_HEADER};
use crate::eth::receipts::{self, Receiver, Whose};
use crate::output::grouped;
use crate::source::Source;

/// Transactions of a block: blobs of data apart, some megabytes.
const MAX_BODY: u64 = 64 << 20;
/// Files that a warning names.
const NAMED: usize = 3;

/// Hands evidence to an audit, and notes what is not the audit's matter.
pub(crate) struct Feed<'a, 'b> {
    audit: &'b mut Audit<'a>,
    by_number: HashMap<u64, B256>,
    /// Blocks by their receipts root, for receipts that don't say whose they are.
    by_root: HashMap<B256, Vec<B256>>,
    /// The blocks whose receipts are still missing.
    open: HashSet<B256>,
    /// The blocks that the answer names, by number.
    answered: HashMap<u64, B256>,
    /// Receipts of no block that needs them.
    strangers: Vec<String>,
    warnings: Vec<String>,
}

impl<'a, 'b> Feed<'a, 'b> {
    pub(crate) fn new(audit: &'b mut Audit<'a>, chain: &HeaderChain, logs: &[LocatedLog]) -> Self {
        let mut feed = Self {
            by_number: HashMap::new(),
            by_root: HashMap::new(),
            open: HashSet::new(),
            answered: HashMap::new(),
            strangers: Vec::new(),
            warnings: Vec::new(),
            audit,
        };
        for action in feed.audit.open() {
            let Action::FetchReceipts { number, block_hash } = action else { continue };
            feed.by_number.insert(number, block_hash);
            feed.open.insert(block_hash);
            if let Some(block) = chain.block(number) {
                feed.by_root.entry(block.receipts_root).or_default().push(block_hash);
            }
        }
        let on_chain = |log: &&LocatedLog| {
            chain.block(log.block_number).is_some_and(|block| block.hash == log.block_hash)
        };
        let answered = logs.iter().filter(on_chain);
        feed.answered.extend(answered.map(|log| (log.block_number, log.block_hash)));
        feed
    }

    /// Reads receipts from files, folders and archives.
    pub(crate) fn receipts(&mut self, paths: &[PathBuf]) -> anyhow::Result<()> {
        for path in paths {
            for file in receipts::files(path)? {
                receipts::read(&file, self)?;
            }
        }
        Ok(())
    }

    /// Reads the transactions of blocks from archives.
    pub(crate) fn transactions(&mut self, paths: &[PathBuf]) -> anyhow::Result<()> {
        for path in paths {
            let name = || format!("transactions, {}", path.display());
            self.bodies(Source::file(path).with_context(name)?).with_context(name)?;
        }
        Ok(())
    }

    fn bodies(&mut self, mut source: Source) -> anyhow::Result<()> {
        if !source.peek()?.starts_with(b"e2\0") {
            bail!("neither an era1 nor an ere archive");
        }
        let mut entries = Entries::new(source);
        let (mut header, mut body) = (Compressed::new(MAX_HEADER), Compressed::new(MAX_BODY));
        let (mut first, mut index) = (None, 0);
        while let Some(entry) = entries.next()? {
            let place = || format!("byte {}", grouped(entry.at));
            match entry.kind {
                Kind::Version => {
                    (first, index) = (None, 0);
                    entries.skip(entry)?;
                }
                Kind::Header if first.is_none() => {
                    let mut rlp = Vec::new();
                    header.read(&mut entries, entry, &mut rlp)?;
                    first = Some(HeaderView::decode(&rlp).with_context(place)?.number());
                }
                Kind::Body => {
                    let number = first.with_context(place)?.saturating_add(index);
                    index += 1;
                    let Some(&block_hash) = self.answered.get(&number) else {
                        entries.skip(entry)?;
                        continue;
                    };
                    let mut rlp = Vec::new();
                    body.read(&mut entries, entry, &mut rlp)?;
                    let encodings = transactions(&rlp).with_context(place)?;
                    let actions = self
                        .audit
                        .handle(Event::Transactions { block_hash, encodings: &encodings });
                    self.note(&actions, &format!("transactions of block {number}"));
                }
                _ => entries.skip(entry)?,
            }
        }
        Ok(())
    }

    /// What was noted, for the user.
    pub(crate) fn into_warnings(mut self) -> Vec<String> {
        // Receipts of blocks that the filter rules out are no one's worry, unless some are missing.
        if !self.strangers.is_empty() && !self.open.is_empty() {
            let named = &self.strangers[..self.strangers.len().min(NAMED)];
            let more = if self.strangers.len() > NAMED { " and others" } else { "" };
            self.warnings.push(format!(
                "receipts of none of the blocks that need them, by their root: {}{more}",
                named.join("; ")
            ));
        }
        self.warnings
    }

    fn note(&mut self, actions: &[Action], place: &str) {
        for action in actions {
            match action {
                Action::Rejected { why, .. } => self.warnings.push(format!("{place}: {why}")),
                Action::FetchReceipts { .. } => {}
                Action::Settled { number, .. } => {
                    if let Some(hash) = self.by_number.get(number) {
                        self.open.remove(hash);
                    }
                }
                _ => {}
            }
        }
    }

    fn of_block(&mut self, block_hash: B256, place: &str, receipts: &BlockReceipts) {
        if self.open.contains(&block_hash) {
            let actions = self.audit.handle(Event::Receipts { block_hash, receipts });
            self.note(&actions, place);
        }
    }
}

impl Receiver for Feed<'_, '_> {
    fn wants(&self, whose: Whose) -> bool {
        match whose {
            Whose::Number(number) => {
                self.by_number.get(&number).is_some_and(|hash| self.open.contains(hash))
            }
            Whose::Hash(hash) => self.open.contains(&hash),
            Whose::Unknown => !self.open.is_empty(),
        }
    }

    fn take(&mut self, whose: Whose, place: String, receipts: &BlockReceipts) {
        let blocks = match whose {
            Whose::Number(number) => self.by_number.get(&number).copied().into_iter().collect(),
            Whose::Hash(hash) => vec![hash],
            Whose::Unknown => {
                let root = root(receipts);
                match root.and_then(|root| self.by_root.get(&root)) {
                    Some(blocks) => blocks.clone(),
                    None => {
                        self.strangers.push(place);
                        return;
                    }
                }
            }
        };
        for block_hash in blocks {
            self.of_block(block_hash, &place, receipts);
        }
    }
}

/// The root of receipts; none where a field is missing that it covers.
fn root(receipts: &BlockReceipts) -> Option<B256> {
    // The library says it when it is not the one that it should be, and this one never is.
    match receipts.verify(B256::ZERO, (&[u8::MAX; 256]).into()) {
        Err(
            VerifyError::RootMismatch { computed, .. }
            | VerifyError::PostStatesMayBeMissing { computed, .. },
        ) => Some(computed),
        _ => None,
    }
}

/// The transactions of a body, `[[transaction, …], ommers, …]`, as they are in their trie.
fn transactions(body: &[u8]) -> anyhow::Result<Vec<Bytes>> {
    let mut body = body;
    let mut fields = alloy_rlp::Header::decode_bytes(&mut body, true)?;
    let mut list = alloy_rlp::Header::decode_bytes(&mut fields, true)?;
    let mut transactions = Vec::new();
    while !list.is_empty() {
        let item = list;
        let header = alloy_rlp::Header::decode(&mut list)?;
        let (payload, behind) =
            list.split_at_checked(header.payload_length).context("a transaction is cut off")?;
        // A legacy one is a list, of the others the string's content counts.
        let encoding = if header.list { &item[..item.len() - behind.len()] } else { payload };
        transactions.push(Bytes::copy_from_slice(encoding));
        list = behind;
    }
    Ok(transactions)
}
