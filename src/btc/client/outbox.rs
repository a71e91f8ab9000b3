//! Queue of updates. Each update is delivered only after the writes before it are durable.

use std::collections::{BTreeMap, VecDeque};
use std::vec::Vec;

use super::journal::Key;
use super::{News, Update, UpdateId, WalletId, Write, WriteId};

/// The hit or withdrawal that an acknowledged update concerns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Subject {
    Hit(Key),
    Withdrawal(Key),
}

impl Subject {
    fn key(&self) -> &Key {
        match self {
            Self::Hit(key) | Self::Withdrawal(key) => key,
        }
    }
}

/// Numbers the writes and updates, and delivers updates in order.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    /// The newest write.
    written: WriteId,
    /// The newest durable write.
    stored: WriteId,
    /// Number of the newest update.
    next: u64,
    /// Updates that are not delivered yet, each with the write that must be durable before the
    /// delivery.
    pub(super) waiting: VecDeque<(WriteId, Update)>,
    /// Hits and withdrawals that are not acknowledged.
    open: BTreeMap<UpdateId, Subject>,
    /// The last update about each hit. Acknowledgements of earlier updates have no effect, because
    /// the reader has not processed the later update.
    last: BTreeMap<Key, UpdateId>,
}

impl Outbox {
    /// Assigns the next number to a write.
    pub(super) fn write(&mut self, write: Write) -> (WriteId, Write) {
        self.written.0 += 1;
        (self.written, write)
    }

    /// Queues an update. The update is delivered after all writes so far are durable and after all
    /// updates before it.
    pub(super) fn push(&mut self, wallet: Option<WalletId>, again: bool, news: News) {
        self.next += 1;
        let id = UpdateId(self.next);
        let subject = match (&wallet, &news) {
            (Some(wallet), News::Hit(hit)) => Some(Subject::Hit(Key::of(wallet, hit))),
            (Some(wallet), News::Withdrawn(hit)) => Some(Subject::Withdrawal(Key::of(wallet, hit))),
            _ => None,
        };
        if let Some(subject) = subject {
            // A later update about the same hit replaces the earlier update: only the later one can
            // be acknowledged.
            if let Some(earlier) = self.last.insert(subject.key().clone(), id) {
                self.open.remove(&earlier);
            }
            self.open.insert(id, subject);
        }
        self.waiting.push_back((self.written, Update { id, wallet, again, news }));
    }

    /// Number of the newest update.
    pub(super) fn last(&self) -> UpdateId {
        UpdateId(self.next)
    }

    /// Records that the writes up to `id` are durable. A number above the newest write is treated
    /// as the newest write, so that it does not cover later writes.
    pub(super) fn stored(&mut self, id: WriteId) {
        self.stored = self.stored.max(id.min(self.written));
    }

    /// Removes and returns the updates whose writes are durable, in order.
    pub(super) fn take_ready(&mut self) -> Vec<Update> {
        let stored = self.stored;
        let ready = self.waiting.iter().take_while(|(after, _)| *after <= stored).count();
        self.waiting.drain(..ready).map(|(_, update)| update).collect()
    }

    /// Returns the hit or withdrawal that an acknowledged update concerns. `None` if the update
    /// needs no acknowledgement, or if a later update concerns the same hit.
    pub(super) fn acknowledged(&mut self, id: UpdateId) -> Option<Subject> {
        let subject = self.open.remove(&id)?;
        self.last.remove(subject.key());
        Some(subject)
    }

    /// Removes the updates of a wallet that was removed.
    pub(super) fn forget(&mut self, wallet: &WalletId) {
        Update::discount(self.waiting.iter_mut().map(|(_, update)| update), wallet);
        self.waiting.retain(|(_, update)| update.wallet.as_ref() != Some(wallet));
        self.open.retain(|_, subject| subject.key().wallet != *wallet);
        self.last.retain(|key, _| key.wallet != *wallet);
    }
}

#[cfg(test)]
mod tests {
    use std::boxed::Box;

    use bitcoin::hashes::Hash as _;

    use super::super::hits::tests::hit;
    use super::*;
    use crate::btc::headers::BlockAt;

    fn wallet() -> WalletId {
        "a".into()
    }

    #[test]
    fn updates_wait_for_the_writes_before_them() {
        let mut outbox = Outbox::default();
        let write = || Write::Remove(super::super::File::State);
        let (first, _) = outbox.write(write());
        outbox.push(None, false, News::Reopened { from: 1, to: 1 });
        let (second, _) = outbox.write(write());
        outbox.push(None, false, News::Reopened { from: 2, to: 2 });
        assert_eq!((outbox.take_ready().len(), outbox.waiting.len()), (0, 2));
        outbox.stored(first);
        let ready: Vec<_> = outbox.take_ready().into_iter().map(|update| update.news).collect();
        assert_eq!(ready, [News::Reopened { from: 1, to: 1 }]);
        // A write id that was never assigned does not cover later writes.
        outbox.stored(WriteId(100));
        let (third, _) = outbox.write(write());
        assert_eq!((second, third), (WriteId(2), WriteId(3)));
        outbox.push(None, false, News::Reopened { from: 3, to: 3 });
        assert_eq!(outbox.take_ready().len(), 1);
    }

    #[test]
    fn a_reorganization_counts_no_withdrawals_of_a_wallet_that_is_forgotten() {
        let mut outbox = Outbox::default();
        let fork = BlockAt { height: 4, hash: bitcoin::BlockHash::all_zeros() };
        for other in ["b", "c"] {
            let (disconnected, withdrawn) = (Vec::new(), 2);
            outbox.push(None, false, News::Reorganized { fork, disconnected, withdrawn });
            for id in [wallet(), other.into()] {
                outbox.push(Some(id), false, News::Withdrawn(Box::new(hit(1, Some(fork)))));
            }
        }
        outbox.forget(&wallet());
        let told: Vec<_> = outbox.take_ready().into_iter().map(|update| update.news).collect();
        let counts = told.iter().filter_map(|news| match news {
            News::Reorganized { withdrawn, .. } => Some(*withdrawn),
            _ => None,
        });
        assert_eq!((told.len(), counts.collect::<Vec<_>>()), (4, std::vec![1, 1]));
    }

    #[test]
    fn only_the_last_update_about_a_hit_is_acknowledged() {
        let mut outbox = Outbox::default();
        let block = BlockAt { height: 5, hash: bitcoin::BlockHash::all_zeros() };
        let hit = Box::new(hit(1, Some(block)));
        let key = Key::of(&wallet(), &hit);
        outbox.push(Some(wallet()), false, News::Hit(hit.clone()));
        outbox.push(Some(wallet()), false, News::Withdrawn(hit.clone()));
        outbox.push(Some(wallet()), false, News::Hit(hit));
        assert_eq!(outbox.acknowledged(UpdateId(1)), None);
        assert_eq!(outbox.acknowledged(UpdateId(2)), None);
        assert_eq!(outbox.acknowledged(UpdateId(3)), Some(Subject::Hit(key)));
        assert_eq!(outbox.acknowledged(UpdateId(3)), None);
    }
}
