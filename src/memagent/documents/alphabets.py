"""Which 8-bit encoding a text of letters is in: the one in which it reads as one language.

Almost every byte is some letter in almost every code page, so that it says nothing that a page "decodes". The rest tells: a
language uses few letters beyond a–z, a sign such as £ does not stand inside a word, and a capital does not follow a small
letter. The page in which most characters fit wins. A text of one `é`, `€` or `°` reads well in many pages: ties go to
cp1252, by far the commonest, and the pages of DOS and old Macs need a clear lead. Other scripts are only thought of where
whole words are beyond ASCII; each of their languages lists its letters from the most frequent one, and those must be
frequent.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from dataclasses import dataclass

_WESTERN = (
    "àâæçéèêëîïôœùûüÿ",  # French
    "äöüßé",  # German
    "áéíñóúü",  # Spanish
    "áàâãçéêíóôõúü",  # Portuguese
    "àèéìíîòóùú",  # Italian
    "àçèéíïòóúü",  # Catalan
    "áéèëêïíóöüú",  # Dutch
    "åäöéàü",  # Swedish, Finnish
    "æøåéèêòóô",  # Danish, Norwegian
    "áéíóúýðþæö",  # Icelandic
    "äöõüšž",  # Estonian
)
_CENTRAL = (
    "ąćęłńóśźż",  # Polish
    "áčďéěíňóřšťúůýž",  # Czech
    "áäčďéíĺľňóôŕšťúýž",  # Slovak
    "áéíóöőúüű",  # Hungarian
    "ăâîşţ",  # Romanian
    "čćđšž",  # Croatian, Slovene
)
_TURKISH = ("çğıİöşüâîû",)
_BALTIC = ("ąčęėįšųūž", "āčēģīķļņšūž", "äöõüšž")
_VIETNAMESE = ("ăâđêôơưàáãèéìíòóõùúý\u0300\u0301\u0303\u0309\u0323",)
_CYRILLIC = (
    "оеаинтсрвлкмдпуяыьгзбчйхжшюцщэфёъ",  # Russian
    "оаинвіетрслкдупмзяьбгйчхїжєюцшщґф",  # Ukrainian
    "аеоитнврслкдпмзубчъгщжхцяшюйьф",  # Bulgarian
    "аоиенртсјувкдмплзбгчшцњжљћђхџф",  # Serbian
)
_GREEK = ("αοιετσνρυηκπςμλωγδθχφβξζψόάίέήύώϊϋΐΰ",)
_HEBREW = ("יוהלארמתבשנחדעקכפםגטסזןצךףץ",)
_ARABIC = ("اليمنورتبعدفهقسكةحجشأصىخطئضإذثزغءظآؤ",)


@dataclass(frozen=True, slots=True)
class _Page:
    """A code page, the languages written in it, and what a reading in it weighs."""

    codec: str
    languages: tuple[str, ...]
    weight: float = 1.0


_USUAL = "cp1252"
_LATIN_PAGES = (  # the first of equals wins
    _Page(_USUAL, _WESTERN),
    _Page("cp1250", _CENTRAL, 0.95),
    _Page("iso8859-2", _CENTRAL, 0.95),
    _Page("cp1254", _TURKISH, 0.95),
    _Page("cp1257", _BALTIC, 0.95),
    _Page("cp1258", _VIETNAMESE, 0.95),
    _Page("iso8859-15", _WESTERN, 0.9),
    _Page("cp850", _WESTERN, 0.75),
    _Page("cp437", _WESTERN, 0.75),
    _Page("cp852", _CENTRAL, 0.75),
    _Page("mac-roman", _WESTERN, 0.75),
)
_OTHER_PAGES = (
    _Page("cp1251", _CYRILLIC),
    _Page("koi8-r", _CYRILLIC),
    _Page("iso8859-5", _CYRILLIC),
    _Page("cp866", _CYRILLIC),
    _Page("mac-cyrillic", _CYRILLIC),
    _Page("cp1253", _GREEK),
    _Page("iso8859-7", _GREEK),
    _Page("cp1255", _HEBREW),
    _Page("cp1256", _ARABIC),
)
_MIXED = 0.9
"""The weight of a reading in all Latin languages of a page at once: names of many countries are rarer than one language."""
_FREQUENT = 10
"""The letters of another script that are two thirds of a text; the others weigh half."""
_READS = 0.7
"""The weighted share of fitting characters up to which a text is in no page."""

_SAMPLE = 16 << 10
_BEYOND = re.compile(r"[^\0-\x7f]")
_TYPOGRAPHY = bytes((0x85, *range(0x91, 0x98), 0xA0, 0xAB, 0xBB))
"""Quotes, dashes, dots and the no-break space of cp1252: they stand beside the letters of any word."""
_SIGNS = frozenset(byte for byte in range(0x80, 0x100) if not bytes([byte]).decode("cp1252", "replace").isalpha())
_HIGH = rb"[\x80-\x84\x86-\x90\x98-\x9f\xa1-\xaa\xac-\xba\xbc-\xff]"
_FOREIGN = re.compile(rb"%b{3,}|(?<![A-Za-z\x80-\xff])%b{2}(?![A-Za-z\x80-\xff])" % (_HIGH, _HIGH))
"""Bytes that Latin words do not have: three beyond ASCII in a row, or a word of two."""

_JOINERS = "’‘´·–—…×\xad\xa0"  # these stand between letters
_RAISED = "¹²³ªº"  # these follow a word or number
_OPENING = "„‚¿¡"  # these begin one
_NEVER = "¤˛˘˝ˇ˙"  # nobody writes these
_SIGN_LETTERS = "ªºµ"  # Unicode calls them letters


def code_page(sample: bytes) -> str | None:
    """The likeliest code page of a sample that is not ASCII, as Python calls it. None: it reads as text in none of them."""
    foreign = _other_script(sample)
    best, score = None, _READS
    for page in _OTHER_PAGES if foreign else _LATIN_PAGES:
        try:
            text = sample[:_SAMPLE].decode(page.codec)
        except UnicodeDecodeError:
            continue
        signs, letters, total = _fitting(text)
        if foreign:
            fits = _in_frequent_letters(letters, page)
        elif page.codec == _USUAL or not _mostly_beyond_ascii(text):
            fits = signs + _in_alphabets(letters, page)
        else:
            continue
        share = page.weight * fits / max(1, total)
        if share > score:
            best, score = page.codec, share
    return best


def _other_script(sample: bytes) -> bool:
    """Whether most bytes that are not ASCII stand together, as in words of another script; in Latin words they stand
    among ASCII letters. Signs side by side (`€£`, `¹²³`) are no word, nor is a line of one letter."""
    beyond = len(sample.translate(None, bytes(range(128)) + _TYPOGRAPHY))
    together = sum(len(word) for word in _FOREIGN.findall(sample) if len(set(word)) > 1 and not _SIGNS.issuperset(word))
    return together * 2 > beyond


def _mostly_beyond_ascii(text: str) -> bool:
    """Whether more than half of the letters are beyond ASCII, as in no text in Latin letters but a word or two."""
    letters = [char for char in text if char.isalpha()]
    return 2 * sum(char.isascii() for char in letters) < len(letters)


def _fitting(text: str) -> tuple[int, Counter[str], int]:
    """The signs and the (small) letters beyond ASCII that may stand where they do, and the number of all characters beyond
    ASCII. A capital after a capital counts as half a letter, under its own name."""
    signs, letters, total = 0, Counter[str](), 0
    for match in _BEYOND.finditer(text):
        at, char, total = match.start(), match[0], total + 1
        before, after = text[at - 1 : at], text[at + 1 : at + 2]
        if not _is_letter(char):
            signs += _sign_fits(before, char, after)
        elif not (char.isupper() and before.islower()):
            letters[char if char.isupper() and before.isupper() else _small(char)] += 1
    return signs, letters, total


def _in_alphabets(letters: Counter[str], page: _Page) -> float:
    """How many letters are in the alphabet of one language, or in those of all at a discount."""
    counts = Counter[str]()
    for char, count in letters.items():
        counts[_small(char)] += count
    one = max(sum(counts[char] for char in language) for language in page.languages)
    return max(one, _MIXED * sum(counts[char] for char in set("".join(page.languages))))


def _in_frequent_letters(letters: Counter[str], page: _Page) -> float:
    """How many letters are in one language, where rare ones count half, and so do capitals after capitals."""
    return max(sum(count * _weight(char, language) for char, count in letters.items()) for language in page.languages)


def _weight(char: str, language: str) -> float:
    small = _small(char)
    if small not in language:
        return 0.0
    return (1.0 if small in language[:_FREQUENT] else 0.5) * (1.0 if char == small else 0.5)


def _small(char: str) -> str:
    return char if char == "İ" else char.lower()


def _is_letter(char: str) -> bool:
    return unicodedata.category(char)[0] in "LM" and char not in _SIGN_LETTERS


def _sign_fits(before: str, char: str, after: str) -> bool:
    """Whether a character that is no letter may stand here."""
    if char in _NEVER or (unicodedata.category(char)[0] == "C" and char != "\xad"):
        return False
    if (char in _RAISED and after.isalpha()) or (char in _OPENING and before.isalpha()):
        return False
    return char in _JOINERS or not (before.isalpha() and after.isalpha())
