"""Filters of Bitcoin and Ethereum, and membership filters for keys of any kind.

- ``chainsieve.filter``: is a key in a set? In bulk, on arrays of numpy and on Arrow.
- ``chainsieve.btc``: Bloom filters of wallets, filters of blocks, merkle blocks.
- ``chainsieve.eth``: logs of Ethereum that are proven to be complete.
"""

from . import btc, eth, filter
from ._errors import Error, IncompleteError, InvalidInput, ProviderError

__all__ = ["Error", "IncompleteError", "InvalidInput", "ProviderError", "btc", "eth", "filter"]
__version__ = "0.2.0"
