//! Check of a header's proof of work against its own bits and the network's limit: Bitcoin Core's
//! `CheckProofOfWork`.
//!
//! This module does not check that the bits are those that the chain requires at this height. That
//! check needs the preceding headers and is left to the caller.
//!
//! Source: Bitcoin Core 28.1, `pow.cpp` and `arith_uint256.cpp`. `Target::from_compact` of the
//! crate `bitcoin` is not used, because it reads a negative number as 0 and does not check for
//! overflow.

use bitcoin::block::Header;
use bitcoin::{BlockHash, Network, Target};
use thiserror::Error;

/// Decodes a compact target (the `bits` of a header) as Core's `SetCompact` does.
///
/// # Errors
/// Returns an error if the target is negative, zero, or larger than 256 bits.
///
/// # Examples
/// ```
/// use chainsieve::btc::proof_of_work::{ProofOfWorkError, target_from_bits};
/// # use chainsieve::bitcoin::Target;
/// assert_eq!(target_from_bits(0x1d00_ffff), Ok(Target::MAX_ATTAINABLE_MAINNET));
/// assert_eq!(target_from_bits(0x0492_3456), Err(ProofOfWorkError::Negative(0x0492_3456)));
/// ```
pub fn target_from_bits(bits: u32) -> Result<Target, ProofOfWorkError> {
    let size = bits >> 24;
    let mut word = bits & 0x007f_ffff;
    // A size below 3 drops low bytes of the mantissa, as in Core.
    if size <= 3 {
        word >>= 8 * (3 - size);
    }
    // Core calls a number negative only if it is not zero, so zero is tested first.
    if word == 0 {
        return Err(ProofOfWorkError::Zero(bits));
    }
    if bits & 0x0080_0000 != 0 {
        return Err(ProofOfWorkError::Negative(bits));
    }
    let mut target = [0; 32];
    let lowest = size.saturating_sub(3) as usize;
    for (place, &byte) in (lowest..).zip(word.to_le_bytes().iter().take(3)) {
        match target.iter_mut().rev().nth(place) {
            Some(slot) => *slot = byte,
            // A byte above the top of the 256 bits overflows only if it is not zero.
            None if byte == 0 => {}
            None => return Err(ProofOfWorkError::Overflow(bits)),
        }
    }
    Ok(Target::from_be_bytes(target))
}

/// Checks that `header` has the work that its own bits claim, and that the target is at most the
/// limit of `network`. Returns the header's hash.
///
/// # Errors
/// Returns an error if the bits are invalid, if the target is easier than the network's limit, or
/// if the hash is above the target.
pub fn check_proof_of_work(
    header: &Header,
    network: Network,
) -> Result<BlockHash, ProofOfWorkError> {
    let bits = header.bits.to_consensus();
    let target = target_from_bits(bits)?;
    let limit = network.params().max_attainable_target;
    if target > limit {
        return Err(ProofOfWorkError::AboveLimit { bits, limit });
    }
    let hash = header.block_hash();
    if !target.is_met_by(hash) {
        return Err(ProofOfWorkError::HashAboveTarget { hash, target });
    }
    Ok(hash)
}

/// Reason why a header has no valid proof of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ProofOfWorkError {
    /// The bits encode a target of 0.
    #[error("bits {0:#010x} encode a target of 0")]
    Zero(u32),
    /// The bits encode a negative target.
    #[error("bits {0:#010x} encode a negative target")]
    Negative(u32),
    /// The bits encode a target larger than 256 bits.
    #[error("bits {0:#010x} encode a target over 256 bits")]
    Overflow(u32),
    /// The target is easier than the network's limit.
    #[error("bits {bits:#010x} encode a target easier than the network's limit of {limit:x}")]
    AboveLimit {
        /// The header's bits.
        bits: u32,
        /// The easiest target that the network allows.
        limit: Target,
    },
    /// The hash is above the header's own target.
    #[error("hash {hash} is above the target of {target:x}")]
    HashAboveTarget {
        /// The header's hash.
        hash: BlockHash,
        /// The header's target.
        target: Target,
    },
}

#[cfg(test)]
mod tests {
    use bitcoin::block::Header;
    use bitcoin::consensus::encode::deserialize_hex;
    use bitcoin::{CompactTarget, Network};

    use super::{ProofOfWorkError as Error, check_proof_of_work, target_from_bits};

    const BLOCK_170: &str = "0100000055bd840a78798ad0da853f68974f3d183e2bd1db6a842c1feecf222a00000000ff104ccb05421ab93e63f8c3ce5c2c2e9dbb37de2764b3a3175c8166562cac7d51b96a49ffff001d283e9e70";

    /// The rows of Bitcoin Core's `arith_uint256_tests.cpp`, `bignum_SetCompact`.
    #[test]
    fn compact_targets_as_core() {
        let zeros = [
            0x0000_0000,
            0x0012_3456,
            0x0100_3456,
            0x0200_0056,
            0x0300_0000,
            0x0400_0000,
            0x0092_3456,
            0x0180_3456,
            0x0280_0056,
            0x0380_0000,
            0x0480_0000,
        ];
        for bits in zeros {
            assert_eq!(target_from_bits(bits), Err(Error::Zero(bits)), "{bits:08x}");
        }
        for bits in [0x01fe_dcba, 0x0492_3456] {
            assert_eq!(target_from_bits(bits), Err(Error::Negative(bits)), "{bits:08x}");
        }
        assert_eq!(target_from_bits(0xff12_3456), Err(Error::Overflow(0xff12_3456)));
        for (bits, hex) in [
            (0x0112_3456, "12"),
            (0x0212_3456, "1234"),
            (0x0312_3456, "123456"),
            (0x0412_3456, "12345600"),
            (0x0500_9234, "92340000"),
        ] {
            let target = target_from_bits(bits).unwrap();
            assert_eq!(format!("{target:x}"), format!("{hex:0>64}"), "{bits:08x}");
        }
        let top = "1234560000000000000000000000000000000000000000000000000000000000";
        assert_eq!(format!("{:x}", target_from_bits(0x2012_3456).unwrap()), top);
        // Core reports overflow in three cases: the size is over 34 and the mantissa is not zero,
        // the size is over 33 and the mantissa is over one byte, or the size is over 32 and the
        // mantissa is over two bytes.
        for (bits, fits) in [
            (0x2200_00ff, true),
            (0x2200_0100, false),
            (0x2300_0001, false),
            (0x2100_ffff, true),
            (0x2101_0000, false),
        ] {
            assert_eq!(target_from_bits(bits).is_ok(), fits, "{bits:08x}");
        }
    }

    #[test]
    fn each_check_of_a_header() {
        let header: Header = deserialize_hex(BLOCK_170).unwrap();
        assert_eq!(check_proof_of_work(&header, Network::Bitcoin), Ok(header.block_hash()));
        let with = |bits| Header { bits: CompactTarget::from_consensus(bits), ..header };
        let check = |header: Header, network| check_proof_of_work(&header, network).unwrap_err();
        assert!(matches!(
            check(with(0x1d01_0000), Network::Bitcoin),
            Error::AboveLimit { bits: 0x1d01_0000, .. }
        ));
        assert!(matches!(
            check(with(0x1d00_fffe), Network::Bitcoin),
            Error::HashAboveTarget { .. }
        ));
        // About half of all hashes meet regtest's limit, which is above the limit of the other
        // networks.
        assert!(matches!(check(with(0x207f_ffff), Network::Signet), Error::AboveLimit { .. }));
        assert!(!matches!(
            check_proof_of_work(&with(0x207f_ffff), Network::Regtest),
            Err(Error::AboveLimit { .. })
        ));
    }
}
