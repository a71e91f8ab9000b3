"""The subject's side of the protocol: one JSON object a line, on stdin and stdout.

Copy this file to test your own implementation; it needs nothing but Python 3. Call `serve` with one function for each
area: its arguments are the members of a case's input, its result is the value.
"""

import json
import os
import pathlib
import sys


class Invalid(Exception):
    """The implementation refused the input in its documented way."""


class Skip(Exception):
    """The implementation has no call for this case."""


def serve(areas, refusals=(), **started):
    """Answers the runner until it says `stop`. `refusals`: the library's own exceptions that mean `invalid`."""
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what a library prints, in Python or in C, must not get between the answers

    def answer(**message):
        print(json.dumps(message), file=out, flush=True)

    for line in sys.stdin:
        message = json.loads(line)
        if message["cmd"] == "start":
            about = json.loads(pathlib.Path("subject.json").read_text())
            about = {member: about[member] for member in ("name", "version", "language")}
            answer(version=1, implementation=about, areas=sorted(areas), **started)
        elif message["cmd"] == "stop":
            return
        else:
            seq = message["seq"]
            try:
                answer(seq=seq, value=areas[message["area"]](**message["input"]))
            except Skip as reason:
                answer(seq=seq, skipped=str(reason))
            except (Invalid, *refusals) as reason:
                answer(seq=seq, invalid=f"{type(reason).__name__}: {reason}")
            except Exception as failure:  # anything else is a crash of the implementation, and a finding
                answer(seq=seq, error=f"{type(failure).__name__}: {failure}")
