"""Batches of one training step: a pure function of (seed, step). Any step can be made again after a stop."""

from __future__ import annotations

import random
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer

from memagent.core.prompts import Profile, profile_from_mapping
from memagent.tasks.haystack import Haystack, sentence_borders
from memagent.tasks.samples import generator
from memagent.tasks.words import Split, Words, shipped_words
from memagent.training.rows import KINDS, Batch, Row, make_batch, make_row
from memagent.training.tokenizer import BEGIN, END, PAD, REPLY, SPECIALS, load_tokenizer
from memagent.training.updates import (
    Exercise,
    Piece,
    Recipe,
    Statement,
    answer_pieces,
    answer_prompt,
    draw_exercise,
    memory_pieces,
    plant_all,
    prompt_parts,
    updated,
    visible,
)

# Characters of book text per token, high enough that a chunk is seldom too short to be cut.
_CHARS_PER_TOKEN = 3.3


@dataclass(frozen=True, slots=True)
class Source:
    """What exercises are made from: book text, the tokenizer, the wording, and the words for keys and values."""

    haystack: Haystack
    tokenizer: Tokenizer
    profile: Profile
    words: Words

    def special(self, name: str) -> int:
        """The id of a special token."""
        found = self.tokenizer.token_to_id(name)
        assert found is not None, f"the tokenizer has no {name}"
        return int(found)


def encode_pieces(tokenizer: Tokenizer, pieces: Sequence[Piece]) -> tuple[list[int], list[int]]:
    """Token ids of the joined pieces, and the kind of each: that of the piece in which the token starts.

    The first token of a value is where it is decided whether there is one: its kind is "decision".
    """
    starts, offset = [], 0
    for text, _ in pieces:
        starts.append(offset)
        offset += len(text)
    encoded = tokenizer.encode("".join(text for text, _ in pieces))
    kinds, piece, previous = [], 0, -1
    for begin, end in encoded.offsets:
        while piece + 1 < len(pieces) and starts[piece + 1] <= begin and end > starts[piece + 1]:
            piece += 1
        name = pieces[piece][1]
        kinds.append(KINDS.index("decision" if name == "value" and piece != previous else name))
        previous = piece
    return encoded.ids, kinds


def exercise_row(source: Source, rng: random.Random, recipe: Recipe, tokens: int) -> Row:
    """One row of about `tokens` tokens, never more (unless its facts alone need more)."""
    if recipe.echo and rng.random() < recipe.echo:
        first, last = len(SPECIALS), source.tokenizer.get_vocab_size()
        noise = [rng.randrange(first, last) for _ in range(tokens // 2 - 2)]
        return conversation(source, noise, noise, [KINDS.index("value")] * len(noise))
    exercise, facts = draw_exercise(rng, recipe, source.words)
    if rng.random() < recipe.answer:
        prompt = source.tokenizer.encode(answer_prompt(source.profile, exercise)).ids
        pieces = answer_pieces(exercise.asked, exercise.memory)
    else:
        prompt, pieces = _update(source, rng, exercise, facts, tokens)
    target, kinds = encode_pieces(source.tokenizer, pieces)
    return conversation(source, prompt, target, kinds)


def conversation(source: Source, prompt: Sequence[int], target: Sequence[int], kinds: Sequence[int]) -> Row:
    """A row in the model's chat form."""
    ids = {"begin": source.special(BEGIN), "reply": source.special(REPLY), "end": source.special(END)}
    return make_row(prompt, target, kinds, **ids)


def _update(
    source: Source, rng: random.Random, exercise: Exercise, facts: Sequence[Statement], tokens: int
) -> tuple[list[int], list[Piece]]:
    head, tail = prompt_parts(source.profile, exercise)
    longest = memory_pieces(exercise.asked, exercise.memory)
    fixed = len(source.tokenizer.encode(head + tail).ids) + len(encode_pieces(source.tokenizer, longest)[0]) + 6
    fixed += 3 * len(exercise.asked)
    room = max(16, tokens - fixed)
    text, planted = plant_all(rng, source.haystack, facts, int(room * _CHARS_PER_TOKEN))
    start, end = cut(source.tokenizer, rng, text, room)
    chunk = text[start:end]
    values = updated(exercise.asked, exercise.memory, visible(planted, text, start, end))
    return source.tokenizer.encode(head + chunk + tail).ids, memory_pieces(exercise.asked, values)


def cut(tokenizer: Tokenizer, rng: random.Random, text: str, tokens: int) -> tuple[int, int]:
    """Characters [start, end) of a piece of at most `tokens` tokens from a random place.

    Most pieces begin and end where a sentence does, as the chunker prefers; the others anywhere, but never end inside a
    word: a value that is cut in two would have no right target.
    """
    offsets = tokenizer.encode(text).offsets
    spare = len(offsets) - tokens
    if spare <= 0:
        return 0, len(text)
    place = rng.choice((0, spare, rng.randint(0, spare)))
    start, end = offsets[place][0], offsets[place + tokens - 1][1]
    if rng.random() < 0.6:
        reach = (end - start) // 3
        borders = sentence_borders(text)
        start = next((border for border in borders if start <= border < start + reach), start)
        end = next((border for border in reversed(borders) if end - reach < border <= end), end)
    while end > start and end < len(text) and not text[end - 1].isspace():
        end -= 1
    if rng.random() < 0.8:
        while start < end and start and not text[start - 1].isspace():
            start += 1
    return start, end


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixture:
    """A recipe and how often it is used: `weight` is piecewise linear over progress, as (progress, weight) points."""

    name: str
    recipe: Recipe
    weight: tuple[tuple[float, float], ...]

    def weight_at(self, progress: float) -> float:
        """The weight at `progress` in [0, 1]; flat outside the points."""
        before = self.weight[0]
        for point in self.weight:
            if point[0] >= progress:
                span = point[0] - before[0]
                share = (progress - before[0]) / span if span > 0 else 1.0
                return before[1] + share * (point[1] - before[1])
            before = point
        return before[1]


def step_batches(
    source: Source, mixtures: Sequence[Mixture], *, seed: int, step: int, steps: int, batches: int, batch_tokens: int
) -> list[tuple[str, Batch]]:
    """The batches of one step, each of one mixture and one length: (mixture name, batch)."""
    rng = generator(seed, "train", step)
    weights = [mixture.weight_at(step / steps) for mixture in mixtures]
    made = []
    for mixture in rng.choices(mixtures, weights=weights, k=batches):
        made.append((mixture.name, mixture_batch(source, rng, mixture.recipe, batch_tokens)))
    return made


def mixture_batch(source: Source, rng: random.Random, recipe: Recipe, batch_tokens: int) -> Batch:
    """Rows of one recipe and about one length, filling `batch_tokens`."""
    tokens = rng.randint(*recipe.tokens)
    rows = [exercise_row(source, rng, recipe, tokens) for _ in range(max(1, batch_tokens // tokens))]
    return make_batch(rows, source.special(PAD))


def open_source(tokenizer: Path, books: Sequence[Path], profile: Path, split: Split) -> Source:
    """Loads the tokenizer's folder, the books, the profile file and the words of `split`."""
    wording = profile_from_mapping(tomllib.loads(profile.read_text(encoding="utf-8")), str(profile))
    return Source(Haystack.load(books), load_tokenizer(tokenizer), wording, shipped_words(split))
