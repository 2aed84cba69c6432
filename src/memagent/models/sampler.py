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
from memagent.models.cache import new_cache
from memagent.models.draw import draw, nucleus
from memagent.models.ends import prefill, reach
from memagent.models.kinds import takes_gaps, takes_rows
from memagent.models.lookup import Lookup, guessed_at_once

# Of the tokens of a prefill, padding included, that much must be saved before beginnings are computed on their own.
_SAVED = 0.25
# Places of the cache for each token of a reply, beyond which nothing more is guessed: wrong guesses take places too.
_GROWTH = 2


@dataclass(slots=True, kw_only=True)
class Row:
    """One prompt and what was generated for it.

    `draft` is a guess at the reply. `lookup` guesses the next tokens, step by step; it is for models that take gaps
    (`memagent.models.lookup`).
    `logprobs` are natural logs under the model at the row's temperature (1 if it is greedy), before the nucleus is cut.
    """

    prompt: Sequence[int]
    max_tokens: int
    sampling: Sampling
    draft: Sequence[int] = ()
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
    def left(self) -> int:
        """Tokens that it may still get."""
        return self.max_tokens - len(self.ids)

    @property
    def begun(self) -> tuple[int, ...]:
        """The prompt and the reply so far."""
        return (*self.prompt, *self.ids)

    @property
    def done(self) -> bool:
        return self.finish == "stop" or self.left <= 0

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
        room = min(most, self.left - 1)
        return self.lookup.guess(self.ids, room) if self.lookup is not None and room > 0 else ()


def out_of_memory(error: RuntimeError) -> bool:
    """Whether memory has run out: that of the allocator, or what a library of CUDA asked for beside it."""
    return isinstance(error, torch.OutOfMemoryError) or "ALLOC_FAILED" in str(error)


def sample(model: Any, rows: Sequence[Row], *, stop_ids: frozenset[int], pad_id: int) -> None:
    """Generates for every row until a stop token or its budget, in place. It goes on from what a row has of its reply."""
    running = Running(model, stop_ids=stop_ids, pad_id=pad_id)
    running.join(rows)
    while running.rows:
        running.step()


class Running:
    """Rows that are generated together: a prefill for those that join, then a step per token. They leave as they are done.

    Rows with the same prompt share its prefill: the readings of a group do as long as they wrote the same memory. Where the
    model takes gaps, rows share the prefill of what their prompts begin with: a chunk that is shown before the question.
    Where it takes rows, they may join others that are under way (continuous batching); all end in the last column.
    """

    def __init__(self, model: Any, *, stop_ids: frozenset[int], pad_id: int) -> None:
        self._model, self._stop_ids, self._pad_id = model, stop_ids, pad_id
        self._takes_rows = takes_rows(model.config)
        self._places: list[Row]  # of the batch: rows that are done stay until others come, or until they are a quarter
        self._starts: list[int]  # the column in which each begins
        self._cache: Any
        self._mask_BT: torch.Tensor  # the columns that each sees
        self._next_B1: torch.Tensor  # the position of its next token
        self._padded: bool
        self._clear()

    @property
    def rows(self) -> list[Row]:
        """Those that are not done."""
        return [row for row in self._places if not row.done]

    @property
    def shape(self) -> tuple[int, int]:
        """Places and columns of the cache, of which the room in it is no part."""
        return len(self._places), self._mask_BT.shape[1]

    @torch.inference_mode()
    def join(self, rows: Sequence[Row]) -> None:
        """Computes the prompts of rows, and what they have of their replies, and takes the next token of each.

        Raises ValueError if others are under way and the model takes no rows.
        """
        others = bool(self.rows)
        if others and not self._takes_rows:
            raise ValueError(f"a model of the kind {self._model.config.model_type!r} takes no rows on the way")
        distinct: dict[tuple[int, ...], int] = {}
        shared = [distinct.setdefault(row.begun, len(distinct)) for row in rows]
        logits_BV, cache, mask_BT, position_BT = _prefilled(self._model, list(distinct), self._pad_id)
        logits_BV = logits_BV if len(distinct) == len(rows) else logits_BV[shared]
        _taken(logits_BV[:, None], rows, [()] * len(rows), self._stop_ids)
        going = [index for index, row in enumerate(rows) if not row.done]
        if not going:
            return
        which = [shared[index] for index in going]
        if which != list(range(len(distinct))):
            cache.reorder_cache(torch.tensor(which, device=mask_BT.device))
        mask_BT, next_B1 = mask_BT[which], position_BT[which][:, -1:] + 1
        came, starts = [rows[index] for index in going], mask_BT.argmax(1).tolist()
        if others:
            self._merge(came, starts, cache, mask_BT, next_B1)
            return
        self._places, self._starts, self._cache = came, starts, cache
        self._mask_BT, self._next_B1 = mask_BT, next_B1
        self._padded = bool((mask_BT == 0).any())

    @torch.inference_mode()
    def step(self) -> None:
        """Gives each row its next token, or several where it has guessed them."""
        self._make_room()
        rows = self._places
        guesses = self._guesses()
        width = 1 + max(map(len, guesses))
        self._padded |= width > 1
        shown = [[row.ids[-1], *guess] for row, guess in zip(rows, guesses, strict=True)]
        ids_BW, mask_BW = right_pad(shown, width, self._pad_id, self._mask_BT.device)
        mask_BT = torch.cat([self._mask_BT, mask_BW], dim=1)
        output = self._model(
            input_ids=ids_BW,
            attention_mask=mask_BT if self._padded else None,
            position_ids=self._next_B1 + mask_BW.cumsum(1) - 1,  # padding has the last place: there may be none after it
            past_key_values=self._cache,
            use_cache=True,
            logits_to_keep=width,
        )
        self._cache, self._mask_BT = output.past_key_values, mask_BT
        right = _taken(output.logits[:, -width:], rows, guesses, self._stop_ids)
        if width > 1:  # what was guessed wrong stays in the cache, and is masked from now on
            right_B1 = torch.tensor(right, device=mask_BT.device)[:, None]
            mask_BT[:, -width:] = (torch.arange(width, device=mask_BT.device) <= right_B1).to(mask_BT.dtype)
        on = [0 if row.done else 1 + more for row, more in zip(rows, right, strict=True)]
        self._next_B1 = self._next_B1 + torch.tensor(on, device=mask_BT.device)[:, None]
        if not self.rows:
            self._clear()

    def _clear(self) -> None:
        """Lets go of the cache."""
        self._places, self._starts, self._cache = [], [], None
        self._mask_BT = self._next_B1 = torch.empty(0, 0)
        self._padded = False

    def _guesses(self) -> list[Sequence[int]]:
        """What each row guesses, as far as no row takes more places for it than the one that may take the most."""
        width, most = self._mask_BT.shape[1], max(row.places for row in self.rows)
        used = [width - start for start in self._starts]
        left = (most - taken - row.left for row, taken in zip(self._places, used, strict=True) if not row.done)
        count = max(0, min(*left, guessed_at_once(len(self._places), self._mask_BT.device.type)))
        return [() if row.done else row.guess(count) for row in self._places]

    def _make_room(self) -> None:
        """Lets rows leave that are done, and columns that no row sees, if they are a quarter."""
        going = [index for index, row in enumerate(self._places) if not row.done]
        if len(going) * 4 <= len(self._places) * 3:
            self._cache.reorder_cache(torch.tensor(going, device=self._mask_BT.device))  # in every kind of layer
            self._places, self._starts = [self._places[index] for index in going], [self._starts[index] for index in going]
            self._mask_BT, self._next_B1 = self._mask_BT[going], self._next_B1[going]
        first = min(start for row, start in zip(self._places, self._starts, strict=True) if not row.done)
        if self._takes_rows and first * 4 >= self._mask_BT.shape[1]:
            self._lay_out(len(self._places), first)

    def _lay_out(self, places: int, cut: int) -> None:
        """Makes the batch so many places, of which new ones are the last, and takes away its first columns; adds columns if
        `cut` is negative."""
        self._cache.lay_out(places, cut)
        rows, width = self._mask_BT.shape
        mask_BT = self._mask_BT.new_zeros(places, width - cut)
        mask_BT[:rows, max(0, -cut) :] = self._mask_BT[:, max(0, cut) :]
        next_B1 = self._next_B1.new_zeros(places, 1)
        next_B1[:rows] = self._next_B1
        self._mask_BT, self._next_B1 = mask_BT, next_B1
        self._starts = [start - cut for start in self._starts]

    def _merge(
        self, rows: Sequence[Row], starts: Sequence[int], cache: Any, mask_NT: torch.Tensor, next_N1: torch.Tensor
    ) -> None:
        """Puts rows into the places of those that are done, and into new ones."""
        free = [index for index, row in enumerate(self._places) if row.done]
        count = len(self._places) + max(0, len(rows) - len(free))
        places = [*free, *range(len(self._places), count)][: len(rows)]
        more = mask_NT.shape[1] - min(starts) - self._mask_BT.shape[1]  # columns that the longest of them lacks
        if more > 0 or count > len(self._places):
            self._lay_out(count, -max(0, more))
        self._cache.put(places, cache)
        width = self._mask_BT.shape[1]
        shown = min(width, mask_NT.shape[1])
        self._mask_BT[places] = 0
        self._mask_BT[places, width - shown :] = mask_NT[:, -shown:]
        self._next_B1[places] = next_N1
        self._padded = True
        self._places += rows[len(free) :]
        self._starts += [0] * (count - len(self._starts))
        for place, row, start in zip(places, rows, starts, strict=True):
            self._places[place], self._starts[place] = row, start + width - mask_NT.shape[1]


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
    if takes_gaps(model.config) and (groups := _groups(prompts)):
        return _prefilled_by_groups(model, prompts, groups, pad_id)
    ids_BT, mask_BT = left_pad(prompts, pad_id, model.device)
    position_BT = _positions(mask_BT)
    mask = mask_BT if bool((mask_BT == 0).any()) else None
    cache, tail = new_cache(model.config), reach(model)
    if cache is not None and tail is not None and mask_BT.shape[1] > tail and bool(mask_BT[:, -1 - tail].all()):
        return prefill(model, ids_BT, mask, position_BT, cache), cache, mask_BT, position_BT
    output = model(
        input_ids=ids_BT,
        attention_mask=mask,
        position_ids=position_BT,
        past_key_values=cache,
        use_cache=True,
        logits_to_keep=1,
    )
    return output.logits[:, -1], output.past_key_values, mask_BT, position_BT


def begin_alike(config: Any, rows: Sequence[Row]) -> bool:
    """Whether the prefill of rows costs a model a quarter less if they are computed together."""
    distinct = list({row.begun: None for row in rows})
    return len(distinct) <= (1 - _SAVED) * len(rows) or (takes_gaps(config) and bool(_groups(distinct)))


def _groups(prompts: Sequence[tuple[int, ...]]) -> list[Group]:
    """Different prompts in groups that begin alike; none if that is not worth it."""
    groups = grouped(prompts)
    first = max(group.common for group in groups)
    rest = max(len(prompts[index]) - group.common for group in groups for index in group.members)
    saved = 1 - (len(groups) * first + len(prompts) * rest) / (len(prompts) * max(map(len, prompts)))
    return groups if saved >= _SAVED else []


def _prefilled_by_groups(
    model: Any, prompts: Sequence[tuple[int, ...]], groups: Sequence[Group], pad_id: int
) -> tuple[torch.Tensor, Any, torch.Tensor, torch.Tensor]:
    """The same: what the prompts of a group have in common once, then what each has after it."""
    ids_GT, mask_GT = left_pad([prompts[group.members[0]][: group.common] for group in groups], pad_id, model.device)
    common = {"input_ids": ids_GT, "attention_mask": mask_GT, "position_ids": _positions(mask_GT)}
    cache = model(**common, past_key_values=new_cache(model.config), use_cache=True, logits_to_keep=1).past_key_values
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
    """The next token of every row and its log-probability [B], [B], from logits in float32."""
    temperatures = [row.sampling.temperature or 1.0 for row in rows]
    if any(temperature != 1.0 for temperature in temperatures):
        logits_BV = logits_BV / torch.tensor(temperatures, device=logits_BV.device)[:, None]
    token_B = logits_BV.argmax(-1)
    drawn = [index for index, row in enumerate(rows) if row.random is not None and not row.done]
    if drawn:
        top_ps = torch.tensor([rows[index].sampling.top_p for index in drawn], device=logits_BV.device)
        streams = [stream for index in drawn if (stream := rows[index].random) is not None]
        logits_NV = logits_BV if len(drawn) == len(rows) else logits_BV[drawn]
        token_B[drawn] = draw(nucleus(logits_NV, top_ps), streams)
    return token_B, logits_BV.gather(1, token_B[:, None])[:, 0] - logits_BV.logsumexp(-1)
