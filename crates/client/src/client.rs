//! The handle of a running client.

use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use chainsieve::bitcoin::block::Header;
use chainsieve::bitcoin::p2p::ServiceFlags;
use chainsieve::bitcoin::{Block, BlockHash, FeeRate, Transaction, Txid};
use chainsieve::btc::client::{
    Graded, Hit, LightClient, Progress, Protocol, Update, UpdateId, Wallet, WalletId, WatchId,
};
use chainsieve::btc::headers::BlockAt;
use chainsieve::btc::merkle_tree::{MerklePath, TransactionInBlock};

use crate::error::{LookUpError, RunError, Stopped, WalletError};
use crate::peers::pool::{AddressStatus, Pool};
use crate::shared::Updates;
use crate::shared::{Command, Shared};

/// Handle of a light client that runs in threads of its own.
///
/// A [`Builder`](crate::Builder) creates it. Dropping the handle stops the client as
/// [`shutdown`](Self::shutdown) does, but only `shutdown` reports whether everything was written.
/// Both calls wait for the client's thread. The caller must not hold a lock that its log callback
/// or its [`Storage`](crate::Storage) needs.
///
/// The client's thread calls the callback of [`Builder::log`](crate::Builder::log) and the methods
/// of the storage. On the client's thread, every method of the handle that needs an answer fails
/// with [`Stopped`], because the thread would wait for itself. If the handle is dropped on the
/// client's thread, it stops the client without waiting.
#[derive(Debug)]
#[must_use = "dropping the handle stops the client"]
pub struct Client {
    pub(crate) shared: Arc<Shared>,
    pub(crate) thread: Option<JoinHandle<()>>,
    pub(crate) protocol: Protocol,
}

/// Status of a client: its progress and its connections.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
#[expect(clippy::struct_excessive_bools, reason = "each answers a question of its own")]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Status {
    /// The chain tip, the height of the last block to scan, and the height up to which the scan is
    /// complete.
    pub progress: Progress,
    /// The first height of the scan; `None` before the headers are downloaded.
    pub first: Option<u32>,
    /// The services that the chosen protocol needs from a peer for everything except headers.
    #[cfg_attr(feature = "serde", serde(serialize_with = "services"))]
    pub services: ServiceFlags,
    /// `true` once the headers are downloaded and the scan of blocks has started.
    pub has_started: bool,
    /// `true` if the client has processed every block that the connected peers have.
    pub is_caught_up: bool,
    /// `true` if at least one connected peer offers [`services`](Self::services).
    pub is_served: bool,
    /// `true` if every known address, or at least 256 addresses, were dialled in this run, or if
    /// the wanted number of peers is connected.
    pub all_tried: bool,
    /// `true` if every address that may be dialled is connected or banned, and no seed will be
    /// asked.
    pub all_up: bool,
    /// `true` if every address that may be dialled is banned, and no seed will be asked.
    pub all_banned: bool,
    /// Counter that grows with each step of progress. If it stays the same, the client is stalled.
    pub steps: u64,
    /// Id of the last update that the client created, or `UpdateId(0)` before the first update.
    /// Updates up to this id will be delivered even if no further message arrives from a peer.
    pub last_update: UpdateId,
    /// The addresses that were dialled in this run.
    pub peers: Vec<PeerStatus>,
}

/// An address that was dialled, and what its peer claims in the handshake.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct PeerStatus {
    /// The address with its port: an IP address, an onion address or a host name.
    pub address: String,
    /// State of the address: `connected`, `banned`, `calling` or `disconnected`.
    pub state: &'static str,
    /// The claims of the peer in its `version` message; `None` if the peer is not connected.
    pub claims: Option<PeerClaims>,
    /// Reason why the peer was banned. `None` if this address was not banned in this run: another
    /// port of its host may have been banned, or the ban is older. At most 1,000 reasons are kept.
    pub banned_for: Option<String>,
}

/// The unverified claims of a peer about itself in its `version` message.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct PeerClaims {
    /// The peer's user agent (BIP14): at most 256 characters of printable ASCII.
    pub agent: String,
    /// Height of the peer's chain tip.
    pub height: u32,
    /// The services that the peer offers.
    #[cfg_attr(feature = "serde", serde(serialize_with = "services"))]
    pub services: ServiceFlags,
}

/// Serialises services as one integer, whose bits are the services.
#[cfg(feature = "serde")]
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn services<S: serde::Serializer>(
    services: &ServiceFlags,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(services.to_u64())
}

/// Numbers of confirmed and unconfirmed hits of a wallet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct HitCounts {
    /// Number of hits in blocks of the chain.
    pub confirmed: usize,
    /// Number of hits that are in no block yet.
    pub unconfirmed: usize,
}

impl PeerStatus {
    fn of(status: &AddressStatus<'_>) -> Self {
        Self {
            address: status.target.to_string(),
            state: status.state.name(),
            claims: status.theirs.map(|theirs| PeerClaims {
                agent: theirs.user_agent.clone(),
                height: theirs.start_height,
                services: theirs.services,
            }),
            banned_for: status.banned_for.map(String::from),
        }
    }
}

impl Client {
    /// Returns a reader of the client's updates, in order.
    ///
    /// After a restart, a hit or withdrawal that was not [acknowledged](Self::acknowledge) is
    /// delivered again, and its [`Update::again`] is `true`.
    ///
    /// The caller must read the updates. When [`max_updates`](crate::Builder::max_updates) updates
    /// are queued, the client reads nothing more from its peers.
    pub fn updates(&self) -> Updates {
        Updates::new(Arc::clone(&self.shared))
    }

    /// Marks an update as processed, so that it is not delivered again after a restart.
    ///
    /// The mark is stored shortly after the call returns: an update that was acknowledged just
    /// before a kill may be delivered again, with [`Update::again`] set. [`shutdown`](Self::shutdown)
    /// stores all marks.
    ///
    /// Only hits and withdrawals need this: other updates are never delivered again. If 4,096
    /// commands are queued, the call waits. If the client has stopped, the call does nothing, and
    /// the next run delivers the update again.
    pub fn acknowledge(&self, update: &Update) {
        // The error needs no handling: a stopped client delivers the update again in its next run.
        let _stopped = self.command(Command::Acknowledge(update.id));
    }

    /// Adds a wallet, or adds items to a wallet that is already watched. Returns the number of the
    /// call.
    ///
    /// Only the new items are searched for, in the blocks from the birthday on. An address that is
    /// new costs nothing if its birthday is the tip or above it. A program may therefore add its
    /// addresses one by one.
    ///
    /// The call does not wait for the search, nor for the disk. Once [`News::Watched`](crate::News::Watched)
    /// names this call or a later call, the items are durable: see [`wait_stored`](Self::wait_stored). If the
    /// program crashes before the items are durable, the call may have had no effect. Once
    /// [`Progress::watched`] of a [`News::CaughtUp`](crate::News::CaughtUp) names this call or a later call,
    /// the search is complete. The call waits while 4,096 commands are queued.
    ///
    /// # Errors
    /// Returns an error if the id is invalid, if the client's protocol cannot watch an item, or if
    /// the client has stopped.
    pub fn watch(&self, id: impl Into<WalletId>, wallet: Wallet) -> Result<WatchId, WalletError> {
        let id = id.into();
        check(&id, &wallet, self.protocol)?;
        // Only this thread takes commands from the queue, so this thread would wait for itself for
        // ever.
        if self.is_own_thread() {
            return Err(Stopped.into());
        }
        Ok(self.shared.watch(id, Box::new(wallet))?)
    }

    /// Waits until the items of a call of [`watch`](Self::watch) are durable, for at most `timeout`.
    /// Returns `true` if they are durable. Records are written together, at most once a second, and
    /// only after the headers were caught up for the first time.
    pub fn wait_stored(&self, watch: WatchId, timeout: Duration) -> bool {
        self.shared.wait_stored(watch, Instant::now() + timeout)
    }

    /// Removes a wallet and its hits. Queued updates about the wallet are dropped.
    ///
    /// # Errors
    /// Returns [`Stopped`] if the client has stopped.
    pub fn forget(&self, id: impl Into<WalletId>) -> Result<(), Stopped> {
        self.command(Command::Forget(id.into()))
    }

    /// Scans all blocks from height `from` on again, for all wallets. Known hits are not delivered
    /// again.
    ///
    /// # Errors
    /// Returns [`Stopped`] if the client has stopped.
    pub fn rescan(&self, from: u32) -> Result<(), Stopped> {
        self.command(Command::Rescan(from))
    }

    /// Announces a transaction to the peers, and returns its txid. Updates report the progress of
    /// the transaction.
    ///
    /// The transaction is announced while the client runs and no block contains the transaction.
    /// After a restart, the client does not announce the transaction any more.
    ///
    /// # Errors
    /// Returns [`Stopped`] if the client has stopped.
    pub fn broadcast(&self, transaction: Transaction) -> Result<Txid, Stopped> {
        self.announce(transaction, None)
    }

    /// Announces a transaction as [`broadcast`](Self::broadcast) does, but not to peers that ask for
    /// a higher fee rate than `fee_rate` (`feefilter`, BIP133). An update names these peers.
    ///
    /// # Errors
    /// Returns [`Stopped`] if the client has stopped.
    pub fn broadcast_at(
        &self,
        transaction: Transaction,
        fee_rate: FeeRate,
    ) -> Result<Txid, Stopped> {
        self.announce(transaction, Some(fee_rate))
    }

    fn announce(&self, tx: Transaction, fee_rate: Option<FeeRate>) -> Result<Txid, Stopped> {
        let txid = tx.compute_txid();
        self.command(Command::Broadcast(Box::new(tx), fee_rate))?;
        Ok(txid)
    }

    /// Returns the header at a height of the best chain; `None` if that height is above the tip.
    ///
    /// # Errors
    /// Returns [`Stopped`] if the client has stopped.
    pub fn header_at(&self, height: u32) -> Result<Option<Header>, Stopped> {
        self.query(move |machine, _| machine.chain().header_at(height).copied())
    }

    /// Returns the height and the header of a block; `None` if the best chain does not contain it.
    ///
    /// # Errors
    /// Returns [`Stopped`] if the client has stopped.
    pub fn header_of(&self, hash: BlockHash) -> Result<Option<(u32, Header)>, Stopped> {
        self.query(move |machine, _| {
            let height = machine.chain().height_of(&hash)?;
            Some((height, *machine.chain().header_at(height)?))
        })
    }

    /// Returns the height and hash of the block at a height of the best chain; `None` if that
    /// height is above the tip.
    ///
    /// # Errors
    /// Returns [`Stopped`] if the client has stopped.
    pub fn block_at(&self, height: u32) -> Result<Option<BlockAt>, Stopped> {
        self.query(move |machine, _| {
            machine.chain().hash_at(height).map(|hash| BlockAt { height, hash })
        })
    }

    /// Fetches a block of the chain from a peer, and checks the block against its header.
    ///
    /// The call waits for the block. Meanwhile the client reads from its peers even if its updates
    /// are not read. The blocks of several calls are requested from different peers. Blocks that
    /// the peers cannot send soon wait for their turn. If a block is overdue, another peer is asked
    /// for it too.
    ///
    /// # Errors
    /// Returns an error if the block is not in the chain, if no peer delivers it, or if the client
    /// has stopped.
    pub fn block(&self, hash: BlockHash) -> Result<Block, LookUpError> {
        let (answer, result) = sync_channel(1);
        self.command(Command::Block(hash, answer))?;
        let block = result.recv().map_err(|_| Stopped)??;
        Ok(*block)
    }

    /// Fetches a block and returns one of its transactions with its merkle path.
    ///
    /// The transaction and the path prove to anyone who has the block's header that the block
    /// contains the transaction.
    ///
    /// # Errors
    /// Returns the errors of [`block`](Self::block), or [`LookUpError::NotInBlock`] if the block
    /// does not contain the transaction.
    pub fn transaction_in_block(
        &self,
        hash: BlockHash,
        txid: Txid,
    ) -> Result<TransactionInBlock, LookUpError> {
        let block = self.block(hash)?;
        let txids: Vec<_> = block.txdata.iter().map(Transaction::compute_txid).collect();
        let index = txids.iter().position(|other| *other == txid);
        let path = index
            .and_then(|index| u32::try_from(index).ok())
            .and_then(|index| MerklePath::new(&txids, index));
        let transaction = index.and_then(|index| block.txdata.get(index)).cloned();
        let proof = transaction.zip(path);
        let proof = proof.map(|(transaction, path)| TransactionInBlock { transaction, path });
        proof.ok_or(LookUpError::NotInBlock(hash, txid))
    }

    /// Returns the hits of a wallet that are not withdrawn. Unconfirmed hits come first.
    ///
    /// Hits are included whether or not their updates were already delivered.
    ///
    /// # Errors
    /// Returns [`Stopped`] if the client has stopped.
    pub fn hits(&self, id: impl Into<WalletId>) -> Result<Vec<Hit>, Stopped> {
        let id = id.into();
        self.query(move |machine, _| machine.hits(&id).cloned().collect())
    }

    /// Counts the confirmed and unconfirmed hits of a wallet. Withdrawn hits are not counted.
    ///
    /// # Errors
    /// Returns [`Stopped`] if the client has stopped.
    ///
    /// # Cost
    /// The cost is linear in the number of hits, and the client's thread does the work.
    pub fn count_hits(&self, id: impl Into<WalletId>) -> Result<HitCounts, Stopped> {
        let id = id.into();
        self.query(move |machine, _| {
            let mut counts = HitCounts::default();
            for hit in machine.hits(&id) {
                let place = hit.place;
                *(if place.is_some() { &mut counts.confirmed } else { &mut counts.unconfirmed }) +=
                    1;
            }
            counts
        })
    }

    /// Returns grades for the reliability of the answer "no hit", one grade for each range of
    /// heights.
    ///
    /// # Errors
    /// Returns [`Stopped`] if the client has stopped.
    pub fn grades(&self) -> Result<Vec<Graded>, Stopped> {
        self.query(|machine, _| machine.grades())
    }

    /// Returns the client's progress and its connections.
    ///
    /// # Errors
    /// Returns [`Stopped`] if the client has stopped.
    ///
    /// # Cost
    /// The call waits for the client's thread, like all methods that return data of the client. The
    /// cost is linear in the number of addresses that were dialled.
    pub fn status(&self) -> Result<Status, Stopped> {
        self.query(|machine, pool| Status {
            progress: machine.progress(),
            first: machine.first(),
            services: machine.services(),
            has_started: machine.has_started(),
            is_caught_up: machine.is_caught_up(),
            is_served: machine.is_served(),
            all_tried: pool.all_tried(),
            all_up: pool.all_up(),
            all_banned: pool.all_banned(),
            steps: machine.steps(),
            last_update: machine.last_update(),
            peers: pool.addresses().map(|status| PeerStatus::of(&status)).collect(),
        })
    }

    /// Returns `false` once the client has stopped, by itself or by request.
    pub fn is_running(&self) -> bool {
        self.shared.ended().is_none()
    }

    /// Stops the client, and waits until its state is written to the storage.
    ///
    /// # Errors
    /// Returns the reason if the client had already stopped by itself, or if the last writes
    /// failed.
    pub fn shutdown(mut self) -> Result<(), RunError> {
        self.stop()
    }

    /// Stops the client. Unless the caller runs on the client's thread, waits for that thread to
    /// end.
    fn stop(&mut self) -> Result<(), RunError> {
        self.shared.stop();
        let is_own = self.is_own_thread();
        let thread = self.thread.take().filter(|_| !is_own);
        if thread.is_some_and(|thread| thread.join().is_err()) {
            return Err(RunError::Panicked);
        }
        self.shared.ended().unwrap_or(Ok(()))
    }

    fn is_own_thread(&self) -> bool {
        self.thread.as_ref().is_some_and(|it| it.thread().id() == thread::current().id())
    }

    fn command(&self, command: Command) -> Result<(), Stopped> {
        // Only this thread takes commands from the queue, so this thread would wait for itself for
        // ever.
        if self.is_own_thread() {
            return Err(Stopped);
        }
        self.shared.command(command)
    }

    pub(crate) fn query<T: Send + 'static>(
        &self,
        question: impl FnOnce(&LightClient, &Pool) -> T + Send + 'static,
    ) -> Result<T, Stopped> {
        let (answer, result) = sync_channel(1);
        let query = Box::new(move |machine: &LightClient, pool: &Pool| {
            // If the caller no longer waits, the channel is closed and the answer is dropped.
            drop(answer.try_send(question(machine, pool)));
        });
        self.command(Command::Query(query))?;
        result.recv().map_err(|_| Stopped)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // `drop` cannot return an error. Callers that need the result use `shutdown`.
        drop(self.stop());
    }
}

/// Checks a wallet's id, and checks that `protocol` can watch all of its items.
pub(crate) fn check(id: &WalletId, wallet: &Wallet, protocol: Protocol) -> Result<(), WalletError> {
    if !id.is_valid() {
        return Err(WalletError::Id(id.clone()));
    }
    wallet.check(protocol).map_err(|cause| WalletError::Item { wallet: id.clone(), cause })
}
