"""Membership filters: sets of keys in a few bits per key.

The answer "no" is certain. The answer "maybe" is wrong at a rate that you choose.

A key is ``bytes``, ``str`` (as UTF-8) or ``int`` (as 8 bytes, little-endian, in two's complement;
from -2**63 to 2**64 - 1, so -1 and 2**64 - 1 are the same key). ``bool`` and ``float`` are no keys.

Methods that take many keys accept

- lists, tuples and other iterables of such keys;
- arrays of numpy, and other buffers: integers of any width (widened to 8 bytes), ``V32`` or
  ``uint8[n, k]`` for keys of a fixed width, ``S32`` where no key ends in a zero byte, text;
- Arrow: whatever has ``__arrow_c_array__`` or ``__arrow_c_stream__``, as the arrays and columns of
  pyarrow, Polars, DuckDB and DataFusion have: binary, text and integers in all of Arrow's layouts,
  without nulls.

A key has the same bytes in all of them. The memory of arrays is read in place, without the
interpreter: no other thread may write an array meanwhile.

Several threads may query one filter. A thread that changes a filter must be alone with it: the
others get a ``RuntimeError``.
"""

from ._native import Bloom, Fuse8, Fuse16, SplitBlock

__all__ = ["Bloom", "Fuse16", "Fuse8", "SplitBlock"]
