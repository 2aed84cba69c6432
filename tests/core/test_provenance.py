"""Lines are traced to the turns that wrote them, through notes and merges."""

from __future__ import annotations

from dataclasses import replace

import memagent
from memagent.core import LineOrigin, Provenance, Span
from memagent.result import Ledger, sources


def span(start, end):
    return (Span(start=start, end=end),)


def origins(follower):
    return {one.line: (one.turn, one.spans) for one in follower.origins}


def test_a_merged_line_is_traced_to_the_notes_that_hold_its_words():
    follower = Provenance()
    follower.update(0, span(0, 10), "", kind="note", reply="- amber: 12")
    follower.update(1, span(10, 20), "", kind="note", reply="- cobalt: 34\n- amber: 56")
    follower.update(2, span(20, 30), "", kind="note", reply="- jade: 78")
    memory = "- amber: 12, 56\n- jade: 78\nsomething made up"
    follower.update(3, span(0, 30), memory, kind="merge", reply=memory)
    assert origins(follower) == {
        "- amber: 12, 56": (0, span(0, 20)),
        "- jade: 78": (2, span(20, 30)),
        "something made up": (3, span(0, 30)),
    }


def test_lines_are_traced_through_levels_of_merges_and_through_the_memory_of_an_earlier_round():
    follower = Provenance()
    follower.update(0, span(0, 10), "", kind="note", reply="amber is 12")
    follower.update(1, span(10, 20), "", kind="note", reply="cobalt is 34")
    follower.update(2, span(0, 20), "", kind="merge", reply="amber is 12; cobalt is 34")
    follower.update(3, span(0, 20), "amber 12", kind="merge", reply="amber 12")
    assert origins(follower) == {"amber 12": (0, span(0, 10))}
    follower.update(4, span(30, 40), "amber 12", kind="note", reply="jade is 78")
    follower.update(5, span(30, 40), "amber 12 and jade 78", kind="merge", reply="amber 12 and jade 78")
    assert origins(follower) == {"amber 12 and jade 78": (0, (Span(start=0, end=10), Span(start=30, end=40)))}


def test_a_single_note_that_becomes_the_memory_keeps_its_origin():
    follower = Provenance()
    follower.update(0, span(0, 10), "amber is 12", kind="note", reply="amber is 12")
    follower.update(1, span(10, 20), "amber is 12", kind="note", reply="")
    assert origins(follower) == {"amber is 12": (0, span(0, 10))}


def test_a_merged_line_is_traced_to_notes_that_the_merge_showed():
    follower = Provenance()
    follower.update(0, span(0, 10), "", kind="note", reply="amber is 12 today")
    follower.update(1, span(10, 20), "", kind="note", reply="cobalt is 34")
    follower.update(2, span(20, 30), "", kind="note", reply="amber is 12")
    follower.update(3, span(10, 30), "amber: 12", kind="merge", reply="amber: 12")
    assert origins(follower) == {"amber: 12": (2, span(20, 30))}


def test_a_reworded_line_keeps_where_it_came_from():
    follower = Provenance()
    follower.update(0, span(0, 10), "1. The access code of Juniper station is 48213.")
    follower.update(1, span(10, 20), "1. The guard is Bob.\n2. The access code of Juniper station is 48213.")
    assert origins(follower) == {
        "1. The guard is Bob.": (1, span(10, 20)),
        "2. The access code of Juniper station is 48213.": (0, span(0, 10)),
    }
    follower.update(2, span(20, 30), "- Juniper station, access code: 48213")
    assert origins(follower) == {"- Juniper station, access code: 48213": (2, (*span(0, 10), *span(20, 30)))}


def test_a_line_with_new_words_comes_from_its_turn_and_from_the_lines_that_it_replaced():
    follower = Provenance()
    follower.update(0, span(0, 10), "The code is 48213.")
    follower.update(1, span(10, 20), "The code is 48213. The guard is Bob.")
    assert origins(follower) == {"The code is 48213. The guard is Bob.": (1, (*span(0, 10), *span(10, 20)))}
    follower.update(2, span(20, 30), "The code is 48213. The guard is Bob. It rains.")
    assert [one.spans for one in follower.origins] == [(*span(0, 10), *span(10, 20), *span(20, 30))]


def test_a_line_that_changed_its_mind_comes_from_the_turn_that_did_as_well():
    for before, after in (
        ("- Rovers 3, United 2", "- Rovers 2, United 3"),
        ("The door was not locked.", "The door was locked."),
        ("- Suspects: Anna Berg, Carl Dorn", "- Suspects: Carl Dorn"),
    ):
        follower = Provenance()
        follower.update(0, span(0, 10), before)
        follower.update(1, span(10, 20), after)
        assert origins(follower)[after][0] == 1
        assert span(10, 20)[0] in origins(follower)[after][1]


def test_items_of_one_form_do_not_come_from_each_other():
    follower = Provenance()
    for turn in range(60):
        lines = [f"- City {100 + one} has a population of {7000 + one}" for one in range(turn, turn + 4)]
        follower.update(turn, span(10 * turn, 10 * turn + 10), "\n".join(lines))
    assert {len(one.spans) for one in follower.origins} == {1}


def test_a_new_line_does_not_come_from_one_that_stays_or_has_other_words():
    follower = Provenance()
    follower.update(0, span(0, 10), "- code of amber: 12\n- it rains in Oslo")
    follower.update(1, span(10, 20), "- code of amber: 12\n- code of amber hall: 12")
    assert origins(follower) == {"- code of amber: 12": (0, span(0, 10)), "- code of amber hall: 12": (1, span(10, 20))}


def test_the_place_of_a_line_is_that_with_the_most_of_its_words():
    document = memagent.from_text("The code is old: 11. " + "The code is new: 22. " + "It rains. ")
    line = LineOrigin(line="- code: 22", turn=1, spans=(*span(0, 21), *span(21, 42), *span(42, 52)))
    [found] = sources([line], document)
    assert (found.start, found.end) == (21, 42)
    assert sources([replace(line, spans=())], document)[0].start is None
    [newest] = sources([replace(line, line="- code:")], document)
    assert newest.start == 21, "of equal ones, it is the last"


def test_a_reply_that_was_not_taken_is_no_note():
    ledger = Ledger()
    ledger.add(0, "note", span(0, 10), "retry_long", "", {"text": "amber is 12"})
    ledger.add(1, "note", span(0, 10), "noted", "", {"text": "cobalt is 34"})
    ledger.add(2, "note", span(10, 20), "noted", "", {"text": "<think>jade is 78</think>amber is 12"})
    memory = "amber is 12\ncobalt is 34\njade is 78"
    ledger.add(3, "merge", span(0, 20), "kept", memory, {"text": memory})
    assert origins(ledger) == {
        "amber is 12": (2, span(10, 20)),
        "cobalt is 34": (1, span(0, 10)),
        "jade is 78": (3, span(0, 20)),
    }


def test_what_a_turn_without_text_wrote_in_words_of_its_own_comes_from_all_that_it_had():
    follower = Provenance()
    follower.update(0, span(0, 10), "amber is 12", kind="update", reply="amber is 12")
    follower.update(1, span(30, 40), "amber is 12", kind="note", reply="jade is 78")
    follower.update(2, (), "both are known", kind="merge", reply="both are known")
    assert origins(follower) == {"both are known": (2, (Span(start=0, end=10), Span(start=30, end=40)))}


def test_a_note_that_quotes_a_closing_tag_of_reasoning_is_traced_to_its_chunk():
    ledger, quoted = Ledger(), "the trace ends with </think> and the code is 231"
    chunks = [(Span(start=start, end=start + 100),) for start in (0, 100, 200)]
    for number, (spans, reply) in enumerate(zip(chunks, ("a: 1, not b 2", quoted, "it says b </think> b: 2"), strict=True)):
        ledger.add(number, "note", spans, "noted", "", {"text": reply})
    memory = f"a: 1, not b 2\n{quoted}\nb: 2"
    ledger.add(3, "merge", (Span(start=0, end=300),), "kept", memory, {"text": memory})
    assert [(one.line, one.turn, one.spans) for one in ledger.origins] == [
        ("a: 1, not b 2", 0, chunks[0]),
        (quoted, 1, chunks[1]),
        ("b: 2", 2, chunks[2]),
    ]
