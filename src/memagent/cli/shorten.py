"""`memagent shorten`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from memagent.cli.console import boundary, write
from memagent.cli.tasks import TokenizerName
from memagent.models.open import open_tokenizer


def shorten(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders of `memagent eval`.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The sample file to write (JSONL).")],
    chunks: Annotated[int, typer.Option(min=1, help="Leave out readings that need more chunks.")] = 16,
    right: Annotated[bool, typer.Option("--right/--wrong", help="Right readings, too, or only wrong ones.")] = False,
    samples: Annotated[
        list[Path] | None, typer.Option(help="The sample file of a run, if it has moved. Repeat for several.")
    ] = None,
    tokenizer: TokenizerName = "embedded",
) -> None:
    """Make short samples of long readings that went wrong: chunks at which the memory changed, and those of needed facts.

    They show what misled the model, and `memagent train rl` can train on them if the samples are of the split `train`.
    """
    with boundary():
        from memagent.evaluation.shorten import in_words, write_short

        written, out = write_short(runs, samples or (), output, open_tokenizer(tokenizer), most=chunks, right=right)
        write(f"{written:,} samples in {output}; readings left out: {in_words(out)}")
