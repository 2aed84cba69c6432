"""Batches of one training step: a pure function of (seed, step). Any step can be made again after a stop."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from memagent.core.prompts import Profile
from memagent.models.chat import ChatFormat
from memagent.models.tokenizers import FileTokenizer
from memagent.profiles import load_profile
from memagent.tasks.haystack import Haystack, sentence_borders
from memagent.tasks.samples import generator
from memagent.tasks.task import Materials
from memagent.tasks.words import Split, shipped_words
from memagent.training.config import Mixture, ReadingMixture, SftConfig
from memagent.training.fields import weight_at
from memagent.training.ideal import Piece, answer_pieces, memory_pieces, visible
from memagent.training.policy import open_tokenizer
from memagent.training.reader_turns import TURN, TURNS, Mistakes, answer_prompt, memory_turns, parallel_turns
from memagent.training.readings import RightTurn, TaskRecipe, draw_sample, false_notes
from memagent.training.rows import KINDS, Batch, Row, make_batch, make_row
from memagent.training.updates import Recipe, draw_exercise, partial_match, plant_all
from memagent.training.vocabulary import subword_words

# Characters of book text per token, high enough that a chunk is seldom too short to be cut.
_CHARS_PER_TOKEN = 3.3
# Tokens of a turn beside its chunk, about: with a profile of few words, and of question, memory and reply alone.
_BESIDE, _FIELDS = 90, 72


@dataclass(frozen=True, slots=True)
class Source:
    """What rows are made from: book text and words (in `materials`), the wording of prompts, the model's chat form.

    `tokenizer` is the raw one of `materials.tokenizer`; `stop` ends a reply, `pad` fills a batch.
    """

    materials: Materials
    profile: Profile
    tokenizer: Tokenizer
    chat: ChatFormat
    stop: int
    pad: int

    def prompt(self, text: str) -> list[int]:
        """The token ids of a prompt, up to where the reply begins."""
        return self.chat.encode([{"role": "user", "content": text}])

    def worded(self, template: str) -> int:
        """The tokens of a turn's prompt without chunk, question and memory."""
        return len(self.prompt(self.profile.wording(template)))

    def beside(self, template: str) -> int:
        """The tokens of a turn beside its chunk, about."""
        return max(_BESIDE, self.worded(template) + _FIELDS)

    def row(self, prompt: Sequence[int], reply: Sequence[Piece]) -> Row:
        """One conversation, with a loss on the reply and its end."""
        target, kinds = encode_pieces(self.tokenizer, reply)
        return make_row(prompt, target, kinds, self.stop)


def encode_pieces(tokenizer: Tokenizer, pieces: Sequence[Piece]) -> tuple[list[int], list[int]]:
    """Token ids of the joined pieces, and the kind of each: that of the piece in which the token starts.

    The first token of a value is where it is decided whether there is one: its kind is "decision".
    """
    starts, offset = [], 0
    for text, _ in pieces:
        starts.append(offset)
        offset += len(text)
    encoded = tokenizer.encode("".join(text for text, _ in pieces), add_special_tokens=False)
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
        special = len(source.tokenizer.get_added_tokens_decoder())
        noise = [rng.randrange(special, source.tokenizer.get_vocab_size()) for _ in range(tokens // 2 - 2)]
        begin, *_, reply = source.prompt("x")
        return make_row([begin, *noise, reply], noise, [KINDS.index("value")] * len(noise), source.stop)
    exercise, facts = draw_exercise(rng, recipe, source.materials.words)
    if rng.random() < recipe.answer:
        return source.row(source.prompt(answer_prompt(source.profile, exercise)), answer_pieces(exercise.notes))
    turn = partial(TURN[recipe.reader], source.profile, exercise)
    fixed = len(source.prompt(turn("", []).prompt))
    fixed += len(encode_pieces(source.tokenizer, memory_pieces(exercise.notes))[0])
    room = max(16, tokens - fixed - 4 - 3 * len(exercise.notes.lines))
    word = partial_match(rng, recipe, [key for key, _ in exercise.notes.lines])
    text, planted = plant_all(rng, source.materials.text, facts, int(room * _CHARS_PER_TOKEN), word)
    start, end = cut(source.tokenizer, rng, text, room)
    right = turn(text[start:end], visible(planted, text, start, end))
    return source.row(source.prompt(right.prompt), right.reply)


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


def step_batches(
    source: Source,
    mixtures: Sequence[Mixture | ReadingMixture],
    seed: int,
    steps: int,
    batches: int,
    batch_tokens: int,
    step: int,
) -> list[tuple[str, Batch]]:
    """The batches of one step, each of one mixture and one length: (mixture name, batch). `steps`, the length of the run,
    says how far it has come, which weights depend on."""
    rng = generator(seed, "train", step)
    weights = [weight_at(mixture.weight, step / steps) for mixture in mixtures]
    made = []
    for mixture in rng.choices(mixtures, weights=weights, k=batches):
        made.append((mixture.name, mixture_batch(source, rng, mixture, batch_tokens)))
    return made


@dataclass(slots=True)
class StepMaker:
    """Makes the batches of the steps of a run. It travels to another process without the books, and opens them there."""

    config: SftConfig
    start: Path
    source: Source | None = None

    def __call__(self, step: int) -> list[tuple[str, Batch]]:
        plan = self.config.schedule
        return step_batches(
            self.opened(),
            [*self.config.mixture, *self.config.reading],
            seed=self.config.seed,
            step=step,
            steps=plan.steps,
            batches=plan.batches,
            batch_tokens=plan.batch_tokens,
        )

    def opened(self) -> Source:
        """What rows are made from. Raises TrainingError and TaskError."""
        if self.source is None:
            config, profile = self.config, load_profile(self.config.profile)
            tokenizer = open_tokenizer(self.start)
            self.source = open_source(tokenizer, config.books, profile, "train", config.subword_words, config.seed)
        return self.source

    def __reduce__(self) -> tuple[type[StepMaker], tuple[SftConfig, Path]]:
        return StepMaker, (self.config, self.start)


def mixture_batch(source: Source, rng: random.Random, recipe: Recipe | TaskRecipe, batch_tokens: int) -> Batch:
    """Rows of one recipe and about one length, filling `batch_tokens`; rows whose facts need more than their length are
    fewer."""
    if isinstance(recipe, TaskRecipe):
        return make_batch(_task_rows(source, rng, recipe, batch_tokens), source.pad)
    tokens = rng.randint(*recipe.tokens)
    rows: list[Row] = []
    while not rows or (len(rows) < batch_tokens // tokens and sum(len(row.ids) for row in rows) < batch_tokens):
        rows.append(exercise_row(source, rng, recipe, tokens))
    return make_batch(rows, source.pad)


def _task_rows(source: Source, rng: random.Random, recipe: TaskRecipe, batch_tokens: int) -> list[Row]:
    """Turns of as many readings as it takes: their answers, or their updates."""
    size = rng.randint(*recipe.chunk)
    answers = rng.random() < recipe.answer
    count = max(1, batch_tokens // (source.beside("answer") if answers else size + source.beside("update")))

    def chosen(turn: RightTurn) -> bool:
        if answers or turn.what in ("answer", "lost"):
            return answers and turn.what == "answer"
        return turn.what == "find" or rng.random() < recipe.quiet

    rows: list[Row] = []
    while len(rows) < count:
        tokens = recipe.tokens[0] if answers else max(size, rng.randint(*recipe.tokens))
        sample = draw_sample(rng, recipe.task, recipe.options, source.materials, tokens)
        made = (source.profile, source.materials.tokenizer, sample, size)
        if recipe.false_values and rng.random() < recipe.false_values:  # a share of 0 draws nothing
            turns = memory_turns(*made, false_notes(rng, sample, source.materials.words))
        elif recipe.empty_notes[1]:
            turns = parallel_turns(*made, Mistakes(rng, recipe.empty_notes))
        else:
            turns = TURNS[recipe.reader](*made)
        rows += [source.row(source.prompt(turn.prompt), turn.reply) for turn in turns if chosen(turn)]
    return rows[:count]


def open_source(
    tokenizer: Any, books: Sequence[Path], profile: Profile, split: Split, subwords: float = 0.0, seed: int = 0
) -> Source:
    """Loads the books and the words of `split`, for a tokenizer of transformers. `subwords`: the share of words that are
    made of its subwords, drawn with `seed`."""
    raw, words = tokenizer.backend_tokenizer, shipped_words(split)
    if subwords:  # "pieced" names the random stream that the embedded model was trained with
        words = subword_words(raw, words, subwords, generator(seed, "pieced", 0))
    materials = Materials(tokenizer=FileTokenizer(raw, name="policy"), haystack=Haystack.load(books, split), words=words)
    return Source(materials, profile, raw, ChatFormat(tokenizer), tokenizer.eos_token_id, tokenizer.pad_token_id or 0)
