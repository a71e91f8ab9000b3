//! Export of a watch set as a static filter that is public.

use alloc::vec::Vec;

use super::WatchSet;
use super::key_store::{Kept, KeyStore};
use crate::fuse::{BinaryFuse, FuseFingerprint};
use crate::hashing::KeyHasher;
use crate::static_build::BuildError;

/// The caller's confirmation that publishing a filter of a watch set reveals the set.
///
/// # Warning
/// The filter's hasher is published with the filter, including its key. Whoever has the filter and
/// the hasher can test every script that ever occurred in the chain, about 10⁹ scripts, in a minute
/// or two. At a rate of 2⁻¹⁶ only the watched scripts and a few others remain: **the wallet is
/// public**. Neither a hash key nor a lower rate keeps the wallet private.
///
/// Export only lists that are public anyway, such as lists of known-bad addresses. A wallet that
/// wants privacy should download filters of blocks (BIP158) and match them locally.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Exposure {
    /// Confirms that anyone with the filter can find out which scripts are in the set.
    AnyoneCanTestScripts,
}

/// The reason why a watch set can't be exported.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError<E> {
    /// The hasher's key was drawn at random to stay secret, but would be published with the filter.
    #[error("the hasher's random key would be published: give an explicit key, or expose this key")]
    SecretKey,
    /// The key store provides only hashes, which were computed by another hasher.
    #[error("the key store has only hashes of its keys, which can't be hashed by another hasher")]
    NoKeys,
    /// The key store failed.
    #[error("the key store failed: {0}")]
    Store(#[source] E),
    /// The static filter can't be built.
    #[error(transparent)]
    Build(#[from] BuildError),
}

impl<S: KeyStore> WatchSet<S> {
    /// Builds a static filter of the keys for publication: a
    /// [`BinaryFuse8`](crate::fuse::BinaryFuse8) or a [`BinaryFuse16`](crate::fuse::BinaryFuse16).
    /// [`Exposure`] describes what the filter reveals.
    ///
    /// The keys are hashed again by `hasher`, which becomes public. Use a new hasher: with the
    /// hasher of the set, others could choose keys that collide in the set.
    ///
    /// # Errors
    /// Returns an error if the hasher is secret, if the store fails or provides only hashes, if
    /// there is no memory, or if no seed leads to a filter.
    pub fn export_public<F: FuseFingerprint>(
        &self,
        hasher: KeyHasher,
        exposure: Exposure,
    ) -> Result<BinaryFuse<F>, ExportError<S::Error>> {
        let hashes = self.public_hashes(hasher, exposure)?;
        Ok(BinaryFuse::build(&hashes, 0, hasher)?)
    }

    /// Returns the hashes of all keys under another hasher, to build a static filter of another
    /// kind. The hashes reveal as much as the filter: see [`Exposure`].
    ///
    /// Keys that other threads add or remove during the call may or may not be included.
    ///
    /// # Errors
    /// Returns [`ExportError::SecretKey`], [`ExportError::Store`] or [`ExportError::NoKeys`], as
    /// [`export_public`](Self::export_public) does.
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
