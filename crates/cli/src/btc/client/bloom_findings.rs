//! What a session finds, and what becomes of it.

use std::collections::VecDeque;

use anyhow::bail;
use chainsieve::bitcoin::{BlockHash, OutPoint};
use chainsieve::btc::bip37::wallet::{Action, Event, Finding, Message, RelevantTransaction};
use chainsieve::btc::headers::{BlockAt, HeaderChain};

use super::bloom::Bloom;
use super::follower::{Order, World};
use super::hit::{Evidence, Hit, Received, Spent};
use super::wallet::Owner;
use crate::output::print_log;

/// How often a block is asked for until it is told that nobody answers for it wholly. It is asked for
/// on, but the back-off of peers makes that rare.
const TELL_AFTER: u32 = 4;

/// Unconfirmed transactions that are kept.
pub(super) const MAX_UNCONFIRMED: usize = if cfg!(test) { 20 } else { 1_000 };

impl Bloom {
    pub(super) fn session(&mut self, event: Event, world: World<'_>) -> anyhow::Result<Vec<Order>> {
        let mut orders = Vec::new();
        let mut events = VecDeque::from([event]);
        while let Some(event) = events.pop_front() {
            for action in self.session.handle(event, world.now) {
                match action {
                    Action::Send(message) => {
                        if let Message::GetFilteredBlocks(blocks) = &message {
                            self.sent.extend(blocks.iter().map(|block| (*block, false)));
                        }
                        if let Some(id) = self.serving {
                            orders.push(Order::Send(id, message.try_into()?));
                        }
                    }
                    Action::Report(finding) => {
                        events.extend(self.find(finding, world, &mut orders)?);
                    }
                }
            }
        }
        Ok(orders)
    }

    /// Takes a finding of the session; returns what it is to be told.
    fn find(
        &mut self,
        finding: Finding,
        world: World<'_>,
        orders: &mut Vec<Order>,
    ) -> anyhow::Result<Option<Event>> {
        let chain = world.chain;
        match finding {
            Finding::Relevant(found) => self.relevant(&found, chain)?,
            Finding::Block(proof) => {
                self.progress += 1;
                return self.close(proof.block_hash, world, orders);
            }
            Finding::NotDelivered { block, txid, .. } => self.lacking = Some((block, txid)),
            Finding::Unanswered(hash) => {
                self.sent.remove(&hash);
                return self.ask_again(hash, "does not answer for it", world, orders);
            }
            Finding::Stalled(hash, waited) => {
                let why = format!("no answer for block {hash} in {} s", waited.as_secs());
                self.fail(why, orders);
            }
            Finding::InvalidMerkleBlock(hash, error) => {
                self.ban(format!("merkleblock of {hash}: {error}"), orders);
                return self.ask_again(hash, "answers with none that is valid", world, orders);
            }
            Finding::OversizedBlock(hash) => {
                self.ban(format!("transactions of block {hash} larger than a block"), orders);
                return self.ask_again(hash, "answers with more than a block", world, orders);
            }
            Finding::Refused { block, txid, .. } => {
                let at = chain.height_of(&block).map(|height| BlockAt { height, hash: block });
                let text = format!("transaction {txid} of 64 bytes is passed over: it may be none");
                self.announcer.finding("refused", at, &text)?;
            }
            Finding::KeychainAdvanced { label, .. } => {
                let places = self.wallet.advance(label.keychain, label.index, true)?;
                return Ok(Some(Event::Watch(self.watched(&places))));
            }
            Finding::Refilter(from) => {
                self.supersede(|_| true);
                self.roll_back(from.height.max(self.first));
            }
            Finding::RefreshAdvised(reason) => {
                print_log(&format!("the filter is loaded afresh: {reason}"));
                return Ok(Some(Event::Refresh));
            }
            Finding::Privacy(report) => print_log(&format!("filter: {report}")),
            Finding::NoFilter(error) => bail!("no filter has room for what is watched: {error}"),
            Finding::LimitReached(count) => {
                print_log(&format!("{count} coins more than are followed: their spends go unseen"));
            }
            // Chance, and what is no proof of anything.
            _ => {}
        }
        Ok(None)
    }

    fn relevant(&mut self, found: &RelevantTransaction, chain: &HeaderChain) -> anyhow::Result<()> {
        let place = match found.place {
            Some((hash, index)) => match chain.height_of(&hash) {
                Some(height) => Some((height, hash, index)),
                // Of a block that has left the chain.
                None => return Ok(()),
            },
            // They cost nothing to make up.
            None if self.announcer.ledger().unconfirmed() >= MAX_UNCONFIRMED => {
                if !self.unconfirmed_told {
                    self.unconfirmed_told = true;
                    print_log(&format!(
                        "{MAX_UNCONFIRMED} unconfirmed transactions are kept: more are passed over until a \
                         block has them"
                    ));
                }
                return Ok(());
            }
            None => None,
        };
        let (tx, txid) = (&found.transaction, found.txid);
        let mut received = Vec::new();
        for paid in &found.relevance.received {
            let Some(output) = tx.output.get(paid.vout as usize) else { continue };
            let Some(watched) = self.wallet.script(&output.script_pubkey) else { continue };
            let owner = Owner::of(watched);
            self.coins.add(OutPoint { txid, vout: paid.vout }, owner.clone());
            received.push(Received { vout: paid.vout, value: output.value, owner });
        }
        let spent = found.relevance.spent.iter().map(|spent| Spent {
            vin: spent.vin,
            outpoint: spent.outpoint,
            owner: self.coins.owner(&spent.outpoint).cloned(),
            certain: spent.known,
        });
        let spent = spent.collect();
        let peer = self.serving.and_then(|id| self.peers.get(&id)).map(|peer| peer.name.clone());
        let (reason, evidence) = match place {
            Some(_) => ("filtered_block", Evidence::MerkleProof),
            None => ("relayed", Evidence::Unconfirmed),
        };
        self.progress += 1;
        let hit = Hit { place, txid, received, spent, reason, evidence, peer };
        self.announcer.found(&[hit], chain)
    }

    /// A block is closed: answered, unless something of it did not come.
    fn close(
        &mut self,
        hash: BlockHash,
        world: World<'_>,
        orders: &mut Vec<Order>,
    ) -> anyhow::Result<Option<Event>> {
        let lacking = self.lacking.take().filter(|(block, _)| *block == hash);
        if self.sent.remove(&hash) == Some(true) {
            return Ok(None);
        }
        if let Some((_, txid)) = lacking {
            let what = format!("does not deliver transaction {txid} of it");
            return self.ask_again(hash, &what, world, orders);
        }
        if let Some(height) = world.chain.height_of(&hash) {
            self.tries.remove(&hash);
            self.answered.insert(height);
            while self.answered.remove(&self.next) {
                self.next += 1;
            }
        }
        Ok(None)
    }

    /// The serving peer has failed at a block: on another connection it, or another peer, may not.
    /// All blocks behind are asked for again too: one may spend what this one holds.
    fn ask_again(
        &mut self,
        hash: BlockHash,
        what: &str,
        world: World<'_>,
        orders: &mut Vec<Order>,
    ) -> anyhow::Result<Option<Event>> {
        let Some(height) = world.chain.height_of(&hash) else { return Ok(None) };
        let tries = self.tries.entry(hash).or_insert(0);
        *tries += 1;
        if *tries == TELL_AFTER {
            let at = BlockAt { height, hash };
            let text = format!("{at}: after {tries} tries, a peer still {what}");
            self.announcer.finding("block_unavailable", Some(at), &text)?;
        }
        self.fail(format!("block {hash}: it {what}"), orders);
        self.roll_back(height);
        // The session forgets its requests from there on.
        Ok(Some(Event::Reorganized(height)))
    }

    /// The answers for these blocks count no more.
    pub(super) fn supersede(&mut self, is_gone: impl Fn(&BlockHash) -> bool) {
        for (hash, superseded) in &mut self.sent {
            *superseded |= is_gone(hash);
        }
    }

    /// The serving peer has failed: another may do better.
    pub(super) fn fail(&mut self, why: String, orders: &mut Vec<Order>) {
        if let Some(id) = self.serving {
            orders.push(Order::Drop(id, why));
        }
    }

    pub(super) fn ban(&mut self, why: String, orders: &mut Vec<Order>) {
        if let Some(id) = self.serving {
            orders.push(Order::Ban(id, why));
        }
    }
}
