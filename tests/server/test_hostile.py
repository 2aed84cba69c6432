"""Hostile requests of sixteen kinds to a real process; `benchmarks/hostile.py` sends more of them."""

from __future__ import annotations

import pytest

from tests.server.hostile import Attack
from tests.server.siege import Report, besiege, judge


def test_hostile_requests_break_nothing_and_learn_nothing(tmp_path) -> None:
    report = besiege(tmp_path, 120, seed=28)
    assert report.wrong == []
    assert sum(sum(counts.values()) for counts in report.statuses.values()) == 120
    assert len(report.statuses) == 16
    assert report.answered
    assert report.megabytes[-1] < report.megabytes[0] + 150


@pytest.mark.parametrize(
    ("attack", "answer", "wrong"),
    [
        (Attack(parts=(b"x",)), b"HTTP/1.1 400 Bad Request\r\n\r\nno", False),
        (Attack(parts=(b"x",)), b"HTTP/1.1 500 Internal Server Error\r\n\r\n", True),
        (Attack(parts=(b"x",)), b"HTTP/1.1 200 OK\r\n\r\n", True),
        (Attack(parts=(b"x",), fair=True), b"HTTP/1.1 200 OK\r\n\r\n", False),
        (Attack(parts=(b"x",), fair=True), b"HTTP/1.1 200 OK\r\n\r\nCanary-0 is", True),
        (Attack(parts=(b"canary-0",)), b"HTTP/1.1 404 Not Found\r\n\r\nno canary-0", False),
        (Attack(parts=(b"x",)), b"", True),
        (Attack(parts=(b"x",), silent=True), b"", False),
    ],
)
def test_what_would_be_wrong_is_seen(attack, answer, wrong) -> None:
    report = Report()
    judge(report, attack, answer, ["canary-0"])
    assert bool(report.wrong) == wrong
