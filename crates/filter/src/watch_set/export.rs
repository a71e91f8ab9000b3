//! What is watched, for others to ask: static, small, and no secret.

use alloc::vec::Vec;

use super::WatchSet;
use super::key_store::{Kept, KeyStore};
use crate::fuse::{BinaryFuse, FuseFingerprint};
use crate::hashing::KeyHasher;
use crate::static_build::BuildError;

/// What giving away a filter of a watch set gives away.
///
/// # Warning
/// The filter's hasher travels with it, key and all. Whoever has both tests every script that the
/// chain ever had, some 10⁹, in a minute or two, and at a rate of 2⁻¹⁶ is left with the watched
/// ones and a few of others: **the wallet is public**. No key prevents that, and no lower rate.
///
/// An export is for lists that are public anyway, as of known-bad addresses. A wallet that
/// doesn't want to be known asks for filters of blocks (BIP158) and matches them at home.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Exposure {
    /// Said by whoever exports: anyone may find out which scripts are in the set.
    AnyoneCanTestScripts,
}

/// Why there is no export.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError<E> {
    /// The hasher's key was drawn to be secret: it would travel with the filter.
    #[error("the hasher's random key would be published: give an explicit key, or expose it")]
    SecretKey,
    /// The store has hashes of keys only, by another hasher.
    #[error("the store shows hashes, not keys: they can't be hashed anew")]
    NoKeys,
    /// The store of keys failed.
    #[error("the store of keys: {0}")]
    Store(#[source] E),
    /// The filter can't be built.
    #[error(transparent)]
    Build(#[from] BuildError),
}

impl<S: KeyStore> WatchSet<S> {
    /// A static filter of the keys, for others to ask: [`BinaryFuse8`](crate::fuse::BinaryFuse8)
    /// or [`BinaryFuse16`](crate::fuse::BinaryFuse16). See [`Exposure`] for what that means.
    ///
    /// Keys are hashed anew, by a hasher that others may know: a new one. The set's own would let
    /// them choose keys that collide in it.
    ///
    /// # Errors
    /// If the hasher is secret, the store fails or has no keys to show, or memory is out.
    pub fn export_public<F: FuseFingerprint>(
        &self,
        hasher: KeyHasher,
        exposure: Exposure,
    ) -> Result<BinaryFuse<F>, ExportError<S::Error>> {
        let hashes = self.public_hashes(hasher, exposure)?;
        Ok(BinaryFuse::build(&hashes, 0, hasher)?)
    }

    /// The hashes of all keys by another hasher, for a static filter of another kind. They expose
    /// as much as the filter: [`Exposure`].
    ///
    /// Keys that others add or remove meanwhile may be among them or not.
    ///
    /// # Errors
    /// As [`export_public`](Self::export_public).
    pub fn public_hashes(
        &self,
        hasher: KeyHasher,
        Exposure::AnyoneCanTestScripts: Exposure,
    ) -> Result<Vec<u64>, ExportError<S::Error>> {
        if hasher.is_secret() {
            return Err(ExportError::SecretKey);
        }
        let mut hashes = Vec::with_capacity(usize::try_from(self.len()).unwrap_or_default());
        let mut has_keys = true;
        let mut take = |kept: Kept<'_>| match kept {
            Kept::Key(key) => hashes.push(hasher.hash(key)),
            Kept::Hash(hash) if hasher == self.shape.hasher => hashes.push(hash),
            Kept::Hash(_) => has_keys = false,
        };
        self.store.visit(0..=u64::MAX, &mut take).map_err(ExportError::Store)?;
        if has_keys { Ok(hashes) } else { Err(ExportError::NoKeys) }
    }
}
