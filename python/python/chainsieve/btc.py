"""Filters of Bitcoin: Bloom filters of wallets (BIP37) and filters of blocks (BIP158).

Hashes are text as explorers print them, or 32 bytes in the order of the wire. Blocks, transactions
and messages are bytes. What cannot be read raises ``chainsieve.InvalidInput``.
"""

from ._native import BlockFilter, BloomFilter, MerkleBlock, match_any

__all__ = ["BlockFilter", "BloomFilter", "MerkleBlock", "match_any"]
