//! What a scan looks for.

use alloc::vec::Vec;

use crate::btc::bip158::PreparedScripts;

/// Names a wallet of a scan: 0 for the first added, 1 for the next, and so on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WalletId(u32);

impl WalletId {
    /// The id as a number, to index one's own table of wallets.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Wallets that are scanned for together: the scripts of all are one set, so that each filter is
/// read once.
#[derive(Debug, Clone)]
pub struct Wallets {
    members: Vec<Wallet>,
    /// The scripts of the wallets that are born.
    asked: PreparedScripts,
    /// Whose they are, with their indices there.
    owners: Vec<(WalletId, usize)>,
    /// Wallets with a birthday up to this height are born.
    height: u32,
    /// The first birthday after `height`.
    next_birthday: Option<u32>,
}

#[derive(Debug, Clone)]
struct Wallet {
    birthday: u32,
    scripts: PreparedScripts,
}

impl Wallets {
    /// None yet, at `height`.
    pub(super) fn at(height: u32) -> Self {
        let (members, owners) = (Vec::new(), Vec::new());
        Self { members, asked: PreparedScripts::new(), owners, height, next_birthday: None }
    }

    /// Adds a wallet without scripts that looks at blocks from height `birthday` on, of those yet
    /// to be scanned.
    pub fn add(&mut self, birthday: u32) -> WalletId {
        let id = u32::try_from(self.members.len()).expect("fewer than 2^32 wallets");
        self.members.push(Wallet { birthday, scripts: PreparedScripts::new() });
        if birthday > self.height {
            self.next_birthday = Some(self.next_birthday.map_or(birthday, |at| at.min(birthday)));
        }
        WalletId(id)
    }

    /// Adds a script to a wallet, and returns its index there. One that is there already gets
    /// another.
    ///
    /// # Panics
    /// If these wallets never gave the id.
    pub fn push(&mut self, wallet: WalletId, script: &[u8]) -> usize {
        let Wallet { birthday, scripts } = &mut self.members[wallet.index()];
        let index = scripts.push(script);
        if *birthday <= self.height {
            self.asked.push(script);
            self.owners.push((wallet, index));
        }
        index
    }

    /// Adds scripts to a wallet.
    ///
    /// # Panics
    /// If these wallets never gave the id.
    pub fn extend<S: AsRef<[u8]>>(
        &mut self,
        wallet: WalletId,
        scripts: impl IntoIterator<Item = S>,
    ) {
        for script in scripts {
            self.push(wallet, script.as_ref());
        }
    }

    /// The scripts of a wallet, in the order of their indices.
    ///
    /// # Panics
    /// If these wallets never gave the id.
    pub fn scripts(&self, wallet: WalletId) -> &PreparedScripts {
        &self.members[wallet.index()].scripts
    }

    /// The number of wallets.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// The scripts of all wallets that are born, those of the last born last.
    pub(super) fn asked(&self) -> &PreparedScripts {
        &self.asked
    }

    /// Goes to `height`, which is not below the one before: wallets are born.
    pub(super) fn advance(&mut self, height: u32) {
        let born = self.height..height;
        self.height = height;
        if self.next_birthday.is_none_or(|birthday| birthday > height) {
            return;
        }
        self.ask_for(|birthday| born.start < birthday && birthday <= born.end);
    }

    /// Goes back to `height`: wallets born later are not born.
    pub(super) fn rewind(&mut self, height: u32) {
        let born = self.height;
        self.height = height;
        if self.members.iter().any(|wallet| height < wallet.birthday && wallet.birthday <= born) {
            self.asked.clear();
            self.owners.clear();
            self.ask_for(|birthday| birthday <= height);
        }
    }

    /// Asks for the scripts of the wallets with such birthdays, too.
    fn ask_for(&mut self, is_born: impl Fn(u32) -> bool) {
        for (id, Wallet { birthday, scripts }) in (0..).map(WalletId).zip(&self.members) {
            if is_born(*birthday) {
                self.asked.extend(scripts.iter());
                self.owners.extend((0..scripts.len()).map(|index| (id, index)));
            }
        }
        let birthdays = self.members.iter().map(|wallet| wallet.birthday);
        self.next_birthday = birthdays.filter(|&birthday| birthday > self.height).min();
    }

    /// The owners of the scripts with these indices in [`asked`](Self::asked): each wallet with
    /// the indices there, both ascending.
    pub(super) fn owners_of(&self, found: &[usize]) -> Vec<(WalletId, Vec<usize>)> {
        let mut owned: Vec<_> = found.iter().map(|&index| self.owners[index]).collect();
        owned.sort_unstable();
        let runs = owned.chunk_by(|(a, _), (b, _)| a == b);
        runs.map(|run| (run[0].0, run.iter().map(|&(_, index)| index).collect())).collect()
    }
}
