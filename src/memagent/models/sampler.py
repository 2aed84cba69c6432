"""Batched generation with a key–value cache, for causal language models of transformers.

Shapes: B rows, T prompt tokens (left-padded), G groups of prompts that begin alike, R tokens after what they have in
common, W tokens of one step, V vocabulary. Written instead of calling `generate` because rollouts need, in one pass, exact
token ids and log-probabilities, a budget per row, and a random stream per row that does not depend on what else is in the
batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from memagent.core.types import Finish, Sampling
from memagent.models.beginnings import Group, grouped
from memagent.models.draw import draw, nucleus
from memagent.models.ends import prefill, reach
from memagent.models.families import Accept
from memagent.models.kinds import takes_gaps
from memagent.models.lookup import Lookup, guessed_at_once

# Of the tokens of a prefill, padding included, that much must be saved before beginnings are computed on their own.
_SAVED = 0.25
# Places of the cache for each token of a reply, beyond which nothing more is guessed: wrong guesses take places too.
_GROWTH = 2


@dataclass(slots=True, kw_only=True)
class Row:
    """One prompt and what was generated for it.

    `draft` is a guess at the reply, `accept` the rule for which of its tokens stand (None: those that are the likeliest).
    `lookup` guesses the next tokens, step by step; it is for models that take gaps (`memagent.models.lookup`).
    `logprobs` are natural logs under the model at the row's temperature (1 if it is greedy), before the nucleus is cut.
    """

    prompt: Sequence[int]
    max_tokens: int
    sampling: Sampling
    draft: Sequence[int] = ()
    accept: Accept | None = None
    lookup: Lookup | None = None
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    finish: Finish = "length"
    random: torch.Generator | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        """Gives a sampled row its random stream."""
        if self.sampling.temperature > 0:
            self.random = torch.Generator()
            if self.sampling.seed is None:
                self.random.seed()
            else:
                self.random.manual_seed(self.sampling.seed)

    @property
    def places(self) -> int:
        """Places of the cache that it may take, prompt included."""
        return len(self.prompt) + (1 if self.lookup is None else _GROWTH) * self.max_tokens

    @property
    def begun(self) -> tuple[int, ...]:
        """The prompt and the reply so far."""
        return (*self.prompt, *self.ids)

    @property
    def done(self) -> bool:
        return self.finish == "stop" or len(self.ids) >= self.max_tokens

    def take(self, token: int, logprob: float, stop_ids: frozenset[int]) -> None:
        """Appends a token, unless the row is done. `ids` includes the stop token, which was generated."""
        if self.done:
            return
        self.ids.append(token)
        self.logprobs.append(logprob)
        if token in stop_ids:
            self.finish = "stop"

    def guess(self, most: int) -> Sequence[int]:
        """The next tokens, after the last that was taken, as far as there is a guess and room in the budget."""
        room = min(most, self.max_tokens - len(self.ids) - 1)
        return self.lookup.guess(self.ids, room) if self.lookup is not None and room > 0 else ()


@torch.inference_mode()
def sample(model: Any, rows: Sequence[Row], *, stop_ids: frozenset[int], pad_id: int) -> None:
    """Generates for every row until a stop token or its budget, in place: one prefill, then one step per token. It goes on
    from what a row has of its reply already.

    Rows with the same prompt share its prefill: the readings of a group do as long as they wrote the same memory. Where the
    model takes gaps, rows share the prefill of what their prompts begin with: a chunk that is shown before the question.
    Rows that are done leave the batch as soon as they are a quarter of it.
    """
    active = list(rows)
    places: dict[tuple[int, ...], int] = {}
    shared = [places.setdefault(row.begun, len(places)) for row in active]
    logits_BV, cache, mask_BT, position_BT = _prefilled(model, list(places), pad_id)
    if len(places) < len(active):
        each = torch.tensor(shared, device=model.device)
        cache.reorder_cache(each)
        logits_BV, mask_BT, position_BT = logits_BV[each], mask_BT[each], position_BT[each]
    padded = bool((mask_BT == 0).any())
    guesses: list[Sequence[int]] = [()] * len(active)
    most_places = mask_BT.shape[1] + _GROWTH * max(row.max_tokens for row in rows)
    logits_BWV = logits_BV[:, None]
    while True:
        stand = _taken(logits_BWV, active, guesses, stop_ids)
        width = logits_BWV.shape[1]
        if width > 1:  # what was guessed wrong stays in the cache, and is masked from now on
            right_B1 = torch.tensor(stand, device=mask_BT.device)[:, None]
            mask_BT[:, -width:] = (torch.arange(width, device=mask_BT.device) <= right_B1).to(mask_BT.dtype)
        going = [index for index, row in enumerate(active) if not row.done]
        if not going:
            return
        on = [0 if row.done else 1 + right for row, right in zip(active, stand, strict=True)]
        position_BT = position_BT[:, -1:] + torch.tensor(on, device=position_BT.device)[:, None]
        if len(going) * 4 <= len(active) * 3:
            keep = torch.tensor(going, device=model.device)
            cache.reorder_cache(keep)  # selects rows, in every kind of layer
            active = [active[index] for index in going]
            mask_BT, position_BT = mask_BT[keep], position_BT[keep]
        spare = most_places - mask_BT.shape[1] - max(row.max_tokens - len(row.ids) for row in active)
        most = max(0, min(spare, guessed_at_once(len(active), model.device.type)))
        guesses = [() if row.done else row.guess(most) for row in active]
        width = 1 + max(map(len, guesses))
        padded |= width > 1
        step = [[row.ids[-1], *guess] for row, guess in zip(active, guesses, strict=True)]
        ids_BW, mask_BW = right_pad(step, width, pad_id, model.device)
        mask_BT = torch.cat([mask_BT, mask_BW], dim=1)
        output = model(
            input_ids=ids_BW,
            attention_mask=mask_BT if padded else None,
            position_ids=position_BT + mask_BW.cumsum(1) - 1,  # padding has the last place: there may be none after it
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=width,
        )
        logits_BWV, cache = output.logits[:, -width:], output.past_key_values


def _taken(
    logits_BWV: torch.Tensor, rows: Sequence[Row], guesses: Sequence[Sequence[int]], stop_ids: frozenset[int]
) -> list[int]:
    """Gives each row what it would have generated one token at a time, up to the first token that its guess does not have.
    Returns how many tokens of each guess were right."""
    right = [0] * len(rows)
    standing = list(range(len(rows)))
    for place in range(logits_BWV.shape[1]):
        chosen = [rows[index] for index in standing]
        logits_NV = logits_BWV[:, place] if len(standing) == len(rows) else logits_BWV[standing, place]
        token_N, logprob_N = choose(logits_NV.float(), chosen)
        still = []
        for index, token, logprob in zip(standing, token_N.tolist(), logprob_N.tolist(), strict=True):
            row, guess = rows[index], guesses[index]
            row.take(token, logprob, stop_ids)
            if place < len(guess) and token == guess[place]:
                right[index] += 1
                still.append(index)
        standing = still
        if not standing:
            break
    return right


def _prefilled(
    model: Any, prompts: Sequence[tuple[int, ...]], pad_id: int
) -> tuple[torch.Tensor, Any, torch.Tensor, torch.Tensor]:
    """Logits [B, V] after different prompts, their cache, its mask [B, T] and the positions [B, T]."""
    groups = grouped(prompts) if len(prompts) > 1 and takes_gaps(model.config) else []
    if groups:
        first = max(group.common for group in groups)
        rest = max(len(prompts[index]) - group.common for group in groups for index in group.members)
        saved = 1 - (len(groups) * first + len(prompts) * rest) / (len(prompts) * max(map(len, prompts)))
        if saved >= _SAVED:
            return _prefilled_by_groups(model, prompts, groups, pad_id)
    ids_BT, mask_BT = left_pad(prompts, pad_id, model.device)
    position_BT = _positions(mask_BT)
    mask = mask_BT if bool((mask_BT == 0).any()) else None
    tail = reach(model)
    if tail is not None and mask_BT.shape[1] > tail and bool(mask_BT[:, -1 - tail].all()):
        return *prefill(model, ids_BT, mask, position_BT), mask_BT, position_BT
    output = model(input_ids=ids_BT, attention_mask=mask, position_ids=position_BT, use_cache=True, logits_to_keep=1)
    return output.logits[:, -1], output.past_key_values, mask_BT, position_BT


def _prefilled_by_groups(
    model: Any, prompts: Sequence[tuple[int, ...]], groups: Sequence[Group], pad_id: int
) -> tuple[torch.Tensor, Any, torch.Tensor, torch.Tensor]:
    """The same: what the prompts of a group have in common once, then what each has after it."""
    ids_GT, mask_GT = left_pad([prompts[group.members[0]][: group.common] for group in groups], pad_id, model.device)
    common = {"input_ids": ids_GT, "attention_mask": mask_GT, "position_ids": _positions(mask_GT)}
    cache = model(**common, use_cache=True, logits_to_keep=1).past_key_values
    of = {index: number for number, group in enumerate(groups) for index in group.members}
    group_B = torch.tensor([of[index] for index in range(len(prompts))], device=model.device)
    cache.reorder_cache(group_B)
    rest = [prompt[groups[of[index]].common :] for index, prompt in enumerate(prompts)]
    ids_BR, mask_BR = left_pad(rest, pad_id, model.device)
    mask_BT = torch.cat([mask_GT[group_B], mask_BR], dim=1)
    position_BT = _positions(mask_BT)
    output = model(
        input_ids=ids_BR,
        attention_mask=mask_BT,
        position_ids=position_BT[:, -ids_BR.shape[1] :],
        past_key_values=cache,
        use_cache=True,
        logits_to_keep=1,
    )
    return output.logits[:, -1], output.past_key_values, mask_BT, position_BT


def _positions(mask_BT: torch.Tensor) -> torch.Tensor:
    return (mask_BT.cumsum(1) - 1).clamp(min=0)


def left_pad(prompts: Sequence[Sequence[int]], pad_id: int, device: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Prompts → ids [B, T] padded on the left, mask [B, T] of 0 and 1."""
    width = max(len(prompt) for prompt in prompts)
    ids = [[pad_id] * (width - len(prompt)) + list(prompt) for prompt in prompts]
    mask = [[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts]
    return torch.tensor(ids, device=device), torch.tensor(mask, device=device)


def right_pad(steps: Sequence[Sequence[int]], width: int, pad_id: int, device: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens of a step → ids [B, W] padded on the right, mask [B, W] of 0 and 1."""
    ids = [[*step, *[pad_id] * (width - len(step))] for step in steps]
    mask = [[1] * len(step) + [0] * (width - len(step)) for step in steps]
    return torch.tensor(ids, device=device), torch.tensor(mask, device=device)


def choose(logits_BV: torch.Tensor, rows: Sequence[Row]) -> tuple[torch.Tensor, torch.Tensor]:
    """The next token of every row and its log-probability [B], [B]."""
    temperature_B1 = torch.tensor([[row.sampling.temperature or 1.0] for row in rows], device=logits_BV.device)
    logits_BV = logits_BV / temperature_B1
    logprobs_BV = torch.log_softmax(logits_BV, dim=-1)
    token_B = logits_BV.argmax(-1)
    drawn = [index for index, row in enumerate(rows) if row.random is not None and not row.done]
    if drawn:
        top_ps = torch.tensor([rows[index].sampling.top_p for index in drawn])
        streams = [stream for index in drawn if (stream := rows[index].random) is not None]
        token_B[drawn] = draw(nucleus(logits_BV[drawn].cpu(), top_ps), streams).to(token_B.device)
    return token_B, logprobs_BV.gather(1, token_B[:, None])[:, 0]
