"""Whether a gate skips too much: readings where the first token of "nothing new" is less likely than the model says.

    python -m benchmarks.gate_bias SAMPLES.jsonl OUT.csv [--model FOLDER] [--reader NAME …] [--less NATS …]

A diagnosis, not a way to read. OUT.csv has a row for each reader and each value of --less, which is taken from the token's
logit: strict accuracy of SAMPLES with its Wilson interval, and the share of the turns before the answer that were skipped.
If accuracy rises, the model knew more than its gate let through, and training can move the gate.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.readers import measured, write
from memagent.models.open import open_model
from memagent.settings import make_settings

COLUMNS = "reader less n accuracy low high skipped".split()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("samples", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--reader", action="append", default=[])
    parser.add_argument("--less", type=float, action="append", default=[])
    parser.add_argument("--batch", type=int, default=64)
    given = parser.parse_args()
    if not given.samples.is_file():
        parser.error(f"{given.samples} is no file: make one with memagent synth")
    rows: list[dict[str, Any]] = []
    with TemporaryDirectory() as folder, closing((opened := open_model(given.model)).engine):
        samples = Path(shutil.copy(given.samples, folder))
        engine: Any = opened.engine
        for reader in given.reader or ["gated", "parallel"]:
            settings = make_settings(opened, model=given.model, reader=reader)
            form = settings.profile.nothing
            token = engine._chat.encode_reply(engine._family.written(form) if engine._family else form)[0]
            for less in given.less or [0.0, 1.0, 3.0, 6.0]:
                hook = engine.model.get_output_embeddings().register_forward_hook(lower(token, less))
                for row in measured(opened, settings, samples, given.batch, f"{reader}-{less:g}"):
                    rows.append({**row, "less": less})
                    print({name: rows[-1][name] for name in COLUMNS}, file=sys.stderr)
                hook.remove()
                write(given.out, COLUMNS, [{name: row[name] for name in COLUMNS} for row in rows])


def lower(token: int, less: float) -> Any:
    """A hook that takes `less` from the logit of a token, wherever logits [..., V] are computed."""

    def hook(_module: Any, _given: Any, logits: Any) -> Any:
        logits = logits.clone()
        logits[..., token] -= less
        return logits

    return hook


if __name__ == "__main__":
    main()
