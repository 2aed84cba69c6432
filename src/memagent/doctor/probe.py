"""Asks a server what it is, and times it with turns as a reading sends them."""

from __future__ import annotations

import asyncio
import difflib
import itertools
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from statistics import mean, median

from memagent.core import Completion, Plan, Sampling, reading
from memagent.core.chunking import Chunks
from memagent.doctor.values import Diagnosis, Level, ShortReading, TooLong
from memagent.driver import TurnRecord, aread
from memagent.errors import ConfigError, ContextTooLongError, ModelError, ModelRefusedError, ModelReplyError
from memagent.growth import Beginning
from memagent.models.open import OpenModel
from memagent.models.openai_compatible import CutPromptError, OpenAIEngine
from memagent.settings import Settings, make_plan
from memagent.tasks.haystack import Haystack
from memagent.tasks.lazy_text import LazyText
from memagent.threads import together

_QUESTION = "What did the captain promise to the first who raised the whale?"
_REPEATS = 3  # of a time, of which the median counts
_TOO_FAST = 0.002  # seconds: a difference of times below this says nothing
_LONG_TOKEN = 8  # characters; a chunk has no more than this for each of its tokens
_WHOLE = 0.8  # of the tokens of a prompt; a server that counts fewer has cut it
_WORTH = 1.1  # what twice as many turns at once must gain, or still more are not tried


class Probe:
    """Measures one served model, with `turns` turns of a reading and up to `most` turns at once.

    `say` is told what is measured next. Raises ConfigError for a model that is not served.
    """

    def __init__(self, opened: OpenModel, settings: Settings, *, turns: int, most: int, say: Callable[[str], None]) -> None:
        if not isinstance(opened.engine, OpenAIEngine):
            raise ConfigError("only a served model can be diagnosed: pass --model NAME and --base-url URL")
        self._engine, self._settings, self._most, self._say = opened.engine, settings, most, say
        self._plan = _plan(opened, settings, turns)
        start = reading.start(self._plan)
        self._update = reading.turn(self._plan, start, next(iter(reading.pending(self._plan, start))))
        self._numbers = itertools.count(time.time_ns() % 10**9)

    async def run(self) -> Diagnosis:
        """Measures one thing after the other, and turns at once last. Raises the ModelError of the first that fails."""
        engine = self._engine
        self._say("a prompt of one word, and of a chunk")
        few = self._few = await self._fewest()
        request = median([(await self._ask(user="Hello", max_tokens=few)).seconds for _ in range(_REPEATS)])
        asked = [self._unseen() for _ in range(_REPEATS)]
        chunks = [await self._ask(user=text, max_tokens=few) for text in asked]
        prompt, again = median([one.seconds for one in chunks]), await self._ask(user=asked[-1], max_tokens=few)
        counted, reported = engine.tokenizer.count(asked[0]) + engine.overhead, chunks[0].prompt_tokens
        self._say("a short reading")
        records, guesses = await self._read()
        self._say("sampling with a seed")
        repeats = await self._repeats()
        self._say("a prompt that is too long")
        too_long = await self._too_long(reported / counted)
        prefill = _rate(sum(one.prompt_tokens for one in chunks) / _REPEATS, prompt - request)
        completions = [record.completion for record in records]
        return Diagnosis(
            model=engine.model,
            base_url=engine.address,
            kind=engine.facts.kind,
            window=engine.window,
            slots=engine.facts.slots,
            counting=engine.tokenizer.name,
            exact=engine.tokenizer.exact,
            counted=counted,
            reported=reported,
            request=request,
            prefill=prefill,
            decode=_decode(completions, request, prefill),
            prefix_cache=None if prefill is None else again.seconds - request < (prompt - request) / 2,
            repeats=repeats,
            too_long=too_long,
            reading=ShortReading(
                turns=len(records),
                prompt=mean(one.prompt_tokens for one in completions),
                reply=mean(one.completion_tokens for one in completions),
                seconds=mean(one.seconds for one in completions),
                kept=_kept([record.memory for record in records if record.kind == "update"]),
                drafted=guesses[0] if guesses else None,
                accepted=guesses[1] if guesses else None,
            ),
            levels=tuple(await self._levels()),
        )

    def _unseen(self) -> str:
        """The prompt of an update, with a beginning that no prompt had before: no cache of the server knows it."""
        return f"{next(self._numbers)} {self._update.user}"

    async def _ask(self, **changes: object) -> Completion:
        return await self._engine.agenerate(replace(self._update, **changes))  # type: ignore[arg-type]

    async def _fewest(self) -> int:
        """The fewest tokens that a reply may have: servers of models that think first have none to show of a single one."""
        for tokens in (1, 16):
            with suppress(ModelReplyError, ModelRefusedError):
                await self._ask(user="Hello", max_tokens=tokens)
                return tokens
        return self._update.max_tokens

    async def _read(self) -> tuple[Sequence[TurnRecord], tuple[int, int] | None]:
        """The turns of a short reading, and the tokens that the server guessed meanwhile and that were right."""
        before = await asyncio.to_thread(self._engine.speculation)
        transcript = await aread(self._plan, self._engine)
        after = await asyncio.to_thread(self._engine.speculation)
        return transcript.records, (after[0] - before[0], after[1] - before[1]) if before and after else None

    async def _repeats(self) -> bool | None:
        """Whether a seed gives a sampled reply again; None if another seed gives the same, or seeds are refused."""
        text = self._unseen()
        first, again, other = [
            (await self._ask(user=text, sampling=Sampling(temperature=1.0, seed=seed))).text for seed in (1, 1, 2)
        ]
        return None if first == again == other or "seed" in self._engine.refused_fields else first == again

    async def _too_long(self, ratio: float) -> TooLong:
        """What becomes of a prompt of one and a half windows. `ratio`: tokens that the server counts for each of ours; 0 if
        it reports none, so that nothing can be told."""
        window, text = self._engine.window, self._update.user
        if window is None or not ratio:
            return "unknown"
        size = ratio * self._engine.tokenizer.count(text)
        times = 1 + int(1.5 * window / max(1, size))
        try:
            reply = await self._ask(user=f"{next(self._numbers)} " + times * text, max_tokens=self._few)
        except CutPromptError:
            return "cut"
        except ContextTooLongError:
            return "refused"
        except ModelError:
            return "failed"
        return "cut" if reply.prompt_tokens < _WHOLE * times * size else "taken"

    async def _levels(self) -> list[Level]:
        """Turns a second with 1, 2, 4 … turns at once, until more gain too little."""
        levels: list[Level] = []
        concurrency = 1
        while concurrency <= self._most:
            self._say(f"{concurrency} turn{'s' if concurrency > 1 else ''} at once")
            began = time.perf_counter()
            try:
                async with together() as group:
                    for _ in range(concurrency):
                        group.create_task(self._ask(user=self._unseen()))
            except ModelError:
                if not levels:
                    raise
                break  # so many are too many
            levels.append(Level(concurrency=concurrency, turns_per_second=concurrency / (time.perf_counter() - began)))
            if len(levels) > 2 and levels[-1].turns_per_second < _WORTH * levels[-3].turns_per_second:
                break
            concurrency *= 2
        return levels


def _plan(opened: OpenModel, settings: Settings, turns: int) -> Plan:
    """A reading of so many chunks of the book that comes with memagent."""
    enough = _LONG_TOKEN * turns * settings.budgets.chunk
    book = LazyText([Haystack.shipped().text[:enough]])
    known = Chunks(make_plan(book, _QUESTION, settings, opened).chunks[:turns])
    return make_plan(Beginning(book, known[-1].end), _QUESTION, settings, opened, lambda *_: known)


def _rate(tokens: float, seconds: float) -> float | None:
    return tokens / seconds if tokens and seconds >= _TOO_FAST else None


def _decode(completions: Sequence[Completion], request: float, prefill: float | None) -> float | None:
    """Tokens of replies a second, after the time of their prompts."""
    prompts = sum(one.prompt_tokens for one in completions) / prefill if prefill else 0.0
    seconds = sum(one.seconds - request for one in completions) - prompts
    return _rate(sum(max(0, one.completion_tokens - 1) for one in completions), seconds)


def _kept(memories: Sequence[str]) -> float | None:
    """The share of the words of new memories that stood in the old ones, in order; None if there are no two memories."""
    pairs = [(old.split(), new.split()) for old, new in itertools.pairwise(memories) if new.split()]
    if not pairs:
        return None
    same = sum(
        sum(block.size for block in difflib.SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks())
        for old, new in pairs
    )
    return same / sum(len(new) for _, new in pairs)
