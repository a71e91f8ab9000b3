//! A running client, as its users hold it.

use std::sync::Arc;
use std::sync::mpsc::sync_channel;
use std::thread::{self, JoinHandle};

use chainsieve::bitcoin::block::Header;
use chainsieve::bitcoin::p2p::ServiceFlags;
use chainsieve::bitcoin::{Block, BlockHash, FeeRate, Transaction, Txid};
use chainsieve::btc::client::{
    Client as Machine, Graded, Hit, Progress, Protocol, Update, UpdateId, Wallet, WalletId,
};
use chainsieve::btc::headers::BlockAt;
use chainsieve::btc::merkle_tree::{MerklePath, TransactionInBlock};

use crate::error::{LookUpError, RunError, Stopped, WalletError};
use crate::net::pool::{AddressStatus, Pool};
use crate::shared::{Command, Shared};
use crate::updates::Updates;

/// A light client that runs in threads of its own.
///
/// Made by a [`Builder`](crate::Builder). Dropping it stops it as [`shutdown`](Self::shutdown)
/// does, which tells whether everything was written. Both wait for that thread: hold no lock that a
/// log or a storage of your own takes.
///
/// On its own thread, which is where [`Builder::log`](crate::Builder::log) is called and a storage
/// is used, a client answers nothing and takes no commands: it reports [`Stopped`]. Dropped there,
/// it stops without waiting.
#[derive(Debug)]
pub struct Client {
    pub(crate) shared: Arc<Shared>,
    pub(crate) thread: Option<JoinHandle<()>>,
    pub(crate) protocol: Protocol,
}

/// How a client is doing.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
#[expect(clippy::struct_excessive_bools, reason = "each answers a question of its own")]
pub struct Status {
    /// The chain's tip, the last height wanted, and how far everything is settled.
    pub progress: Progress,
    /// The first height that is looked at, once the headers are there.
    pub first: Option<u32>,
    /// The services that a peer must offer to be of use beyond headers.
    pub services: ServiceFlags,
    /// The headers are there, and blocks are looked at.
    pub has_started: bool,
    /// Everything that the connected peers have is seen.
    pub is_caught_up: bool,
    /// A connected peer offers what is needed.
    pub is_served: bool,
    /// Every address was called, or as many peers are connected as wanted.
    pub all_tried: bool,
    /// Every address that may be called is connected or banned.
    pub all_up: bool,
    /// Every address that may be called is banned.
    pub all_banned: bool,
    /// A number that grows with each step forward.
    pub steps: u64,
    /// The last update that was made; `UpdateId(0)` if none was. It and those before it come
    /// without anything more having to happen.
    pub last_update: UpdateId,
    /// The addresses that were called.
    pub peers: Vec<PeerStatus>,
}

/// An address that was called, and what its peer says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PeerStatus {
    /// The address.
    pub address: String,
    /// `connected`, `banned`, `calling` or `disconnected`.
    pub state: &'static str,
    /// What the peer claims, while it is connected.
    pub claims: Option<PeerClaims>,
}

/// What a peer says of itself. Nothing shows that it is true.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PeerClaims {
    /// Its program: printable ASCII.
    pub agent: String,
    /// The height of its chain.
    pub height: u32,
    /// What it serves.
    pub services: ServiceFlags,
}

/// Numbers of a wallet's hits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HitCounts {
    /// In blocks of the chain.
    pub confirmed: usize,
    /// In no block yet.
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
        }
    }
}

impl Client {
    /// The updates, in order. A hit or withdrawal comes again after a restart, marked, unless it
    /// was [acknowledged](Self::acknowledge).
    ///
    /// Updates must be read: where as many wait as the builder allows, the client reads nothing
    /// more from its peers.
    pub fn updates(&self) -> Updates {
        Updates::new(Arc::clone(&self.shared))
    }

    /// Says that an update was dealt with. Of use for hits and withdrawals; others never come
    /// again. Blocks while 4,096 commands wait.
    pub fn acknowledge(&self, update: &Update) {
        // A client that has stopped gives it again.
        let _stopped = self.command(Command::Acknowledge(update.id));
    }

    /// Watches for one more wallet, or for more items of one that is watched. Blocks since its
    /// birthday are looked at again for it. Blocks while 4,096 commands wait.
    ///
    /// # Errors
    /// An invalid id, an item that cannot be watched by the client's protocol, or the client has
    /// stopped.
    pub fn watch(&self, id: impl Into<WalletId>, wallet: Wallet) -> Result<(), WalletError> {
        let id = id.into();
        check(&id, &wallet, self.protocol)?;
        Ok(self.command(Command::Watch(id, Box::new(wallet)))?)
    }

    /// Forgets a wallet and its hits. Updates about it that were not read are dropped.
    ///
    /// # Errors
    /// The client has stopped.
    pub fn forget(&self, id: impl Into<WalletId>) -> Result<(), Stopped> {
        self.command(Command::Forget(id.into()))
    }

    /// Looks at all blocks from a height on again, for all wallets. Hits that are known do not come
    /// again.
    ///
    /// # Errors
    /// The client has stopped.
    pub fn rescan(&self, from: u32) -> Result<(), Stopped> {
        self.command(Command::Rescan(from))
    }

    /// Offers a transaction to the peers, and says in updates what becomes of it. With its fee
    /// rate, peers that want more are named and left alone.
    ///
    /// It is offered as long as the client runs and no block has it; it is not kept over a restart.
    ///
    /// # Errors
    /// The client has stopped.
    pub fn broadcast(
        &self,
        transaction: Transaction,
        fee_rate: Option<FeeRate>,
    ) -> Result<Txid, Stopped> {
        let txid = transaction.compute_txid();
        self.command(Command::Broadcast(Box::new(transaction), fee_rate))?;
        Ok(txid)
    }

    /// The header at a height of the chain.
    ///
    /// # Errors
    /// The client has stopped.
    pub fn header_at(&self, height: u32) -> Result<Option<Header>, Stopped> {
        self.query(move |machine, _| machine.chain().header_at(height).copied())
    }

    /// The header with this hash, and its height, if it is in the chain.
    ///
    /// # Errors
    /// The client has stopped.
    pub fn header_of(&self, hash: BlockHash) -> Result<Option<(u32, Header)>, Stopped> {
        self.query(move |machine, _| {
            let height = machine.chain().height_of(&hash)?;
            Some((height, *machine.chain().header_at(height)?))
        })
    }

    /// The block at a height of the chain.
    ///
    /// # Errors
    /// The client has stopped.
    pub fn block_at(&self, height: u32) -> Result<Option<BlockAt>, Stopped> {
        self.query(move |machine, _| {
            machine.chain().hash_at(height).map(|hash| BlockAt { height, hash })
        })
    }

    /// Fetches a block of the chain from a peer, and checks it against its header. Waits for it;
    /// meanwhile peers are read from whether updates are read or not.
    ///
    /// # Errors
    /// The chain does not have it, or no peer delivers it.
    pub fn block(&self, hash: BlockHash) -> Result<Block, LookUpError> {
        let (answer, result) = sync_channel(1);
        self.command(Command::Block(hash, answer))?;
        let block = result.recv().map_err(|_| Stopped)??;
        Ok(*block)
    }

    /// A transaction of a block with its path to the merkle root: a proof for anyone who has the
    /// header. Fetches the block.
    ///
    /// # Errors
    /// See [`block`](Self::block); or the block does not hold the transaction.
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

    /// A wallet's hits that are not withdrawn, given out or not; those in no block first.
    ///
    /// # Errors
    /// The client has stopped.
    pub fn hits(&self, id: impl Into<WalletId>) -> Result<Vec<Hit>, Stopped> {
        let id = id.into();
        self.query(move |machine, _| machine.hits(&id).cloned().collect())
    }

    /// How many of a wallet's hits that are not withdrawn are in blocks, and how many in none.
    ///
    /// # Errors
    /// The client has stopped.
    ///
    /// # Cost
    /// A look at each hit, on the client's thread.
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

    /// What a "no" is worth, in runs of heights with one grade.
    ///
    /// # Errors
    /// The client has stopped.
    pub fn grades(&self) -> Result<Vec<Graded>, Stopped> {
        self.query(|machine, _| machine.grades())
    }

    /// How the client is doing.
    ///
    /// # Errors
    /// The client has stopped.
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

    /// Stops the client, and waits until everything that it knows is written.
    ///
    /// # Errors
    /// Why it had stopped before by itself, or why the last writes failed.
    pub fn shutdown(mut self) -> Result<(), RunError> {
        self.stop()
    }

    /// Stops the client, and waits for its end unless this is its own thread.
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
        // It would wait for itself.
        if self.is_own_thread() {
            return Err(Stopped);
        }
        self.shared.command(command)
    }

    pub(crate) fn query<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Machine, &Pool) -> T + Send + 'static,
    ) -> Result<T, Stopped> {
        let (answer, result) = sync_channel(1);
        let query = Box::new(move |machine: &Machine, pool: &Pool| {
            // The user may not wait any longer.
            drop(answer.try_send(question(machine, pool)));
        });
        self.command(Command::Query(query))?;
        result.recv().map_err(|_| Stopped)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // Nobody is left to be told.
        drop(self.stop());
    }
}

/// Checks a wallet before it is watched.
pub(crate) fn check(id: &WalletId, wallet: &Wallet, protocol: Protocol) -> Result<(), WalletError> {
    if !id.is_valid() {
        return Err(WalletError::Id(id.clone()));
    }
    wallet.check(protocol).map_err(|cause| WalletError::Item { wallet: id.clone(), cause })
}
