"""Answers that are JSON: what is a schema, what is read from a reply, and what comes of it in a reading."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from enum import Enum

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel
from typer.testing import CliRunner

import memagent
from memagent.cli import app
from memagent.core import Completion
from memagent.journal.redaction import redact, strip_urls
from memagent.models.open import OpenModel
from memagent.models.scripted import ScriptedModel
from memagent.profiles import load_profile
from memagent.structured import JsonForm, schema_text
from tests.faults import FaultServer

FEE = {
    "type": "object",
    "properties": {"customer": {"type": "string"}, "fee": {"type": "number"}, "begin": {"type": ["string", "null"]}},
    "required": ["customer", "fee"],
    "additionalProperties": False,
}
RIGHT = {"customer": "Alder GmbH", "fee": 12500, "begin": "2024-03-01"}
TEXT = "\n".join(
    {
        10: "This Agreement begins on 1 March 2024.",
        25: "Alder GmbH is the customer.",
        40: "The customer pays a monthly fee of EUR 12,500.00 within thirty days.",
    }.get(number, f"Line {number} tells of the sea.")
    for number in range(60)
)
OPTIONS = {"question_tokens": 500, "chunk_tokens": 500, "memory_tokens": 200, "answer_tokens": 200}
FACTS = ("This Agreement begins on 1 March 2024.", "Alder GmbH is the customer.", "a monthly fee of EUR 12,500.00")


class Kind(Enum):
    LEASE = "lease"


class Party(BaseModel):
    name: str
    kind: Kind | None = None


class Contract(BaseModel):
    parties: list[Party]


# Schemas


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"type": "objekt"}, r'is no JSON Schema: \$\.type: "objekt"'),
        ({"name": "string"}, "accepts any answer: it has no keyword"),
        ([1, 2], "is a list: a schema is an object"),
        ({"type": "string", "pattern": "("}, "is not a 'regex'"),
        ({"$ref": "https://example.org/schema"}, "nothing is fetched"),
        ({"$ref": "file:///etc/passwd"}, "nothing is fetched"),
        ({"type": "object", "properties": {"a": {"$ref": "#/$defs/missing"}}}, "refers to '#/\\$defs/missing'"),
        ({"$ref": "#"}, "refers to itself without end"),
        (
            {"properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"$ref": "#/$defs/a"}}},
            "refers to itself without end, at '#/\\$defs/a'",
        ),
        ({"properties": {"a": {"$dynamicRef": "#missing"}}}, "refers to '#missing', which it does not have"),
        ({"$schema": 5, "type": "string"}, "cannot be used"),
        ({"description": "a table of parties"}, "accepts any answer"),
        ({"type": "string", "examples": ["https://me:secret@example.org/a"]}, "a URL with a password"),
        (int, "the schema of int cannot be made"),
        ({"type": {1, 2}}, "is not JSON"),
    ],
)
def test_what_is_no_schema_is_refused_with_the_reason(schema, said) -> None:
    with pytest.raises(memagent.ConfigError, match=said):
        schema_text(schema)


def test_a_schema_file_that_is_missing_or_no_json_is_named(tmp_path) -> None:
    with pytest.raises(memagent.ConfigError, match=r"cannot read the schema .*none\.json"):
        schema_text(tmp_path / "none.json")
    (tmp_path / "bad.json").write_text("{'type': 'object'}")
    with pytest.raises(memagent.ConfigError, match=r"bad\.json is not JSON"):
        schema_text(tmp_path / "bad.json")
    (tmp_path / "deep.json").write_text("[" * 100_000)
    with pytest.raises(memagent.ConfigError, match=r"deep\.json is not JSON"):
        schema_text(tmp_path / "deep.json")
    (tmp_path / "good.json").write_text("\ufeff" + json.dumps(FEE))
    assert json.loads(schema_text(tmp_path / "good.json")) == FEE


def test_a_recursive_schema_and_a_pydantic_model_are_schemas() -> None:
    tree = {"type": "object", "properties": {"next": {"$ref": "#"}}}
    assert JsonForm(schema_text(tree)).read('{"next": {"next": {}}}') == '{"next": {"next": {}}}'
    form = JsonForm(schema_text(Contract))
    assert form.read('{"parties": [{"name": "Ann", "kind": "lease"}]}')
    with pytest.raises(ValueError, match=r"\$\.parties\[0\]\.kind"):
        form.read('{"parties": [{"name": "Ann", "kind": "loan"}]}')


@pytest.mark.parametrize(
    "schema",
    [
        {"pattern": "^https://[^/]+/.*$"},
        {"enum": ["https://a.org/?code=1", "see https://example.org\n[1]"]},
        {"minimum": 3},
        {"prefixItems": [{"const": {"$ref": "x"}}]},
        {"format": "date"},
        {
            "$defs": {"b": {"$id": "urn:b", "properties": {"x": {"$ref": "#/$defs/x"}}, "$defs": {"x": {}}}},
            "type": "object",
        },
        {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "definitions": {"a": {"type": "null"}}},
    ],
)
def test_a_schema_is_kept_as_it_is_whatever_urls_it_has(schema) -> None:
    text = schema_text(schema)
    assert json.loads(text) == json.loads(JsonForm(text).schema) == schema
    assert strip_urls(text) == text
    assert redact({"schema": text}, "settings") == {"schema": text}


# Replies


@pytest.mark.parametrize(
    "reply",
    [
        json.dumps(RIGHT),
        "```json\n" + json.dumps(RIGHT, indent=2) + "\n```",
        f"Here is what you asked for [see below]: {json.dumps(RIGHT)} I hope it helps.",
        f"{{sic}} [1]: {json.dumps(RIGHT)}",
        f"Clause [12 months] of {'[1] ' * 21}: {json.dumps(RIGHT)}",
        f"The schema is {json.dumps(FEE)}, so the answer is {json.dumps(RIGHT)}.",
        f"{json.dumps({**RIGHT, 'fee': 1})} is wrong. Corrected: {json.dumps(RIGHT)}",
    ],
)
def test_json_is_found_between_words_and_fences(reply) -> None:
    assert json.loads(JsonForm(schema_text(FEE)).read(reply)) == RIGHT


@pytest.mark.parametrize("value", ["Alder", 12, True, None])
def test_a_fence_is_left_out_around_any_value(value) -> None:
    form = JsonForm(schema_text({"type": ["string", "number", "boolean", "null"]}))
    assert json.loads(form.read(f"Here:\n```json\n{json.dumps(value)}\n```\nDone.")) == value


def test_the_schema_itself_is_no_answer() -> None:
    form = JsonForm(schema_text({"type": "object", "properties": {"customer": {"type": ["string", "null"]}}}))
    for reply in (form.schema, f"It follows {form.schema}.", f"As in [1], it follows {form.schema}."):
        with pytest.raises(ValueError, match="It is the schema itself, not an answer"):
            form.read(reply)


def test_the_mistake_is_that_of_the_longest_value_and_short() -> None:
    form = JsonForm(schema_text(FEE))
    with pytest.raises(ValueError, match="'fee' is a required property"):
        form.read('As noted in [1], it is {"customer": "Alder"}')
    with pytest.raises(ValueError, match=r"… is not of type 'object'"):
        form.read(json.dumps([{**RIGHT, "fee": number} for number in range(20)]))


def test_what_cannot_be_checked_is_a_mistake_and_no_crash() -> None:
    form = JsonForm(schema_text({"type": "number", "multipleOf": 0.5}))
    with pytest.raises(ValueError, match="It cannot be checked"):
        form.read("1" * 400)


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        ("The fee is 12,500.", "It is not complete JSON"),
        ('{"customer": "Alder", "fee": "a lot"}', r"\$\.fee: \"a lot\" is not of type 'number'"),
        ('{"customer": "Alder"}', "'fee' is a required property"),
        ('{"customer": "Alder", "fee": 1, "more": 2}', "Additional properties"),
        ('{"customer": "Alder", "fee": NaN}', "It cannot be read: NaN is not a JSON number"),
        ('{"customer": "Alder", "fee": 1e999}', "It cannot be read: 1e999 is too large a number"),
        (f'{{"customer": "Alder", "fee": {"1" * 5000}}}', "It cannot be read: a number of 5,000 digits is too large"),
        (
            f'It is {{"customer": "Alder", "fee": {"1" * 5000}}}.',
            "It cannot be read: a number of 5,000 digits is too large",
        ),
        ("-" + "1" * 5000, "It cannot be read: a number of 5,000 digits is too large"),
        ('{"customer": "\\ud800", "fee": 1}', "a lone surrogate"),
        ("[" * 100_000, "nested too deeply"),
        ('{"customer": "Alder", "fee": 12', "It is not complete JSON"),
        ("{" * 5_000, "It is not complete JSON"),
    ],
)
def test_what_does_not_follow_the_schema_is_told(reply, said) -> None:
    with pytest.raises(ValueError, match=said) as raised:
        JsonForm(schema_text(FEE)).read(reply)
    assert len(str(raised.value)) <= 200


def test_parts_of_an_answer_that_was_cut_off_are_no_answer() -> None:
    form = JsonForm(schema_text({"type": "object"}))
    with pytest.raises(ValueError, match="not complete"):
        form.read('{"parties": [{"name": "Ann"}, {"name": "Be')
    with pytest.raises(ValueError, match="not complete"):
        form.read('Draft: {"fee": 1}\nFinal: {"fee": 2, "name": "Alder and B')
    with pytest.raises(ValueError, match="not complete"):
        form.read('Draft: {"fee": 1}\nFinal: {"fee": 2, "name":')
    assert form.read('It is {"fee": 1}, as {"the" contract} says.') == '{"fee": 1}'


def test_formats_are_checked() -> None:
    for kind, right, wrong in (
        ("date", "2024-02-29", "2023-02-29"),
        ("date-time", "2024-02-29T10:00:00Z", "tomorrow"),
        ("time", "10:00:00", "noon"),
        ("email", "a@b.org", "a b"),
        ("uuid", "0f8fad5b-d9cb-469f-a165-70867728950e", "x"),
    ):
        form = JsonForm(schema_text({"type": "string", "format": kind}))
        assert json.loads(form.read(json.dumps(right))) == right
        with pytest.raises(ValueError, match=f"is not a '{kind}'"):
            form.read(json.dumps(wrong))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text('aé"\\{[ \n'),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab/~", max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(value=st.dictionaries(st.text("ab", max_size=3), JSON, max_size=3), before=st.text("ab {[", max_size=5))
def test_an_object_is_read_as_it_was_written(value, before) -> None:
    form = JsonForm(schema_text({"type": "object"}))
    assert json.loads(form.read(json.dumps(value))) == value
    if before.strip() == before.strip("{["):
        assert json.loads(form.read(before + json.dumps(value, indent=1))) == value


# Readings


def between(text: str, tag: str) -> str:
    return text.partition(f"<{tag}>")[2].partition(f"</{tag}>")[0]


def script(answers):
    """Keeps the three facts; gives these answers in turn; quotes the facts that a section has."""
    left = iter(answers)

    def reply(turn) -> str:
        shown = between(turn.user, "section")
        if turn.kind == "verify":
            return "\n".join(fact for fact in FACTS if fact in shown) or "no support"
        if turn.kind == "answer":
            return next(left)
        held = between(turn.user, "memory") + shown
        return "\n".join(fact for fact in FACTS if fact in held) or "nothing of it"

    return reply


def model(*answers: str) -> OpenModel:
    return OpenModel(engine=ScriptedModel(script(answers)))


def test_every_field_has_a_quote_that_says_its_value() -> None:
    document = memagent.from_text(TEXT)
    reading = memagent.read(document, "the terms?", model=model(json.dumps(RIGHT)), schema=FEE, **OPTIONS)
    assert (reading.data, json.loads(reading.answer), reading.status) == (RIGHT, RIGHT, "supported")
    assert {one.field: one.cited_text for one in reading.quotes} == {
        "/customer": FACTS[1],
        "/fee": FACTS[2],
        "/begin": FACTS[0],
    }
    assert all(TEXT[one.start_char_index : one.end_char_index] == one.cited_text for one in reading.quotes)
    assert reading.question == "the terms?"
    again = asyncio.run(memagent.aread(document, "the terms?", model=model(json.dumps(RIGHT)), schema=FEE, **OPTIONS))
    assert again.to_json() | {"seconds": 0, "usage": 0, "verification": 0} == reading.to_json() | {
        "seconds": 0,
        "usage": 0,
        "verification": 0,
    }


def test_a_field_that_no_passage_states_is_named() -> None:
    wrong = {**RIGHT, "fee": 500}
    reading = memagent.read(memagent.from_text(TEXT), "the terms?", model=model(json.dumps(wrong)), schema=FEE, **OPTIONS)
    assert (reading.status, reading.unsupported) == ("partly", ("/fee: 500",))
    assert [one.field for one in reading.quotes] == ["/customer", "/begin"]


def test_without_a_verifier_the_values_are_looked_for_as_people_write_them() -> None:
    def silent(turn):
        return memagent.ModelUnavailableError("gone") if turn.kind == "verify" else script([json.dumps(RIGHT)])(turn)

    def read(engine, **options):
        opened = OpenModel(engine=engine)
        return memagent.read(memagent.from_text(TEXT), "the terms?", model=opened, schema=FEE, **OPTIONS, **options)

    failed = read(ScriptedModel(silent))
    reading = read(ScriptedModel(script([json.dumps(RIGHT)])), profile=replace(load_profile("default"), verify=""))
    assert (reading.status, reading.verification_error) == ("supported", None)
    assert (failed.status, failed.verification_error) == (None, "gone"), "it was to be verified by the model"
    for one in (failed, reading):
        assert {one.field: (one.cited_text, one.alignment) for one in one.quotes} == {
            "/customer": (FACTS[1], "search"),
            "/fee": ("The customer pays a monthly fee of EUR 12,500.00 within thirty days.", "search"),
            "/begin": (FACTS[0], "search"),
        }


def test_an_answer_that_does_not_follow_is_asked_for_once_more_with_what_is_wrong(tmp_path) -> None:
    asked = model('{"customer": "Alder GmbH"}', json.dumps(RIGHT))
    reading = memagent.read(memagent.from_text(TEXT), "the terms?", model=asked, schema=FEE, **OPTIONS)
    first, second = (turn for turn in asked.engine.turns if turn.kind == "answer")
    assert "'fee' is a required property" in second.user
    assert "not accepted" not in first.user
    assert (first.id, second.id) == ("answer", "answer~2")
    assert (reading.data, reading.outcomes["retry_invalid"]) == (RIGHT, 1)


def test_the_second_wrong_answer_fails_and_resuming_asks_again(tmp_path) -> None:
    path = tmp_path / "contract.txt"
    path.write_text(TEXT)
    with memagent.Journal.open(tmp_path / "journal.sqlite3") as journal:
        with pytest.raises(memagent.ModelReplyError, match=r"does not follow its schema.*'customer' is a required"):
            memagent.read(path, "the terms?", model=model("{}", "{}"), schema=FEE, journal=journal, **OPTIONS)
        [record] = journal.list()
        assert record.status == "failed"
        asked = model("{}", json.dumps(RIGHT))
        again = memagent.resume(record.id, model=asked, journal=journal)
        assert again.data == RIGHT
        assert [turn.id for turn in asked.engine.turns if turn.kind == "answer"] == ["answer~3", "answer~4"]
        assert memagent.resume(record.id, model=model(), journal=journal).data == RIGHT


def test_an_answer_that_was_cut_off_says_where(tmp_path) -> None:
    def cut(turn):
        return Completion(text='{"customer": "Al', finish="length") if turn.kind == "answer" else "nothing of it"

    asked = OpenModel(engine=ScriptedModel(cut))
    with pytest.raises(memagent.ModelReplyError, match="cut off at the 200 tokens that an answer may have"):
        memagent.read(memagent.from_text(TEXT), "the terms?", model=asked, schema=FEE, **OPTIONS)


def test_after_a_failure_the_mistake_is_said_again(tmp_path) -> None:
    (tmp_path / "contract.txt").write_text(TEXT)
    with memagent.Journal.open(tmp_path / "journal.sqlite3") as journal:
        with pytest.raises(memagent.ModelReplyError):
            memagent.read(
                tmp_path / "contract.txt", "terms?", model=model("{}", "{}"), schema=FEE, journal=journal, **OPTIONS
            )
        asked = model(json.dumps(RIGHT))
        memagent.resume(journal.list()[0].id, model=asked, journal=journal)
        [turn] = [turn for turn in asked.engine.turns if turn.kind == "answer"]
        assert "'customer' is a required property" in turn.user


def test_fields_beyond_the_checks_are_looked_for(tmp_path) -> None:
    """Forty facts in forty places: sixteen turns ask about them, the others are searched for."""
    facts = {f"key{number}": 1000 + number for number in range(40)}
    text = "\n".join(f"The value of {name} is {value}. {'The sea. ' * 30}" for name, value in facts.items())

    def reply(turn):
        shown = between(turn.user, "section")
        if turn.kind == "verify":
            return "\n".join(line.split(". ")[0] + "." for line in shown.splitlines() if line.startswith("The value"))
        if turn.kind == "answer":
            return json.dumps(facts)
        lines = (between(turn.user, "memory").strip() + "\n" + shown).splitlines()
        return "\n".join(line.split(". ")[0] for line in lines if line.startswith("The value"))

    options = {"question_tokens": 500, "chunk_tokens": 400, "memory_tokens": 2000, "answer_tokens": 2000}
    engine = ScriptedModel(reply)
    reading = memagent.read(
        memagent.from_text(text), "q?", model=OpenModel(engine=engine), schema={"type": "object"}, **options
    )
    assert (reading.status, len(reading.quotes), reading.verification.calls) == ("supported", 40, 16)
    assert {one.alignment for one in reading.quotes} == {"exact", "search"}
    assert all(str(facts[one.field[1:]]) in one.cited_text for one in reading.quotes)


def test_true_and_false_are_supported_by_the_turn_that_asked_about_them_alone() -> None:
    schema = {"type": "object"}
    said = json.dumps({"fee": 12500, "renews": True})
    reading = memagent.read(memagent.from_text(TEXT), "q?", model=model(said), schema=schema, **OPTIONS)
    assert [one.field for one in reading.quotes] == ["/fee", "/renews"] or reading.unsupported == ("/renews: true",)
    silent = OpenModel(engine=ScriptedModel(lambda turn: "no support" if turn.kind == "verify" else script([said])(turn)))
    reading = memagent.read(memagent.from_text(TEXT), "q?", model=silent, schema=schema, **OPTIONS)
    assert (reading.status, reading.unsupported) == ("unsupported", ("/fee: 12500", "/renews: true"))


def test_what_is_not_in_the_document_needs_no_form() -> None:
    for nothing in ("not in the document", '{"customer": null}', "{}"):
        schema = {"type": "object", "properties": {"customer": {"type": ["string", "null"]}}}
        reading = memagent.read(memagent.from_text(TEXT), "the terms?", model=model(nothing), schema=schema, **OPTIONS)
        assert (reading.status, reading.quotes, reading.unsupported) == ("not_found", (), ())
    assert reading.data == {}


def test_a_follow_up_can_have_a_schema_of_its_own(tmp_path) -> None:
    path = tmp_path / "contract.txt"
    path.write_text(TEXT)
    with memagent.Journal.open(tmp_path / "journal.sqlite3") as journal:
        first = memagent.read(path, "the terms?", model=model("12,500"), journal=journal, **OPTIONS)
        second = memagent.follow_up(first, "the terms?", model=model(json.dumps(RIGHT)), schema=FEE, journal=journal)
        assert (second.data, second.status) == (RIGHT, "supported")
        third = memagent.follow_up(second, "the fee?", model=model("12,500.00"), journal=journal)
        assert (third.data, third.answer) == (None, "12,500.00")


def test_options_that_a_schema_does_not_go_with_are_refused() -> None:
    document = memagent.from_text(TEXT)
    with pytest.raises(memagent.ConfigError, match=r"leave out --together \(`together` in Python\), or the schema"):
        memagent.read_many(document, ["a?", "b?"], model=model(), schema=FEE, together=True, **OPTIONS)
    with pytest.raises(memagent.ConfigError, match="'structured' is empty"):
        memagent.read(document, "a?", model=model(), schema=FEE, profile="compact", **OPTIONS)
    with pytest.raises(memagent.ConfigError, match=r"with its schema \(\d+\) and wording has \d+ tokens"):
        memagent.read(document, "a?", model=model(), schema=FEE, **{**OPTIONS, "question_tokens": 100})


# The command


def server_model(messages):
    prompt = messages[-1]["content"]
    shown = between(prompt, "section")
    if "Find out whether it supports" in prompt:
        return "\n".join(fact for fact in FACTS if fact in shown) or "no support"
    if shown:
        held = between(prompt, "memory") + shown
        return "\n".join(fact for fact in FACTS if fact in held) or "nothing of it"
    return json.dumps(RIGHT) if "JSON Schema" in prompt else "not in the document"


def test_ask_prints_fields_with_their_quotes(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("MEMAGENT_HOME", str(tmp_path / "home"))
    (tmp_path / "contract.txt").write_text(TEXT)
    (tmp_path / "fee.json").write_text(json.dumps(FEE))
    sizes = ["--question-tokens", "400", "--chunk-tokens", "150", "--memory-tokens", "60", "--answer-tokens", "60"]
    with FaultServer(server_model) as server:
        words = [
            "ask",
            str(tmp_path / "contract.txt"),
            "-q",
            "the terms?",
            "-m",
            "scripted",
            "--base-url",
            server.url,
            *sizes,
        ]
        form = ["--format", "json-schema", str(tmp_path / "fee.json")]
        shown = CliRunner().invoke(app, [*words, *form])
        assert shown.exit_code == 0, shown.stderr
        assert '  "fee": 12500,' in shown.stdout
        assert "/fee  “a monthly fee of EUR 12,500.00”" in " ".join(shown.stdout.split("\n"))
        values = json.loads(CliRunner().invoke(app, [*words, *form, "--json"]).stdout)
        assert values["data"] == RIGHT
        assert {one["field"] for one in values["quotes"]} == {"/customer", "/fee", "/begin"}
        again = CliRunner().invoke(
            app, ["ask", "--from", values["reading"], "-q", "terms?", *form, "--base-url", server.url]
        )
        assert '"customer": "Alder GmbH"' in again.stdout
        other = CliRunner().invoke(app, [*words, "--format", "yaml", "x"])
        assert (other.exit_code, "the only format is json-schema" in other.stderr) == (2, True)
        missing = CliRunner().invoke(app, [*words, "--format", "json-schema", "none.json"])
        assert (missing.exit_code, "cannot read the schema none.json" in " ".join(missing.stderr.split())) == (2, True)
        dry = CliRunner().invoke(app, [*words, *form, "--dry-run", "--json"])
        assert json.loads(dry.stdout)["verification"]["calls"] == 16
