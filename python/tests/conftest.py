"""What the tests share: the fixtures of the repository."""

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def fixtures() -> Path:
    """The folder of real chain data and published answers."""
    return ROOT / "fixtures"
