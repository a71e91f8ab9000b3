"""What the tests share: the fixtures of the repository, and signals that come in."""

import signal
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def pytest_configure() -> None:
    """A shell starts programs in the background with SIGINT ignored. Then Ctrl-C would end no wait."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def fixtures() -> Path:
    """The folder of real chain data and published answers."""
    return ROOT / "fixtures"
