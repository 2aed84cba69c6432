"""Hostile requests to a real service with three keys: how they are answered, and whether anything is let out.

    python -m benchmarks.hostile [--requests 500] [--seed 28]

Printed are the answers by kind of request, what was wrong (an error of the service, a success that should have been none,
something of other owners, a path of the machine or a key in an answer or in the log), whether a normal reading is answered
afterwards, and the megabytes of the process after every fifty requests.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.server.siege import besiege


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.hostile")
    parser.add_argument("--requests", type=int, default=500)
    parser.add_argument("--seed", type=int, default=28)
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        report = besiege(Path(folder), given.requests, given.seed)
    print("| kind | answers |\n|---|---|")
    for kind, counts in report.statuses.items():
        print(f"| {kind} | {', '.join(f'{count} × {status}' for status, count in sorted(counts.items()))} |")
    print(f"wrong: {len(report.wrong)}", *report.wrong, sep="\n")
    print(f"a normal reading is answered: {report.answered}")
    print("megabytes:", *(f"{size:.0f}" for size in report.megabytes))


if __name__ == "__main__":
    main(sys.argv[1:])
