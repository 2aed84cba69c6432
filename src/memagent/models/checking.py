"""Drafts, which are guesses at replies, checked in one pass.

This is speculative decoding (arXiv 2211.17192): nothing is accepted that would not have been generated, up to rounding,
but for tokens that may stand with a share of the likeliest one's probability (its appendix A.5; greedy rows only). A row
that is sampled draws each token as ever, from its own random stream; its draft stands as far as it has guessed them.

Shapes: B prompts, T tokens of prompt and draft (left-padded), D places of a draft and the one after it, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from memagent.models.sampler import Row, choose, left_pad

# Logits of one pass: 256 MB in bfloat16.
_LOGITS = 1 << 27
# Rotary embeddings that are other ones once a pass is longer than some length.
_LENGTH_MATTERS = {"longrope", "dynamic"}


def takes_drafts(config: Any) -> bool:
    """Whether what a model makes of a prompt is the same whatever follows it."""
    parameters = getattr(config.get_text_config(), "rope_parameters", None) or {}
    kinds = {one.get("rope_type") for one in (parameters, *parameters.values()) if isinstance(one, dict)}
    return not kinds & _LENGTH_MATTERS


@torch.inference_mode()
def check_drafts(model: Any, rows: Sequence[Row], *, stop_ids: frozenset[int], pad_id: int) -> None:
    """Gives each row the tokens it would have generated, up to the first that its draft does not have, in place.

    A row whose reply ends with its draft, or in it, is done; `sample` goes on with the others. Of a draft that is too long
    for the logits of one pass, as much is looked at as fits. Equal prompts with equal drafts are computed once.
    """
    for part in _parts(rows, _LOGITS // model.config.get_text_config().vocab_size):
        places: dict[tuple[tuple[int, ...], int], int] = {}  # by the ids and how many of them are draft
        which = [places.setdefault(((*row.prompt, *draft), len(draft)), len(places)) for row, draft in part]
        ids_BT, mask_BT = left_pad([ids for ids, _ in places], pad_id, model.device)
        logits_BDV = model(
            input_ids=ids_BT,
            attention_mask=mask_BT if bool((mask_BT == 0).any()) else None,
            position_ids=(mask_BT.cumsum(1) - 1).clamp(min=0),
            use_cache=False,
            logits_to_keep=1 + max(len(draft) for _, draft in part),
        ).logits
        for (row, draft), place in zip(part, which, strict=True):
            logits_DV = logits_BDV[place, -1 - len(draft) :].float()
            accepted = _accepted(logits_DV, draft, row.shares) if row.random is None else _drawn(logits_DV, draft, row)
            for token, logprob in accepted:
                row.take(token, logprob, stop_ids)


def _accepted(logits_DV: torch.Tensor, draft: Sequence[int], shares: Sequence[float]) -> Iterator[tuple[int, float]]:
    """The draft's tokens that stand, each with its log-probability, and the likeliest one at the first place after them."""
    logprobs_DV = torch.log_softmax(logits_DV, dim=-1)
    best_D, token_D = logprobs_DV.max(dim=-1)
    draft_D = torch.tensor(draft, device=logits_DV.device)
    own_D = logprobs_DV[:-1].gather(1, draft_D[:, None])[:, 0]
    stands_D = draft_D == token_D[:-1]
    if shares:
        stands_D |= own_D - best_D[:-1] > torch.tensor(shares[: len(draft)], device=logits_DV.device).log()
    standing = int(stands_D.cumprod(0).sum())
    yield from zip(draft[:standing], own_D[:standing].tolist(), strict=True)
    yield int(token_D[standing]), float(best_D[standing])


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
