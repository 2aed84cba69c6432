"""The scorers of published evaluation suites. A sample of such a suite names its own.

A suite's scorer is given the answer, the accepted answers (alternatives, of which the best counts) and the sample's `meta`,
which holds what the scorer needs besides. Like those of `memagent.scoring`, every scorer returns a number in [0, 1]: 1 for
a right answer, 0 for an empty one. It raises ValueError if `meta` lacks what it needs, or has it in another type.

Where a suite's published code would give its own reference answer less than 1, the scorer here is more lenient: it also
accepts an answer that is nothing but the reference.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from difflib import SequenceMatcher
from types import MappingProxyType
from typing import Any, TypeAlias

from memagent.scoring import SCORERS, Mode, normalize, strict
from memagent.stemming import stem

SuiteScorer: TypeAlias = Callable[[str, Sequence[str], Mapping[str, Any]], float]

# How answers say that a document does not hold the answer: LoCoMo's and QASPER's words, memagent's own, and some more.
ABSTENTIONS = (
    "no information", "not mentioned", "unanswerable", "not in the document", "not enough information", "not provided",
    "insufficient information", "did not mention", "didn't mention", "does not mention", "doesn't mention",
    "cannot be answered", "cannot answer", "can't answer", "do not know", "don't know",
)  # fmt: skip
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_CHOSEN = re.compile(r"(?:(?:answer|option|choice)(?: to [^.:\n]{1,40})? is|\bis:|answer:)[\s:*`\"'(]*", re.IGNORECASE)
_LETTER = re.compile(r"[(*]*([A-Z])(?:[).:,*`\"']|[ \t]*$)", re.MULTILINE)
_FINAL = re.compile(r"Final Answer: ?\[(.*)\]")
_BOXED = re.compile(r"\\boxed\{+(?:\\text\{)?([^}]*)\}")
_BABILONG_END = re.compile(r"\.|<context>|<example>")
_COMPARISONS = ("more common", "less common", "same frequency")
_DATES = ("%Y-%m-%d", "%b %d, %Y", "%B %d, %Y", "%d %b %Y", "%d %B %Y", "%m/%d/%Y", "%Y/%m/%d", "%b %d %Y", "%B %d %Y")
_DATES_MOST = 40  # characters
_CLOSE = 0.75  # Oolong: the factor for each unit that a number is off
_FAR = 1000


def choice(answer: str, accepted: Sequence[str], meta: Mapping[str, Any]) -> float:
    """Multiple choice: 1 for an accepted letter, or for another accepted text such as that of the choice.

    It is what the answer begins with, or else what follows the first "answer is", "option is", "is:" or "answer:".
    """
    given = answer.strip(" \t\r\n:*`\"'")
    if letter := _LETTER.match(given):
        return float(letter.group(1) in accepted)
    if said := _CHOSEN.search(given):
        rest = given[said.end() :]
        return float(any(re.match(rf"{re.escape(one)}(?!\w)", rest) for one in accepted if one))
    return strict(given, accepted)


def mrcr(answer: str, accepted: Sequence[str], meta: Mapping[str, Any]) -> float:
    """OpenAI MRCR: the ratio of difflib's SequenceMatcher, without the `prefix`; 0 if the answer does not begin with it."""
    prefix = _needed(meta, "prefix", str)
    if not answer.startswith(prefix) or not answer:
        return 0.0
    given = answer.removeprefix(prefix)
    return max(SequenceMatcher(None, given, one.removeprefix(prefix)).ratio() for one in accepted)


def graphwalks(answer: str, accepted: Sequence[str], meta: Mapping[str, Any]) -> float:
    """GraphWalks: F1 of the two sets of nodes in the last line, which must hold `Final Answer: [a, b]`."""
    if (given := _nodes(answer)) is None:
        return 0.0
    return max(_set_f1(given, _nodes(one) or set()) for one in accepted)


def babilong(answer: str, accepted: Sequence[str], meta: Mapping[str, Any]) -> float:
    """BABILong: 1 if the first sentence names the accepted label, or all labels of a list, and no other label of the task.

    `labels` are the task's labels but for those that the question names.
    """
    labels = {str(label).lower() for label in _needed(meta, "labels", list)}
    said = _BABILONG_END.split(answer.lower())[0]
    found = {label for label in labels if label in said}
    return float(any(found == _targets(one) for one in accepted))


def oolong(answer: str, accepted: Sequence[str], meta: Mapping[str, Any]) -> float:
    """Oolong-synth: 1 if what follows the last colon is the accepted answer; a number that is off by n gets 0.75 to the n.

    `answer_type` is the file's. Dates are compared as dates, if they are written in one of the common ways.
    """
    kind = _needed(meta, "answer_type", str)
    return max(_oolong(answer, one, kind) for one in accepted)


def oolong_real(answer: str, accepted: Sequence[str], meta: Mapping[str, Any]) -> float:
    """Oolong-real: numbers as in `oolong`; of a list, the share of its items, if a list is given; otherwise 1 if equal in
    any case.

    The answer is what stands in `\\boxed{}`, or all of it if there is no such thing.
    """
    found = _BOXED.search(answer)
    given = (found.group(1) if found else answer).strip()
    return max(_oolong_real(given, one.strip()) for one in accepted) if given else 0.0


def locomo_f1(answer: str, accepted: Sequence[str], meta: Mapping[str, Any]) -> float:
    """LoCoMo: F1 of the stems of the words, without articles and "and"."""
    given = _locomo_words(answer)
    return max(_bag_f1(given, _locomo_words(one)) for one in accepted)


def locomo_parts(answer: str, accepted: Sequence[str], meta: Mapping[str, Any]) -> float:
    """LoCoMo, for answers of several parts: over the parts of the accepted answer, the mean of the best F1 with a part of
    the answer. Commas separate parts."""
    parts = [_locomo_words(part) for part in answer.split(",")]

    def over(one: str) -> float:
        wanted = [_locomo_words(part) for part in one.split(",")]
        wanted = [words for words in wanted if words] or wanted
        return sum(max(_bag_f1(part, words) for part in parts) for words in wanted) / len(wanted)

    return max(map(over, accepted))


def abstention(answer: str, accepted: Sequence[str], meta: Mapping[str, Any]) -> float:
    """1 if the answer says that the text does not hold it, in one of the usual phrases, or equals an accepted one."""
    said = answer.lower().replace("\u2019", "'")
    return float(any(phrase in said for phrase in ABSTENTIONS)) or strict(answer, accepted)


def substring(answer: str, accepted: Sequence[str], meta: Mapping[str, Any]) -> float:
    """NoLiMa: 1 if the answer contains an accepted one, in the same case."""
    return float(any(one in answer for one in accepted))


def word(answer: str, accepted: Sequence[str], meta: Mapping[str, Any]) -> float:
    """InfiniteBench's retrieval: 1 if an accepted answer is a word of the answer, or words next to each other; any case."""
    given = f" {_plain_words(answer)} "
    return float(any(f" {words} " in given for words in map(_plain_words, accepted) if words))


def first_number(answer: str, accepted: Sequence[str], meta: Mapping[str, Any]) -> float:
    """InfiniteBench: 1 if the first number of the answer is an accepted one."""
    found = _NUMBER.search(answer)
    return float(found is not None and any(_same_number(found.group(), one) for one in accepted))


def last_number(answer: str, accepted: Sequence[str], meta: Mapping[str, Any]) -> float:
    """InfiniteBench's Code.Run: 1 if the last word of the answer is an accepted number."""
    words = re.sub(r"[\n.`'\":]", " ", answer).split()
    return float(bool(words) and any(_same_number(words[-1], one, signed=True) for one in accepted))


def leading_numbers(answer: str, accepted: Sequence[str], meta: Mapping[str, Any]) -> float:
    """InfiniteBench's Math.Calc: the share of the accepted list of numbers that the answer has right before an error."""
    given = _NUMBER.findall(answer)

    def over(one: str) -> float:
        wanted = _NUMBER.findall(one)
        right = 0
        while right < min(len(given), len(wanted)) and _same_number(given[right], wanted[right]):
            right += 1
        return right / len(wanted) if wanted else 0.0

    return max(map(over, accepted))


def f1_characters(answer: str, accepted: Sequence[str], meta: Mapping[str, Any]) -> float:
    """InfiniteBench's Chinese questions: F1 of the characters, without spaces and punctuation."""
    given = _characters(answer)
    return max(_bag_f1(given, _characters(one)) for one in accepted)


def rouge_l(answer: str, accepted: Sequence[str], meta: Mapping[str, Any]) -> float:
    """ROUGE-L: F1 of the longest common subsequence of words (runs of a-z and 0-9, in lower case, not stemmed)."""
    given = _rouge_words(answer)

    def over(one: str) -> float:
        wanted = _rouge_words(one)
        return 2 * common / (len(given) + len(wanted)) if (common := _common_length(given, wanted)) else 0.0

    return max(map(over, accepted))


SUITE_SCORERS: MappingProxyType[str, SuiteScorer] = MappingProxyType(
    {
        scorer.__name__: scorer
        for scorer in (
            choice, mrcr, graphwalks, babilong, oolong, oolong_real, locomo_f1, locomo_parts, abstention, substring, word,
            first_number, last_number, leading_numbers, f1_characters, rouge_l,
        )
    }
)  # fmt: skip


def known_scorer(name: str) -> str:
    """The name, if a sample may give it as its scorer; an empty one, too. Raises ValueError that names those there are."""
    if name and name not in SCORERS and name not in SUITE_SCORERS:
        raise ValueError(f"no scorer {name!r}; known: {', '.join((*SCORERS, *SUITE_SCORERS))}")
    return name


def own_score(name: str, answer: str, accepted: Sequence[str], mode: Mode, meta: Mapping[str, Any]) -> float:
    """The score by the scorer that a sample names, of this module or of `memagent.scoring`.

    Raises ValueError for a name that is neither, and for what the scorer raises.
    """
    if known_scorer(name) in SCORERS:
        return SCORERS[name](answer, accepted, mode)
    if not accepted:
        raise ValueError("there are no accepted answers")
    return SUITE_SCORERS[name](answer, accepted, meta)


def _needed(meta: Mapping[str, Any], name: str, kind: type) -> Any:
    value = meta.get(name)
    if not isinstance(value, kind):
        raise ValueError(f"its scorer needs meta.{name}, of the type {kind.__name__}, not {value!r}")
    return value


def _nodes(text: str) -> set[str] | None:
    """The nodes in the last line; None if it is not of the form asked for."""
    found = _FINAL.search(text.strip().rpartition("\n")[2])
    return {node.strip() for node in found.group(1).split(",") if node.strip()} if found else None


def _targets(accepted: str) -> set[str]:
    """BABILong's lists are longer than three characters; "e,s" is one label, a way."""
    accepted = accepted.lower()
    return set(accepted.split(",")) if len(accepted) > 3 else {accepted}


def _oolong(answer: str, gold: str, kind: str) -> float:
    if not (given := answer.strip()):
        return 0.0
    if given == gold:
        return 1.0
    given = _oolong_part(given)
    if given == gold:
        return 1.0
    if given in _COMPARISONS:
        return float(given in gold)
    if kind.endswith("NUMERIC"):
        return _closeness(given, gold)
    if kind.endswith("DATE"):
        return float((day := _date(given)) is not None and day == _date(gold))
    return 0.0


def _oolong_part(answer: str) -> str:
    """What Oolong takes for the answer: behind the last colon, or else all of a short reply, or its last word."""
    if ":" not in answer:
        return answer if len(answer) < 20 else answer.split()[-1]
    part = re.sub(r"[*\[\]]", "", answer.rpartition(":")[2].strip())
    if len(part) >= 20:
        return next((name for name in _COMPARISONS if name in part), part)
    return part


def _oolong_real(given: str, gold: str) -> float:
    if _integer(gold) is not None:
        return _closeness(given, gold)
    if "," in gold:
        wanted, items = ({item.strip() for item in text.split(",") if item.strip()} for text in (gold, given))
        return len(wanted & items) / len(wanted) if wanted and "," in given else 0.0
    return float(given.lower() == gold.lower())


def _closeness(given: str, gold: str) -> float:
    first, second = _integer(given), _integer(gold)
    if first is None or second is None:
        return 0.0
    return float(_CLOSE ** min(abs(first - second), _FAR))


def _integer(text: str) -> int | None:
    text = text.strip()
    return int(text) if re.fullmatch(r"[+-]?[0-9]{1,30}", text) else None


def _date(text: str) -> date | None:
    for form in _DATES if len(text) <= _DATES_MOST else ():
        try:
            return datetime.strptime(text.strip(" ."), form).date()
        except ValueError:
            continue
    return None


def _same_number(given: str, wanted: str, *, signed: bool = False) -> bool:
    """Whether two texts are the same number, or the same digits if the wanted ones begin with 0. Unless `signed`, a minus
    counts only where the wanted number has one."""
    wanted = wanted.strip()
    if not (_NUMBER.fullmatch(given) and _NUMBER.fullmatch(wanted)):
        return False
    if re.match("0[0-9]", wanted):
        return given == wanted
    return Decimal(given if signed or wanted.startswith("-") else given.lstrip("-")) == Decimal(wanted)


def _locomo_words(text: str) -> list[str]:
    return [stem(word) for word in normalize(text).split() if word != "and"]


def _plain_words(text: str) -> str:
    return " ".join(re.sub("[\n:\"'.,?!{}]", " ", text).upper().split())


def _characters(text: str) -> list[str]:
    return [one for one in text.lower() if not one.isspace() and unicodedata.category(one)[0] not in "PS"]


def _rouge_words(text: str) -> list[str]:
    return re.findall("[a-z0-9]+", text.lower())


def _common_length(first: Sequence[str], second: Iterable[str]) -> int:
    """The length of the longest common subsequence. A bit for each place of `first`: a row of the usual table at once."""
    places: defaultdict[str, int] = defaultdict(int)
    for number, item in enumerate(first):
        places[item] |= 1 << number
    everything = row = (1 << len(first)) - 1
    for item in second:
        met = row & places.get(item, 0)
        row = ((row + met) | (row - met)) & everything
    return len(first) - row.bit_count()


def _set_f1(given: set[str], wanted: set[str]) -> float:
    if not given and not wanted:
        return 1.0
    return _bag_f1(list(given), list(wanted))


def _bag_f1(given: Sequence[str], wanted: Sequence[str]) -> float:
    shared = (Counter(given) & Counter(wanted)).total()
    return 2 * shared / (len(given) + len(wanted)) if shared else 0.0
