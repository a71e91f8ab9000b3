"""The exceptions of the package. Their texts are those of the library."""


class Error(Exception):
    """Base class of the package's own exceptions."""

    __module__ = "chainsieve"


class InvalidInput(Error, ValueError):
    """Bytes, JSON or numbers that are none of what was expected."""

    __module__ = "chainsieve"


class ProviderError(Error):
    """An operation on nodes has failed: no node answers, or no answer can be verified."""

    __module__ = "chainsieve"


class IncompleteError(ProviderError):
    """Some blocks are not proven, so logs may be missing.

    ``args[1]`` has the logs of the proven blocks, and ``args[2]`` lists the other blocks: their
    numbers, each with the reason. ``logs`` and ``missing`` are the same.
    """

    __module__ = "chainsieve"

    @property
    def logs(self) -> list[dict[str, object]]:
        """The logs of the blocks that are proven."""
        logs: list[dict[str, object]] = self.args[1]
        return logs

    @property
    def missing(self) -> list[tuple[int, str]]:
        """The numbers of the blocks that are not proven, each with the reason."""
        missing: list[tuple[int, str]] = self.args[2]
        return missing

    def __str__(self) -> str:
        return str(self.args[0])
