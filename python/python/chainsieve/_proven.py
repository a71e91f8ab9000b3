"""What ``Provider.logs`` returns."""

from typing import Any


class ProvenLogs(list[dict[str, Any]]):
    """All logs of a query: a list, with what the proof depends on."""

    __module__ = "chainsieve.eth"

    blocks: tuple[int, int]
    """The first and the last block for which the logs are complete."""
    tip: tuple[int, bytes]
    """The block that the proof depends on: its number and its hash."""
    anchored: bool
    """Whether the tip is an anchor of the caller. If not, only the nodes vouch for it."""
    verified: int
    """The number of blocks whose receipts were verified. The filters of the others rule logs out."""
    warnings: list[str]
    """What makes the result less reliable."""

    def __init__(self, logs: list[dict[str, Any]], **fields: Any) -> None:
        super().__init__(logs)
        self.__dict__.update(fields)
