"""Computing only the ends of rows (memagent.embedded.lfm2), against the stock forward pass of an LFM2 model.

    python benchmarks/ends.py [--model embedded] [--rows 32] [--tokens 300 900] [--reply 40] [--repeat 5] [--threads 1]

Random prompts, in this process: a draft for each is checked, or replies are generated. The two ways take turns and the
fastest of each is taken, since other work on the machine only ever slows a run. "Apart" is the largest difference of two
log-probabilities of the same token.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from memagent.models.open import model_folder

if TYPE_CHECKING:
    from memagent.models.sampler import Row


class Stock:
    """A model of which nothing is known but its forward pass."""

    def __init__(self, model: Any) -> None:
        self._model, self.device, self.config = model, model.device, model.config

    def __call__(self, **options: Any) -> Any:
        return self._model(**options)


def _gaps(one: Row, other: Row) -> Iterator[float]:
    """How far the log-probabilities of two replies are apart, token by token, up to the first that is another one."""
    for token, a, same, b in zip(one.ids, one.logprobs, other.ids, other.logprobs, strict=False):
        yield abs(a - b)
        if token != same:
            return


def main() -> None:
    from memagent.core import Sampling
    from memagent.errors import MemagentError
    from memagent.models.ends import reach
    from memagent.models.local import LocalEngine
    from memagent.models.sampler import Row, sample
    from memagent.models.speculation import check_drafts

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--tokens", type=int, nargs="+", default=[300, 900])
    parser.add_argument("--reply", type=int, default=40)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    fewest = {"rows": 1, "tokens": 16, "reply": 1, "repeat": 1, "threads": 1}
    for name, least in fewest.items():
        given = getattr(arguments, name)
        if min(given if isinstance(given, list) else [given]) < least:
            parser.error(f"--{name} {given}: at least {least}")
    import torch  # after what sets up its native libraries

    torch.set_num_threads(arguments.threads)
    try:
        model = LocalEngine(model_folder(arguments.model)).model
    except MemagentError as error:
        parser.error(str(error))
    if reach(model) is None:
        parser.error(f"--model {arguments.model}: no LFM2 model, nothing is left out of its passes")
    ways = {"stock": Stock(model), "ends": model}
    print(f"{arguments.rows} rows, replies of {arguments.reply} tokens, {model.dtype}, {arguments.threads} thread(s)\n")
    print("| | tokens of a prompt | stock forward | ends only | ratio | apart |")
    print("|---|---|---|---|---|---|")
    for tokens in arguments.tokens:
        prompts = torch.randint(4, model.config.vocab_size, (arguments.rows, tokens)).tolist()
        written = [Row(prompt=prompt, max_tokens=arguments.reply, sampling=Sampling()) for prompt in prompts]
        sample(ways["stock"], written, stop_ids=frozenset(), pad_id=0)
        for what, run, drafted in (("drafts checked", check_drafts, True), ("replies generated", sample, False)):
            best: dict[str, float] = {}
            found: dict[str, list[Row]] = {}
            for _ in range(arguments.repeat):
                for name, way in ways.items():
                    rows = [
                        Row(
                            prompt=row.prompt,
                            draft=row.ids if drafted else (),  # all of which stands, but for rounding
                            max_tokens=arguments.reply,
                            sampling=Sampling(),
                        )
                        for row in written
                    ]
                    began = time.perf_counter()
                    run(way, rows, stop_ids=frozenset(), pad_id=0)
                    best[name] = min(best.get(name, 1e9), time.perf_counter() - began)
                    found[name] = rows
            pairs = zip(found["stock"], found["ends"], strict=True)
            apart = max(gap for stock, ends in pairs for gap in _gaps(stock, ends))
            rate = {name: arguments.rows * tokens / seconds for name, seconds in best.items()}
            print(
                f"| {what} | {tokens} | {rate['stock']:,.0f} tokens/s | {rate['ends']:,.0f} tokens/s |"
                f" {best['stock'] / best['ends']:.2f} | {apart:.1e} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
