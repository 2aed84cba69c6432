"""Words made of a tokenizer's own subwords, so that a model learns to copy what no word list covers.

A word list covers only some tokens of a vocabulary. A key whose first token never stood in a key of training is copied
wrong, and what is noted under a wrong key is soon lost or mixed up.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from itertools import cycle, islice

from tokenizers import Tokenizer

from memagent.errors import TrainingError
from memagent.tasks.words import Words, split_of

_LONGEST = 12  # letters of a word


def subword_words(tokenizer: Tokenizer, words: Words, share: float, rng: random.Random) -> Words:
    """The words with made-up ones, which are a `share` (below 1) of each list. Every subword that can begin a word begins
    equally many; none of the words is kept for evaluation. Raises TrainingError."""
    texts = [tokenizer.decode([number]) for number in range(tokenizer.get_vocab_size())]
    heads = [text[1:] for text in texts if re.fullmatch(" [a-z]{2,9}", text)]
    tails = [text for text in texts if re.fullmatch("[a-z]{2,9}", text)]

    def more(listed: Sequence[str], heads: Sequence[str]) -> tuple[str, ...]:
        count = round(len(listed) * share / (1 - share))
        order = cycle(rng.sample(heads, len(heads)))
        drawn = (next(order) + rng.choice(tails) for _ in range(100 * count) if heads and tails)
        made = tuple(islice(filter(_allowed, drawn), count))
        if len(made) < count:
            raise TrainingError(
                f"the tokenizer has {len(heads)} subwords of letters that begin a word and {len(tails)} that continue one:"
                " too few to make words of (`subword_words`)"
            )
        return (*listed, *made)

    return Words(more(words.adjectives, heads), more(words.nouns, heads + tails))


def _allowed(word: str) -> bool:
    return len(word) <= _LONGEST and split_of(word) == "train"
