"""Checking drafts where only the ends of rows are computed (memagent.models.lfm2), against the stock forward pass.

    python benchmarks/checking.py [--model embedded] [--rows 32] [--tokens 900] [--draft 40] [--repeat 5] [--threads 1]

Random prompts, one draft each, in this process; the two ways take turns and the fastest of each is taken, since other work
on the machine only ever slows a run. "Apart" is the largest difference of two log-probabilities.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

from memagent.models.open import model_folder


class Stock:
    """A model of which nothing is known but its forward pass."""

    def __init__(self, model: Any) -> None:
        self._model, self.device, self.config = model, model.device, model.config

    def __call__(self, **options: Any) -> Any:
        return self._model(**options)


def main() -> None:
    from memagent.core import Sampling
    from memagent.models.checking import check_drafts
    from memagent.models.local import LocalEngine
    from memagent.models.sampler import Row

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="embedded")
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--tokens", type=int, nargs="+", default=[300, 900])
    parser.add_argument("--draft", type=int, default=40)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    import torch  # after what sets up its native libraries

    torch.set_num_threads(arguments.threads)
    model = LocalEngine(model_folder(arguments.model)).model
    print(f"{arguments.rows} rows, drafts of {arguments.draft} tokens, {model.dtype}, {arguments.threads} thread(s)\n")
    print("| tokens of a prompt | stock forward | ends only | ratio | apart |")
    print("|---|---|---|---|---|")
    for tokens in arguments.tokens:
        ids = torch.randint(4, model.config.vocab_size, (arguments.rows, tokens + arguments.draft)).tolist()
        best: dict[str, float] = {}
        logprobs: dict[str, torch.Tensor] = {}
        for _ in range(arguments.repeat):
            for name, way in (("stock", Stock(model)), ("ends", model)):
                # Every token of a draft stands: a share of e^-60 of the likeliest is enough.
                rows = [
                    Row(
                        prompt=row[:tokens],
                        draft=row[tokens:],
                        max_tokens=arguments.draft + 1,
                        sampling=Sampling(),
                        shares=[1e-26] * arguments.draft,
                    )
                    for row in ids
                ]
                began = time.perf_counter()
                check_drafts(way, rows, stop_ids=frozenset(), pad_id=0)
                best[name] = min(best.get(name, 1e9), time.perf_counter() - began)
                logprobs[name] = torch.tensor([row.logprobs[: arguments.draft] for row in rows])
        apart = float((logprobs["stock"] - logprobs["ends"]).abs().max())
        rate = {name: arguments.rows * tokens / seconds for name, seconds in best.items()}
        print(
            f"| {tokens} | {rate['stock']:,.0f} tokens/s | {rate['ends']:,.0f} tokens/s |"
            f" {best['stock'] / best['ends']:.2f} | {apart:.1e} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
