"""Generated text of kinds that books are not: contracts, code, tables, logs, dialogue, markup, letters, lists, languages.

They are haystacks: text in which a reader has to find a fact, and to take nothing else for one. Words, names and numbers
are drawn; what a sentence says makes no sense.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any, Literal, TypeAlias, cast, get_args

from memagent.tasks.fact_values import SORTS, Sort, make
from memagent.tasks.names import Kind, Names
from memagent.tasks.samples import generator
from memagent.tasks.words import Split, shipped_words

TextKind: TypeAlias = Literal["contract", "code", "table", "log", "dialogue", "markup", "letter", "list", "languages"]
TEXT_KINDS: tuple[str, ...] = get_args(TextKind)


def text_of(kind: TextKind, characters: int, split: Split) -> str:
    """A text of one kind, of at least `characters` characters. The same arguments always give the same text."""
    rng = generator(0, f"text/{kind}/{split}", 0)
    pieces: list[str] = []
    size = 0
    while size < characters:
        pieces.append(_KINDS[kind](_Draw(rng, split)))
        size += len(pieces[-1]) + 2
    return "\n\n".join(pieces) + "\n"


class _Draw:
    """Fills templates: {noun}, {adjective}, {number}, a made-up name ({person}, {town}), a value ({date}, {amount})."""

    def __init__(self, rng: random.Random, split: Split) -> None:
        self.rng, self._split = rng, split
        self._words, self._names = shipped_words(split), Names(rng, split)

    def __getitem__(self, field: str) -> str:
        if field in ("noun", "adjective"):
            return self.rng.choice(self._words.nouns if field == "noun" else self._words.adjectives)
        if field in ("Noun", "NOUN"):
            return self["noun"].upper() if field == "NOUN" else self["noun"].capitalize()
        if field == "number":
            return str(self.rng.randrange(10 ** self.rng.randint(1, 7)))
        if field in SORTS:
            return make(self.rng, cast(Sort, field), self._split)
        return self._names.new(cast(Kind, field))

    def fill(self, template: str) -> str:
        return template.format_map(cast(Mapping[str, str], self))

    def one(self, templates: Sequence[str]) -> str:
        return self.fill(self.rng.choice(templates))

    def some(self, templates: Sequence[str], low: int, high: int) -> list[str]:
        return [self.one(templates) for _ in range(self.rng.randint(low, high))]


_CLAUSES = (
    "The {Noun} shall deliver the {adjective} {noun} to the {Noun} not later than {duration} after receipt of the {noun}.",
    "Neither party shall be liable for any {adjective} {noun}, {noun} or {noun} arising out of this Section {number}.",
    "All notices under this Agreement shall be given in writing and sent to {person}, {town}, with a copy to {company}.",
    'For the purposes of this Agreement, "{Noun}" means any {noun} listed in Exhibit {room}, as amended from time to time.',
    "The aggregate amount shall not exceed {amount} in any period of {duration}, except as set out in Clause {number}.",
    "This Section shall survive the expiration of the {Noun} for any reason whatsoever.",
    "{company} represents and warrants that the {noun} is free of any {adjective} {noun} as of {date}.",
    "Any {noun} that is not expressly granted herein is reserved by the {Noun}, its successors and assigns.",
    "The {Noun} may, upon {duration} of written notice, inspect the {adjective} {noun} during ordinary business hours.",
    "If the {noun} is delayed by events beyond control, the time for its {noun} shall be extended accordingly.",
)


def _contract(draw: _Draw) -> str:
    rng, number = draw.rng, draw.rng.randint(1, 24)
    heading = draw.one(
        ("{number}. {NOUN} AND {NOUN}", "ARTICLE {number}\n{NOUN}", "Section {number}. {Noun} of the {Noun}")
    )
    mark = rng.choice((f"{number}.{{n}}", "({a})", f"{number}.{{n}}.", "Clause {n}:", ""))
    clauses = draw.some(_CLAUSES, 2, 7)
    lines = [f"{mark.format(n=n, a='abcdefg'[n - 1])} {clause}".strip() for n, clause in enumerate(clauses, 1)]
    return "\n".join([heading, *lines])


_STATEMENTS = (
    "{noun}_{noun} = {number}",
    "self.{noun} = {noun}.get('{noun}', {number})",
    "if {noun} > {number} and not {noun}.{adjective}:",
    "for {noun} in range({number}):",
    "return {noun}.{noun}({noun}, {adjective}={number})",
    "raise ValueError('{noun} must be {adjective}, not ' + repr({noun}))",
    "# {adjective} {noun}: see the note on {noun}",
    'const {noun} = await {noun}.{noun}("{adjective}-{noun}", {number});',
    "{noun}[{number}] += {noun}.{noun} * {number}",
    'log.debug("{noun} %s took %d ms", {noun}, {number})',
    "assert len({noun}) == {number}, {noun}",
    "int {noun} = {adjective}_{noun}({number}, &{noun});",
)


def _code(draw: _Draw) -> str:
    rng = draw.rng
    head = draw.one(
        (
            "def {noun}_{noun}(self, {noun}, {adjective}={number}):",
            "class {Noun}{Noun}({Noun}):",
            "function {noun}{Noun}({noun}, {noun}) {{",
            "static int {noun}_{noun}(struct {noun} *{noun}) {{",
            "import {noun}\nfrom {noun}.{noun} import {Noun}, {noun}",
            "SELECT {noun}, {adjective}_{noun} FROM {noun}s WHERE {noun} = {number};",
        )
    )
    lines, depth = [head], 1
    for line in draw.some(_STATEMENTS, 3, 12):
        lines.append("    " * depth + line)
        depth = max(1, min(4, depth + (1 if line.endswith(":") else rng.choice((0, 0, -1)))))
    return "\n".join([*lines, *(["}"] if head.endswith("{") else [])])


_CELLS = (
    "{number}", "{amount}", "{count}", "{date}", "{noun}", "{adjective} {noun}", "{person}", "{town}", "{room}", "{time}",
)  # fmt: skip


def _table(draw: _Draw) -> str:
    rng = draw.rng
    columns = rng.sample(_CELLS, rng.randint(2, 6))
    rows = [[draw["Noun"] for _ in columns]]
    rows += [[draw.fill(cell) for cell in columns] for _ in range(rng.randint(4, 16))]
    form = rng.choice(("csv", "tabs", "markdown", "aligned"))
    if form == "markdown":
        rows.insert(1, ["---"] * len(columns))
        return "\n".join("| " + " | ".join(row) + " |" for row in rows)
    if form == "aligned":
        wide = [max(len(row[place]) for row in rows) + 2 for place in range(len(columns))]
        return "\n".join("".join(cell.ljust(width) for cell, width in zip(row, wide, strict=True)).rstrip() for row in rows)
    joint = ";" if form == "csv" else "\t"
    return "\n".join(joint.join(row) for row in rows)


_EVENTS = (
    "{noun}.{noun}: {adjective} {noun} {number} finished in {number} ms",
    "connection from 10.{room}.{number} closed, {number} bytes sent",
    "GET /{noun}/{noun}?id={number} {number} {number}",
    "retry {number} of {noun} '{noun}-{number}' after {duration}",
    "user {person} signed in from {town}",
    "cache {noun} holds {count} entries, {number} expired",
    "{noun} not found: /var/{noun}/{adjective}/{noun}.{noun}",
    "job {room} queued behind {number} others",
)


def _log(draw: _Draw) -> str:
    stamp = draw.rng.choice(("{date} {time}", "[{date} {time}]", "{number}.{number}", "{time}"))
    level = ("INFO", "WARN", "DEBUG", "ERROR", "info:", "[worker-3]", "<notice>")
    return "\n".join(f"{draw.fill(stamp)} {draw.rng.choice(level)} {event}" for event in draw.some(_EVENTS, 5, 20))


_SAID = (
    "I never saw the {noun}, and I will not go back to {town} for a {adjective} {noun}.",
    "Well, who told you that? {person}, I suppose.",
    "No. At {time}, or not at all!",
    "You said it would be {adjective}; look at it now.",
    "What would you do with {amount} and a {noun}?",
    "Yes, yes. The {noun} can wait until {date}, can it not?",
    "ok so I moved the {noun}, can you check?",
    "My mother kept a {noun} in every room, even in {town}.",
    "Ask {person} about the {noun}. I have had enough of it.",
    "Fine by me :) bring the {adjective} one",
)


def _dialogue(draw: _Draw) -> str:
    speakers = [draw["person"].split(" ")[0] for _ in range(draw.rng.randint(2, 4))]
    form = draw.rng.choice(
        ("{who}: {said}", "{WHO}. {said}", "[{time}] <{who}> {said}", "- {said}", '"{said}" said {who}.')
    )
    lines = []
    for said in draw.some(_SAID, 4, 14):
        who = draw.rng.choice(speakers)
        lines.append(form.format(who=who, WHO=who.upper(), said=said, time=draw["time"]))
    return "\n".join(lines)


def _mapping(draw: _Draw, size: int, depth: int) -> dict[str, Any]:
    keys = [draw["noun"] for _ in range(size)]
    return {key: _value(draw, depth) for key in keys}


def _value(draw: _Draw, depth: int) -> Any:
    chance = draw.rng.random()
    if chance < 0.3 and depth < 3:
        return _mapping(draw, draw.rng.randint(1, 4), depth + 1)
    if chance < 0.45 and depth < 3:
        return [_value(draw, depth + 1) for _ in range(draw.rng.randint(1, 4))]
    if chance < 0.7:
        return draw.rng.randrange(10 ** draw.rng.randint(1, 6))
    return draw.one(_CELLS)


def _markup(draw: _Draw) -> str:
    form = draw.rng.choice(("json", "html", "ini", "yaml", "markdown"))
    if form == "json":
        return json.dumps(
            _mapping(draw, draw.rng.randint(2, 6), 0), ensure_ascii=False, indent=draw.rng.choice((None, 2, 4))
        )
    if form == "html":
        tag = draw.rng.choice(("li", "td", "p", "div", "span", "item"))
        items = draw.some((*_SAID, *_CELLS), 3, 9)
        inner = "\n".join(f'<{tag} class="{draw["noun"]}">{escape(item)}</{tag}>' for item in items)
        return f'<section id="{draw["noun"]}-{draw["number"]}">\n{inner}\n</section>'
    if form == "markdown":
        items = draw.some(("**{noun}** — {adjective} [{noun}](#{noun})", *_CLAUSES), 2, 6)
        return "\n".join([draw.fill("## {Noun} and {noun}"), *items])
    joint = " = " if form == "ini" else ": "
    lines = [f"{draw['noun']}{joint}{draw.one(_CELLS)}" for _ in range(draw.rng.randint(3, 10))]
    return "\n".join([draw.fill("[{noun}]") if form == "ini" else draw.fill("{noun}:"), *lines])


def _letter(draw: _Draw) -> str:
    heads = ("From: {person} <{email}>", "To: {person}", "Date: {date}", "Subject: {adjective} {noun}", "Cc: {email}")
    body = draw.some(
        (
            "Thank you for the {adjective} {noun}, which arrived on {date}.",
            "As discussed with {person}, we would like to move the {noun} to {town}.",
            "The {noun} from {company} came to {amount}, a little more than we thought.",
            "Could you send the {noun} to room {room} before {time}?",
            "I am sorry that it took {duration}; the {noun} was not as {adjective} as it looked.",
            "Please find the {noun} attached, and let me know what {company} thinks of it.",
            "We hope to see you in {town}. The {noun} will be served at {time}.",
        ),
        2,
        7,
    )
    close = draw.one(("Kind regards,\n{person}", "Yours sincerely\n{person}, {trade}", "Best,\n{person}\n{company}"))
    return "\n".join([*draw.some(heads, 1, 4), "", draw.fill("Dear {person},"), "", " ".join(body), "", close])


def _list(draw: _Draw) -> str:
    mark = draw.rng.choice(("- {}", "* {}", "{n}. {}", "{n}) {}", "[ ] {}", "Step {n}: {}"))
    items = draw.some(
        (
            "Turn the {adjective} {noun} to the left until it stops.",
            "{Noun}, {adjective}, {number} g",
            "Buy a {noun} ({amount})",
            "Check the {noun} against the {noun} every {duration}",
            "{Noun}: see page {number}",
            "Meet {person} at {time}, {town}",
            "{company}, {town} (since {year})",
            "Remove the {noun} and clean it with a {adjective} {noun}.",
        ),
        4,
        14,
    )
    return "\n".join([draw.fill("{Noun} {noun}"), *(mark.format(item, n=number) for number, item in enumerate(items, 1))])


_SENTENCES = (
    "Der {Noun} von {town} war am {date} nicht mehr zu finden, und niemand wusste warum.",
    "Am Morgen ging {person} in die Stadt, kaufte zwei Brote und kam erst spät nach Hause.",
    "Die Kosten beliefen sich auf {amount}; davon wurden {number} bereits bezahlt.",
    "Wer hat gesagt, dass es in {town} keine Brücken gibt?",
    "Le {noun} de {person} se trouvait près de {town}, au bord de la rivière.",
    "Il fallut {number} jours pour traverser la vallée, et personne ne s'en plaignit.",
    "On dit que {company} a vendu sa maison pour {amount}. C'est possible.",
    "La señora {person} llegó a {town} con tres maletas y un perro viejo.",
    "Nadie sabía cuántos años tenía la casa; algunos decían que {number}.",
    "El {noun} cuesta {amount}, pero en {town} se vende más barato.",
    "Il mercante di {town} non volle vendere la lampada, nemmeno per {amount}.",
    "A casa ficava em {town}, e {person} ia lá todos os verões.",
    "De molen van {town} draaide niet meer sinds {year}, zei {person}.",
    "Wszyscy w {town} znali {person}, ale nikt nie pytał o drogę.",
)


def _languages(draw: _Draw) -> str:
    return " ".join(draw.some(_SENTENCES, 3, 9))


_KINDS: Mapping[TextKind, Callable[[_Draw], str]] = {
    "contract": _contract,
    "code": _code,
    "table": _table,
    "log": _log,
    "dialogue": _dialogue,
    "markup": _markup,
    "letter": _letter,
    "list": _list,
    "languages": _languages,
}
