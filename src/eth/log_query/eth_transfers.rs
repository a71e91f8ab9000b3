//! Queries for the logs of ether transfers (EIP-7708).

use alloy_primitives::{Address, B256, address, b256};

use super::query::LogQuery;

/// The address that emits the logs of ether transfers: the system address.
///
/// Source: EIP-7708, which uses the system address of EIP-4788.
pub const EIP7708_EMITTER: Address = address!("0xfffffffffffffffffffffffffffffffffffffffe");

/// The first topic of a token transfer (ERC-20) and of an ether transfer (EIP-7708).
///
/// The topic is the Keccak-256 hash of `Transfer(address,address,uint256)`.
pub const TRANSFER_TOPIC: B256 =
    b256!("0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef");

impl LogQuery {
    /// Creates a query for the logs of ether transfers, which exist since the fork with EIP-7708.
    ///
    /// In the log of an ether transfer, the sender is [`topic1`](Self::topic1), the recipient is
    /// [`topic2`](Self::topic2), and the data is the amount in wei. To find what an account sends
    /// *or* receives, use two queries, because all positions of one query must match.
    ///
    /// **A balance can't be computed from these logs.** The logs report value that moves to another
    /// account, by a transaction or inside the EVM. The logs do not report fees, priority fees,
    /// validator withdrawals or block rewards before the merge. Blocks before the fork have no logs
    /// of ether transfers. So an empty answer for blocks before the fork is complete and correct,
    /// but gives no information about transfers.
    ///
    /// Source: EIP-7708 as of May 2026, which builds on EIP-8246. Earlier drafts of EIP-7708 also
    /// had logs of burnt ether; the version of May 2026 has no such logs.
    ///
    /// # Examples
    /// ```
    /// use chainsieve::alloy_primitives::address;
    /// use chainsieve::eth::log_query::LogQuery;
    /// let me = address!("0xd8da6bf26964af9d7eed9e03e53415d37aa96045");
    /// let received = LogQuery::eth_transfers().topic2(me).from_block(25_000_000);
    /// let sent = LogQuery::eth_transfers().topic1(me).from_block(25_000_000);
    /// assert_ne!(received, sent);
    /// ```
    pub fn eth_transfers() -> Self {
        Self::new().address(EIP7708_EMITTER).topic0(TRANSFER_TOPIC)
    }
}

#[cfg(test)]
mod tests {

    use super::{EIP7708_EMITTER, TRANSFER_TOPIC};
    use crate::eth::bloom;
    use crate::eth::log_query::{LogQuery, event_topic};

    /// The bit positions of emitter and topic were computed independently of this library.
    #[test]
    fn the_query_has_the_bits_of_emitter_and_topic() {
        assert_eq!(event_topic("Transfer(address,address,uint256)"), Ok(TRANSFER_TOPIC));
        assert_eq!(bloom::positions(EIP7708_EMITTER.as_slice()), [1213, 435, 262]);
        let compiled = LogQuery::eth_transfers().compile();
        assert_eq!(compiled.clauses(), [[[1213, 435, 262]], [[1443, 481, 1060]]]);
    }
}
