"""Made-up values that are not names: dates, amounts, telephone numbers and the like, in the forms that texts have."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from datetime import date, timedelta
from typing import Literal, TypeAlias, get_args

from memagent.tasks.keys import coined
from memagent.tasks.words import Split, split_of

Sort: TypeAlias = Literal["date", "year", "time", "duration", "amount", "count", "telephone", "email", "room", "trade"]
SORTS: tuple[str, ...] = get_args(Sort)

_MONTHS = "January February March April May June July August September October November December".split()
_NUMBERS = "two three four five six seven eight nine ten twelve fifteen twenty thirty forty-five sixty ninety".split()
_CURRENCIES = "euros dollars pounds francs crowns yen".split()
_TRADES = (
    "actor archer architect astronomer baker barber beekeeper blacksmith bookbinder botanist brewer bricklayer broker "
    "butcher carpenter cartographer chemist clerk clockmaker coachman cobbler composer cook cooper dancer dentist "
    "diver doctor draper dyer editor electrician engineer engraver farmer farrier ferryman fiddler fisherman florist "
    "forester gardener geologist glazier glover goldsmith grocer gunsmith harpist hatter hunter innkeeper interpreter "
    "ironmonger jeweller joiner journalist judge lawyer librarian locksmith mason mathematician mechanic merchant "
    "midwife miller miner musician navigator notary nurse optician painter pharmacist photographer pilot plasterer "
    "plumber poet porter potter printer publisher roofer saddler sailor sculptor seamstress shepherd singer smith "
    "soldier stonecutter surgeon surveyor tailor tanner teacher thatcher tinker translator turner upholsterer vet "
    "watchmaker weaver wheelwright woodcarver"
).split()  # fmt: skip


def make(rng: random.Random, sort: Sort, split: Split) -> str:
    """A value of a sort. A trade belongs to one side of the split of words."""
    if sort == "trade":
        trade = rng.choice([one for one in _TRADES if split_of(one) == split])
        return f"{'an' if trade[0] in 'aeiou' else 'a'} {trade}"
    return _MAKERS[sort](rng)


def _date(rng: random.Random) -> str:
    day = date(1650, 1, 1) + timedelta(days=rng.randrange(140_000))
    month = _MONTHS[day.month - 1]
    return rng.choice((f"{day.day} {month} {day.year}", f"{month} {day.day}, {day.year}", day.isoformat()))


def _year(rng: random.Random) -> str:
    return str(rng.randint(1450, 2030))


def _time(rng: random.Random) -> str:
    hour, minute = rng.randrange(24), rng.randrange(60)
    if rng.random() < 0.5:
        return f"{hour}:{minute:02}"
    return f"{hour % 12 or 12}:{minute:02} {'pm' if hour >= 12 else 'am'}"


def _duration(rng: random.Random) -> str:
    number = rng.choice(_NUMBERS) if rng.random() < 0.5 else str(rng.randint(2, 120))
    return f"{number} {rng.choice(('days', 'weeks', 'months', 'years', 'working days'))}"


def _amount(rng: random.Random) -> str:
    number = rng.randrange(10 ** rng.randint(1, 6))
    written = f"{number + 2:,}" if rng.random() < 0.8 else f"{number + 2:,}.{rng.randrange(100):02}"
    return f"{rng.choice('$€£')}{written}" if rng.random() < 0.4 else f"{written} {rng.choice(_CURRENCIES)}"


def _count(rng: random.Random) -> str:
    number = rng.randrange(12, 10 ** rng.randint(2, 6))
    return f"{number:,}" if rng.random() < 0.7 else str(number)


def _telephone(rng: random.Random) -> str:
    digits = "".join(rng.choices("0123456789", k=8))
    return rng.choice(
        (
            f"+{rng.randint(1, 99)} {digits[:2]} {digits[2:]}",
            f"0{digits[:3]}-{digits[3:]}",
            f"({digits[:3]}) 555-0{digits[3:6]}",
            f"0{digits[:2]} {digits[2:5]} {digits[5:]}",
        )
    )


def _email(rng: random.Random) -> str:
    name = coined(rng) + rng.choice((".", "_", "", "-")) + coined(rng, 3, 6)
    return f"{name}@{coined(rng)}.{rng.choice(('com', 'org', 'net', 'example'))}"


def _room(rng: random.Random) -> str:
    number = rng.randrange(100, 1000)
    return rng.choice((str(number), f"{rng.choice('ABCDEFGH')}-{number}", f"{rng.randint(0, 9)}.{number % 100:02}"))


_MAKERS: Mapping[Sort, Callable[[random.Random], str]] = {
    "date": _date,
    "year": _year,
    "time": _time,
    "duration": _duration,
    "amount": _amount,
    "count": _count,
    "telephone": _telephone,
    "email": _email,
    "room": _room,
}
