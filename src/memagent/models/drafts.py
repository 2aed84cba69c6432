"""Replies that are guessed: most turns of a long reading leave the memory as it is, and a guess is checked in one pass.

This is speculative decoding (arXiv 2211.17192) with the memory as the draft. Nothing is accepted that would not have been
generated: tokens are chosen as ever, each from its row's own random stream, and compared with the draft.

Shapes: B prompts, T tokens of prompt and draft (left-padded), D places of a draft and the one after it, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch

from memagent.models.sampler import Row, choose, left_pad

# Logits held at once: 1 GiB in float32.
_LOGITS = 1 << 28


@torch.inference_mode()
def check_drafts(model: Any, rows: Sequence[Row], *, stop_ids: frozenset[int], pad_id: int) -> None:
    """Gives each row the tokens it would have generated, up to the first that its draft does not have, in place.

    A row is done if its reply is the draft; `sample` goes on with the others. Equal prompts with equal drafts are computed
    once.
    """
    for part in _parts(rows, model.config.get_text_config().vocab_size):
        places: dict[tuple[tuple[int, ...], int], int] = {}
        which = [places.setdefault(((*row.prompt, *row.draft), len(row.draft)), len(places)) for row in part]
        ids_BT, mask_BT = left_pad([ids for ids, _ in places], pad_id, model.device)
        output = model(
            input_ids=ids_BT,
            attention_mask=mask_BT if bool((mask_BT == 0).any()) else None,
            position_ids=(mask_BT.cumsum(1) - 1).clamp(min=0),
            use_cache=False,
            logits_to_keep=1 + max(len(row.draft) for row in part),
        )
        logits_BDV = output.logits.float()
        likeliest_BD = logits_BDV.argmax(-1).tolist()
        for row, place in zip(part, which, strict=True):
            row.start()
            length = 1 + len(row.draft)
            if row.random is None:
                agreed = _agreed(likeliest_BD[place][-length:], row.draft)
                _take(row, logits_BDV[place, -length:][:agreed], stop_ids)
            else:
                _draw(row, logits_BDV[place, -length:], stop_ids)


def _agreed(tokens: Sequence[int], draft: Sequence[int]) -> int:
    """How many tokens are those of the draft, and the one after them."""
    differing = (index for index, (token, expected) in enumerate(zip(tokens, draft, strict=False)) if token != expected)
    return 1 + next(differing, len(draft))


def _take(row: Row, logits_DV: torch.Tensor, stop_ids: frozenset[int]) -> None:
    """All of a greedy row's tokens at once."""
    token_D, logprob_D = choose(logits_DV, [row] * len(logits_DV))
    for token, logprob in zip(token_D.tolist(), logprob_D.tolist(), strict=True):
        row.take(token, logprob, stop_ids)


def _draw(row: Row, logits_DV: torch.Tensor, stop_ids: frozenset[int]) -> None:
    """One token after the other: no more may be drawn from the row's stream than belong to its reply."""
    for logits_V, expected in zip(logits_DV, [*row.draft, None], strict=True):
        token_B, logprob_B = choose(logits_V[None], [row])
        row.take(int(token_B), float(logprob_B), stop_ids)
        if row.done or int(token_B) != expected:
            return


def _parts(rows: Sequence[Row], vocabulary: int) -> Iterator[list[Row]]:
    """Rows in parts whose logits fit. A row whose draft alone is too long is left to `sample`."""
    part: list[Row] = []
    width = 0
    for row in rows:
        length = 1 + len(row.draft)
        if length * vocabulary > _LOGITS:
            continue
        if part and (len(part) + 1) * max(width, length) * vocabulary > _LOGITS:
            yield part
            part, width = [], 0
        part.append(row)
        width = max(width, length)
    if part:
        yield part


class Drafting:
    """Whether drafts are worth checking: one that fails costs a second prefill.

    They are while half of them hold, on a running average of some thirty; below that, one turn in sixteen still tries.
    """

    _AVERAGED = 32
    _EVERY = 16

    def __init__(self, on: bool) -> None:
        self._on = on
        self._holding = 1.0
        self._skipped = 0

    def worthwhile(self) -> bool:
        """Whether to check the draft of the next turn."""
        if not self._on or self._holding >= 0.5:
            return self._on
        self._skipped = (self._skipped + 1) % self._EVERY
        return self._skipped == 0

    def saw(self, held: Iterable[bool]) -> None:
        """Drafts were checked: whether each was the whole reply."""
        for whole in held:
            self._holding += (whole - self._holding) / self._AVERAGED
