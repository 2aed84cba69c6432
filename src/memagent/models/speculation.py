"""Speculative decoding: checks drafts of replies in one pass.

This is speculative decoding (arXiv 2211.17192): nothing is accepted that would not have been generated, up to rounding. A
row that is sampled draws each token as ever, from its own random stream; its draft stands as far as it has guessed them.

Shapes: B prompts, T tokens of prompt and draft, D places of a draft and the one after it, H hidden, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import torch
from torch.nn.utils.rnn import pad_sequence

from memagent.models.ends import reach, reply_hidden
from memagent.models.sampler import Row, choose, left_pad

Guess: TypeAlias = tuple[tuple[int, ...], int]  # the ids of a prompt and its draft, and how many of them are draft

# Logits of one pass: 256 MB in bfloat16.
_LOGITS = 1 << 27


@torch.inference_mode()
def check_drafts(model: Any, rows: Sequence[Row], *, stop_ids: frozenset[int], pad_id: int) -> None:
    """Gives each row the tokens it would have generated, up to the first that its draft does not have, in place.

    A row whose reply ends with its draft, or in it, is done; `sample` goes on with the others. Of a draft that is too long
    for the logits of one pass, as much is looked at as fits. Equal prompts with equal drafts are computed once.
    """
    for part in _parts(rows, _LOGITS // model.config.get_text_config().vocab_size):
        places: dict[Guess, int] = {}
        which = [places.setdefault(((*row.prompt, *draft), len(draft)), len(places)) for row, draft in part]
        found = _logits(model, list(places), pad_id)
        for (row, draft), place in zip(part, which, strict=True):
            logits_DV = found[place].float()
            accepted = _accepted(logits_DV, draft) if row.random is None else _drawn(logits_DV, draft, row)
            for token, logprob in accepted:
                row.take(token, logprob, stop_ids)


def _logits(model: Any, guesses: Sequence[Guess], pad_id: int) -> list[torch.Tensor]:
    """The logits [D, V] of each guess: at the places of its draft and the one after it."""
    counts = [1 + drafted for _, drafted in guesses]
    first = [len(ids) - count for (ids, _), count in zip(guesses, counts, strict=True)]
    context = reach(model)
    if context is not None and min(first) >= context:
        rows = [torch.tensor(ids, device=model.device) for ids, _ in guesses]
        at_BD = torch.tensor(first, device=model.device)[:, None] + torch.arange(max(counts), device=model.device)
        hidden_BDH = reply_hidden(model, pad_sequence(rows, batch_first=True, padding_value=pad_id), at_BD)
        logits_BDV = model.lm_head(hidden_BDH)
        return [logits_DV[:count] for logits_DV, count in zip(logits_BDV, counts, strict=True)]
    ids_BT, mask_BT = left_pad([ids for ids, _ in guesses], pad_id, model.device)
    logits_BDV = model(
        input_ids=ids_BT,
        attention_mask=mask_BT if bool((mask_BT == 0).any()) else None,
        position_ids=(mask_BT.cumsum(1) - 1).clamp(min=0),
        use_cache=False,
        logits_to_keep=max(counts),
    ).logits
    return [logits_DV[-count:] for logits_DV, count in zip(logits_BDV, counts, strict=True)]


def _accepted(logits_DV: torch.Tensor, draft: Sequence[int]) -> Iterator[tuple[int, float]]:
    """The draft's tokens that stand, each with its log-probability, and the likeliest one at the first place after them."""
    logprobs_DV = torch.log_softmax(logits_DV, dim=-1)
    best_D, token_D = logprobs_DV.max(dim=-1)
    stands_D = torch.tensor(draft, device=logits_DV.device) == token_D[:-1]
    taken = 1 + int(stands_D.cumprod(0).sum())
    yield from zip(token_D[:taken].tolist(), best_D[:taken].tolist(), strict=True)


def _drawn(logits_DV: torch.Tensor, draft: Sequence[int], row: Row) -> Iterator[tuple[int, float]]:
    """What the row draws, each with its log-probability, up to the first token that the draft does not have."""
    for logits_V, guess in zip(logits_DV, [*draft, None], strict=True):
        [token], [logprob] = (found.tolist() for found in choose(logits_V[None], [row]))
        yield token, logprob
        if token != guess:
            return


def _parts(rows: Sequence[Row], most: int) -> Iterator[list[tuple[Row, Sequence[int]]]]:
    """Rows with what is checked of their drafts, in parts of at most so many places: rows × the longest, and one."""
    part: list[tuple[Row, Sequence[int]]] = []
    width = 0
    for row in rows:
        draft = row.draft[: most - 1]
        if part and (len(part) + 1) * max(width, 1 + len(draft)) > most:
            yield part
            part, width = [], 0
        part.append((row, draft))
        width = max(width, 1 + len(draft))
    if part:
        yield part
