"""JSON of the dictionaries that web3.py takes and returns."""

import json
from collections.abc import Mapping
from typing import Any


def plain(value: Any) -> Any:
    """Numbers and bytes become hex, as JSON-RPC has them; other containers become lists."""
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return hex(value)
    if isinstance(value, (bytes, bytearray)):
        return "0x" + bytes(value).hex()
    if isinstance(value, Mapping):
        return {str(name): plain(member) for name, member in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(member) for member in value]
    raise TypeError(f"{type(value).__name__} has no form in JSON-RPC")


def to_json(value: Any) -> str:
    """The JSON of a filter or of logs."""
    return json.dumps(plain(value))
