//! The wallets and scripts that a scan looks for.

use alloc::vec::Vec;

use crate::btc::bip158::PreparedScripts;

/// Identifies a wallet of a scan: 0 for the first wallet added, 1 for the next, and so on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct WalletIndex(u32);

impl WalletIndex {
    /// Returns the id as a number, for use as an index into the caller's own table.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Wallets that are scanned for together. The scripts of the wallets form one set, so that each
/// filter is decoded once.
#[derive(Debug, Clone)]
pub struct Wallets {
    members: Vec<Wallet>,
    /// The scripts of the active wallets, which are those with a birthday up to `height`.
    asked: PreparedScripts,
    /// For each script in `asked`, its wallet and its index in that wallet.
    owners: Vec<(WalletIndex, usize)>,
    /// The height of the current block. Wallets with a birthday up to this height are active.
    height: u32,
    /// The lowest birthday above `height`.
    next_birthday: Option<u32>,
}

#[derive(Debug, Clone)]
struct Wallet {
    birthday: u32,
    scripts: PreparedScripts,
}

impl Wallets {
    /// Creates an empty set of wallets at `height`.
    pub(super) fn at(height: u32) -> Self {
        let (members, owners) = (Vec::new(), Vec::new());
        Self { members, asked: PreparedScripts::new(), owners, height, next_birthday: None }
    }

    /// Adds a wallet without scripts, with the given birthday. The scan looks for the wallet's
    /// scripts from height `birthday` on, in blocks that are not scanned yet.
    #[must_use = "the id is the only handle of the wallet"]
    pub fn add(&mut self, birthday: u32) -> WalletIndex {
        let id = u32::try_from(self.members.len()).expect("fewer than 2^32 wallets");
        self.members.push(Wallet { birthday, scripts: PreparedScripts::new() });
        if birthday > self.height {
            self.next_birthday = Some(self.next_birthday.map_or(birthday, |at| at.min(birthday)));
        }
        WalletIndex(id)
    }

    /// Adds a script to a wallet, and returns its index in that wallet. A script that the wallet
    /// already has gets a second index.
    ///
    /// # Panics
    /// Panics if the id is not from this set of wallets.
    pub fn push(&mut self, wallet: WalletIndex, script: &[u8]) -> usize {
        let Wallet { birthday, scripts } = &mut self.members[wallet.index()];
        let index = scripts.push(script);
        if *birthday <= self.height {
            self.asked.push(script);
            self.owners.push((wallet, index));
        }
        index
    }

    /// Adds several scripts to a wallet.
    ///
    /// # Panics
    /// Panics if the id is not from this set of wallets.
    pub fn extend<S: AsRef<[u8]>>(
        &mut self,
        wallet: WalletIndex,
        scripts: impl IntoIterator<Item = S>,
    ) {
        for script in scripts {
            self.push(wallet, script.as_ref());
        }
    }

    /// Returns the scripts of a wallet, in the order of their indices.
    ///
    /// # Panics
    /// Panics if the id is not from this set of wallets.
    pub fn scripts(&self, wallet: WalletIndex) -> &PreparedScripts {
        &self.members[wallet.index()].scripts
    }

    /// Returns the number of wallets.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Returns `true` if there are no wallets.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Returns the scripts of all active wallets, in the order in which they became active.
    pub(super) fn asked(&self) -> &PreparedScripts {
        &self.asked
    }

    /// Moves to `height`, which is not below the current height, and activates the wallets with
    /// birthdays up to `height`.
    pub(super) fn advance(&mut self, height: u32) {
        let born = self.height..height;
        self.height = height;
        if self.next_birthday.is_none_or(|birthday| birthday > height) {
            return;
        }
        self.ask_for(|birthday| born.start < birthday && birthday <= born.end);
    }

    /// Moves back to `height`, and deactivates the wallets with birthdays after `height`.
    pub(super) fn rewind(&mut self, height: u32) {
        let born = self.height;
        self.height = height;
        if self.members.iter().any(|wallet| height < wallet.birthday && wallet.birthday <= born) {
            self.asked.clear();
            self.owners.clear();
            self.ask_for(|birthday| birthday <= height);
        }
    }

    /// Adds the scripts of all wallets whose birthday fulfils `is_born` to the active scripts.
    fn ask_for(&mut self, is_born: impl Fn(u32) -> bool) {
        for (id, Wallet { birthday, scripts }) in (0..).map(WalletIndex).zip(&self.members) {
            if is_born(*birthday) {
                self.asked.extend(scripts.iter());
                self.owners.extend((0..scripts.len()).map(|index| (id, index)));
            }
        }
        let birthdays = self.members.iter().map(|wallet| wallet.birthday);
        self.next_birthday = birthdays.filter(|&birthday| birthday > self.height).min();
    }

    /// Groups indices into [`asked`](Self::asked) by wallet. Returns each wallet with the indices
    /// of the scripts in that wallet, both in ascending order.
    pub(super) fn owners_of(&self, found: &[usize]) -> Vec<(WalletIndex, Vec<usize>)> {
        let mut owned: Vec<_> = found.iter().map(|&index| self.owners[index]).collect();
        owned.sort_unstable();
        let runs = owned.chunk_by(|(a, _), (b, _)| a == b);
        runs.map(|run| (run[0].0, run.iter().map(|&(_, index)| index).collect())).collect()
    }
}
