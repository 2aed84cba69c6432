"""Whatever a file holds: either it becomes a valid sample file, or it is refused and nothing is left."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memagent.errors import TaskError
from memagent.tasks.files import SampleFile
from memagent.tasks.suites.writing import import_samples
from tests.tasks.suites.invented import INVENTED, Invented

QUICK = [one for one in INVENTED if one.suite != "nolima"]
TEXTS = st.text(max_size=12) | st.sampled_from(
    ["", " ", "A", "[]", "[1]", "the", "\ud800", "\x00", "Operation:", "-1", "a\n\nb", "1e999", "Final Answer: [a]"]
)
SCALARS = st.none() | st.booleans() | st.integers(-(10**15), 10**15) | st.floats() | TEXTS
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=2), max_leaves=6
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place within a JSON value."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, one in inner for place in places(one, (*path, key)))]


def replaced(value: Any, path: tuple[Any, ...], by: Any) -> Any:
    if not path:
        return by
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = replaced(copy[path[0]], path[1:], by)
    return copy


@settings(max_examples=250, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(invented=st.sampled_from(QUICK), data=st.data())
def test_a_changed_file_is_refused_or_valid(invented: Invented, data: st.DataObject, tmp_path: Path) -> None:
    record = json.loads(json.dumps(invented.records[0]))
    place = data.draw(st.sampled_from(places(record)))
    file = invented.write(tmp_path, records=[replaced(record, place, data.draw(VALUES))])
    output = tmp_path / "out" / "s.jsonl"
    refusal = None
    try:
        import_samples(invented.wanted(file), output)
    except TaskError as error:
        refusal = str(error)
    if refusal is not None:
        assert str(file) in refusal
        assert not output.parent.exists()
        return
    samples = SampleFile.open(output)
    assert len(samples) == len({sample.id for sample in samples}) > 0
    for path in output.parent.iterdir():
        path.unlink()
    output.parent.rmdir()
