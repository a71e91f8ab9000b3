"""Types of keys, for annotations."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

    from ._native import LogQuery

Key: TypeAlias = "bytes | bytearray | str | int | numpy.integer[Any]"
"""A single key."""


class ArrowArray(Protocol):
    """An array of Arrow, by the PyCapsule interface."""

    def __arrow_c_array__(self, requested_schema: Any = None) -> Any: ...


class ArrowStream(Protocol):
    """A column of Arrow in several arrays, by the PyCapsule interface."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any: ...


Keys: TypeAlias = "Iterable[Key] | NDArray[Any] | ArrowArray | ArrowStream"
"""Many keys."""

Rows: TypeAlias = "Iterable[bytes] | NDArray[Any] | ArrowArray | ArrowStream"
"""Many byte strings: filters of blocks, or scripts."""

HashName: TypeAlias = Literal["siphash13", "xxh3", "xxh64", "murmur3", "fnv1a"]
"""The hash functions of keys."""

Filter: TypeAlias = "str | Mapping[str, Any] | LogQuery"
"""What ``eth_getLogs`` takes: web3.py's dictionary, its JSON, or a query."""

Logs: TypeAlias = "str | Sequence[Mapping[str, Any]]"
"""What ``eth_getLogs`` returns: a list of dictionaries, or its JSON."""
