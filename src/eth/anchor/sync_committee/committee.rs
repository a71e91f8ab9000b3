//! Sync committees: their keys, and the signatures that they make.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;

use alloy_primitives::{B256, FixedBytes};
use bls12_381::hash_to_curve::{ExpandMsgXmd, HashToCurve};
use bls12_381::{
    G1Affine, G1Projective, G2Affine, G2Prepared, G2Projective, Gt, multi_miller_loop,
};
use sha2::Sha256;

use super::Participation;
use super::ssz::{Container, DecodeError, byte_leaves, merkle_root};
use crate::eth::anchor::merkle_branch;
use crate::eth::anchor::network::{Network, Preset};

/// Domain separation tag of Ethereum's signatures (proof of possession).
const SUITE: &[u8] = b"BLS_SIG_BLS12381G2_XMD:SHA-256_SSWU_RO_POP_";

/// `DOMAIN_SYNC_COMMITTEE`.
const DOMAIN: [u8; 4] = [7, 0, 0, 0];

/// `SyncCommittee`: the public keys of the validators that sign in a period.
///
/// SSZ: 48 bytes for each key, then the sum of all keys. 24,624 bytes with the preset of mainnet.
#[derive(Clone, PartialEq, Eq)]
pub struct SyncCommittee {
    /// Compressed keys of the members, points of G1, in the order of the bits of a
    /// [`SyncAggregate`]. A validator may occur several times.
    pub keys: Box<[FixedBytes<48>]>,
    /// Sum of all keys, compressed.
    pub aggregate: FixedBytes<48>,
}

impl fmt::Debug for SyncCommittee {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SyncCommittee({} keys, {})", self.keys.len(), self.root())
    }
}

impl SyncCommittee {
    /// Reads the committee from the fixed part of a container.
    pub(super) fn decode(fields: &mut Container<'_>, preset: Preset) -> Result<Self, DecodeError> {
        let keys = fields.take(48 * preset.sync_committee_size())?;
        let keys = keys.as_chunks().0.iter().map(|key| FixedBytes::new(*key)).collect();
        Ok(Self { keys, aggregate: FixedBytes::new(fields.array()?) })
    }

    /// Returns the SSZ root: `hash_tree_root`.
    ///
    /// # Cost
    /// Two SHA-256 of 64 bytes for each key.
    pub fn root(&self) -> B256 {
        let leaf = |key: &FixedBytes<48>| merkle_root(&byte_leaves(key.as_slice()));
        let keys: Vec<_> = self.keys.iter().map(leaf).collect();
        B256::new(merkle_branch::parent(&merkle_root(&keys), &leaf(&self.aggregate)))
    }

    /// Returns `true` if all keys are zero, which means that the committee is absent.
    pub(super) fn is_empty(&self) -> bool {
        self.keys.iter().chain([&self.aggregate]).all(FixedBytes::is_zero)
    }
}

/// A sync committee with decompressed keys, so that the cost of decompression is paid once for each
/// period.
#[derive(Clone)]
pub(super) struct Committee {
    pub(super) listed: Arc<SyncCommittee>,
    points: Arc<[G1Affine]>,
    /// Sum of all points.
    sum: G1Projective,
}

impl fmt::Debug for Committee {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.listed.fmt(f)
    }
}

impl Committee {
    /// Decompresses the keys of a committee that is proven to be part of the chain's state.
    ///
    /// A key that is not on the curve, or is infinity, is refused. The check that a key is in the
    /// right subgroup is skipped: the chain made that check when it accepted the deposit.
    ///
    /// # Errors
    /// Returns the index of the first invalid key.
    ///
    /// # Cost
    /// One square root for each key, about 20 ms for 512 keys.
    pub(super) fn new(listed: Arc<SyncCommittee>) -> Result<Self, usize> {
        let mut points = Vec::with_capacity(listed.keys.len());
        for (index, key) in listed.keys.iter().enumerate() {
            let point = Option::from(G1Affine::from_compressed_unchecked(&key.0));
            let point = point.filter(|point: &G1Affine| !bool::from(point.is_identity()));
            points.push(point.ok_or(index)?);
        }
        let sum = points.iter().fold(G1Projective::identity(), |sum, point| sum + point);
        Ok(Self { listed, points: points.into(), sum })
    }

    /// Returns `true` if `aggregate` is a signature of `message` by its participants:
    /// `FastAggregateVerify`.
    ///
    /// # Cost
    /// One addition for each absent member, or for each participant if these are fewer. One hash to
    /// the curve, one check of a subgroup, two pairings.
    fn signed(&self, aggregate: &SyncAggregate, message: &[u8; 32]) -> bool {
        let signature = G2Affine::from_compressed(&aggregate.signature.0);
        let Some(signature) = Option::<G2Affine>::from(signature) else { return false };
        let Participation { signed, of } = aggregate.participation();
        if self.points.len() != of {
            return false;
        }
        let select = |wanted: bool| {
            let bits = aggregate.bits().zip(&self.points[..]);
            bits.filter(move |(bit, _)| *bit == wanted).map(|(_, point)| point)
        };
        let key = if signed * 2 > of {
            select(false).fold(self.sum, |sum, point| sum - point)
        } else {
            select(true).fold(G1Projective::identity(), |sum, point| sum + point)
        };
        // Without participants, or with keys that cancel out, any message would count as signed by
        // the signature at infinity.
        if bool::from(key.is_identity()) {
            return false;
        }
        let hash = <G2Projective as HashToCurve<ExpandMsgXmd<Sha256>>>::hash_to_curve(
            [&message[..]],
            SUITE,
        );
        let terms = [
            (&G1Affine::from(key), &G2Prepared::from(G2Affine::from(hash))),
            (&-G1Affine::generator(), &G2Prepared::from(signature)),
        ];
        multi_miller_loop(&terms).final_exponentiation() == Gt::identity()
    }

    /// Returns `true` if the participants signed a beacon block as members of this committee.
    pub(super) fn signed_header(
        &self,
        aggregate: &SyncAggregate,
        header_root: B256,
        signature_slot: u64,
        network: &Network,
    ) -> bool {
        self.signed(aggregate, &signing_root(header_root, signature_slot, network))
    }
}

/// Returns the message that members of a sync committee sign: `compute_signing_root` of a header's
/// root.
fn signing_root(header_root: B256, signature_slot: u64, network: &Network) -> [u8; 32] {
    let data = network.fork_data_root(network.signing_version(signature_slot));
    let mut domain = [0; 32];
    domain[..4].copy_from_slice(&DOMAIN);
    domain[4..].copy_from_slice(&data[..28]);
    merkle_branch::parent(&header_root.0, &domain)
}

/// `SyncAggregate`: the members that signed, and the sum of their signatures.
///
/// SSZ: one bit for each member, member `i` in bit `i % 8` of byte `i / 8`, then 96 bytes. With the
/// preset of mainnet, these are 160 bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyncAggregate {
    /// One bit for each member of the committee.
    pub bits: Box<[u8]>,
    /// Sum of the signatures.
    pub signature: FixedBytes<96>,
}

impl SyncAggregate {
    pub(super) fn decode(fields: &mut Container<'_>, preset: Preset) -> Result<Self, DecodeError> {
        let bits = fields.take(preset.sync_committee_size() / 8)?.into();
        Ok(Self { bits, signature: FixedBytes::new(fields.array()?) })
    }

    /// Returns how many members of the committee signed.
    pub fn participation(&self) -> Participation {
        let signed = self.bits.iter().map(|byte| byte.count_ones() as usize).sum();
        Participation { signed, of: self.bits.len() * 8 }
    }

    fn bits(&self) -> impl Iterator<Item = bool> + '_ {
        self.bits.iter().flat_map(|byte| (0..8).map(move |bit| byte >> bit & 1 == 1))
    }
}
