//! Transfers of ether as logs (EIP-7708).

use alloy_primitives::{Address, B256, address, b256};

use super::query::LogQuery;

/// Who emits the logs of ether transfers: the system address.
///
/// Source: EIP-7708, after EIP-4788.
pub const EIP7708_EMITTER: Address = address!("0xfffffffffffffffffffffffffffffffffffffffe");

/// The first topic of a transfer, of tokens (ERC-20) and of ether: the hash of
/// `Transfer(address,address,uint256)`.
pub const TRANSFER_TOPIC: B256 =
    b256!("0xddf252ad1be2c89b69c2b068fc378daa952ba7f163c4a11628f55a4df523b3ef");

impl LogQuery {
    /// Transfers of ether, from the fork on that brings EIP-7708.
    ///
    /// The sender is [`topic1`](Self::topic1), the recipient [`topic2`](Self::topic2), the amount
    /// in wei the data. What an account sends *or* receives takes two queries: positions are
    /// joined by "and".
    ///
    /// **Not enough for a balance.** The logs tell of value that moves to another account, by a
    /// transaction or inside the EVM. They don't tell of fees and priority fees, withdrawals of
    /// validators, rewards of blocks before the merge, nor of anything before the fork. Blocks
    /// before it have no such log, so a complete answer of nothing is right there and says
    /// nothing.
    ///
    /// Source: EIP-7708 as of May 2026, which rests on EIP-8246 and knows no logs of burnt ether;
    /// earlier drafts had them.
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

    /// The bits that were computed apart from this library for the emitter and the topic.
    #[test]
    fn the_query_has_the_bits_of_emitter_and_topic() {
        assert_eq!(event_topic("Transfer(address,address,uint256)"), Ok(TRANSFER_TOPIC));
        assert_eq!(bloom::positions(EIP7708_EMITTER.as_slice()), [1213, 435, 262]);
        let compiled = LogQuery::eth_transfers().compile();
        assert_eq!(compiled.clauses(), [[[1213, 435, 262]], [[1443, 481, 1060]]]);
    }
}
