"""Conformance vectors of Bitcoin's and Ethereum's filters."""

import json
import pathlib

_FOLDER = pathlib.Path(__file__).parent


def pack():
    """Returns the index of the pack: version, areas, profiles."""
    return json.loads((_FOLDER / "pack.json").read_text())


def vectors(area):
    """Returns the vectors of an area, for example "bip37.sizing"."""
    return json.loads((_FOLDER / "vectors" / f"{area}.json").read_text())


def cases(area):
    """Yields all cases of an area. Each input has the parameters of its group."""
    for group in vectors(area)["groups"]:
        for case in group["cases"]:
            yield {**case, "input": {**group["params"], **case["input"]}}
