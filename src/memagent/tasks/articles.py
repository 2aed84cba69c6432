"""Synthetic encyclopedia articles about people, towns and works that do not exist. Any number of them."""

from __future__ import annotations

import random
from typing import Literal, TypeAlias

from memagent.tasks.names import Kind, Names
from memagent.tasks.samples import generator
from memagent.tasks.words import Split

Topic: TypeAlias = Literal["person", "town", "work", "company"]

# The first sentence of an article defines its title; others follow in this order, some left out.
_SENTENCES: dict[Topic, tuple[str, ...]] = {
    "person": (
        "{title} (born {day} {year}) is {trade} from {town}, {country}.",
        "{title}'s family moved to {town_2} when the child was {small} years old, and kept a shop there until {later}.",
        "After school in {town_2} came an apprenticeship with {person}, which lasted {small} years.",
        'The first success was "{work}", which appeared in {later} and was reprinted {small} times.',
        "From {later} on {title} taught at the school of arts in {town}, where {person} was a colleague.",
        "A prize of the city of {town_2} followed, together with a stipend of {large} crowns.",
        "Critics have called the early pieces careful and the late ones bold, though not everybody agrees.",
        "{title} has lived in {town_3} since {last} and rarely gives interviews.",
    ),
    "town": (
        "{title} is a market town in the {side} of {country}, on the river {river}.",
        "At the census of {last} it had {large} inhabitants, {small} per cent more than ten years before.",
        "The oldest document that mentions it is a deed of {old}, by which a mill passed to the family of {person}.",
        "For most of its history the people of {title} lived by {industry}, and the wharves are still in use.",
        "A fire destroyed the upper streets in {year}; they were rebuilt in stone to a plan of {person_2}.",
        "The railway from {town_2} arrived in {later} and brought visitors to the baths.",
        "The town hall keeps a collection of maps, and its clock strikes {small} minutes late by old custom.",
        "{title} is twinned with {town_3}.",
    ),
    "work": (
        "{title} is a {form} by {person}, first shown to the public in {town} in {year}.",
        "It tells of a {trade_word} who leaves {town_2} to look for a lost relative and comes home after {small} years.",
        "{person} began it in the spring of {year} and gave up twice before it was finished.",
        "The first run was of {large} copies, of which the publisher {company} bought back a third.",
        "A version for the stage by {person_2} opened in {later} and was played for {small} weeks.",
        "Reviewers praised the descriptions of the coast of {country} and found the ending too long.",
        "The manuscript belongs to the library of {town_3}.",
    ),
    "company": (
        "{title} is a company in {town}, {country}, known for {industry}.",
        "It was founded in {year} by {person} with {small} workers and a borrowed engine.",
        "By {later} it employed {large} people in {town} and {town_2}.",
        "A strike in {later} ended after {small} weeks, when {person_2} took over from the founder.",
        "The works at {town_3} were closed in {last}, and the buildings are now used as studios.",
        "The firm's ledgers are kept in the regional archive and may be read on request.",
    ),
}
_KINDS: dict[str, Kind] = {
    "person": "person", "person_2": "person", "town": "town", "town_2": "town", "town_3": "town", "country": "country",
    "company": "company", "work": "work", "river": "town",
}  # fmt: skip
_TRADES = ("a painter", "an engraver", "a composer", "an actor", "a chemist", "a botanist", "a surveyor", "a poet")
_INDUSTRIES = ("weaving", "the salt trade", "shipbuilding", "glass and pottery", "fishing", "printing", "the timber trade")
_FORMS = ("novel", "play", "cycle of poems", "comic opera", "travel book", "film", "suite for piano")
_MONTHS = ("January", "March", "April", "June", "August", "September", "November")


def article(number: int, split: Split) -> tuple[str, str]:
    """Title and text of synthetic article `number`: about 100 words. The same arguments always give the same article."""
    rng = generator(0, f"article/{split}", number)
    names = Names(rng, split)
    topic: Topic = rng.choice(("person", "town", "work", "company"))
    title = names.new(topic)
    first, *rest = _SENTENCES[topic]
    kept = sorted(rng.sample(range(len(rest)), rng.randint(len(rest) - 3, len(rest))))
    template = " ".join([first, *(rest[place] for place in kept)])
    needed = {key: names.new(kind) for key, kind in _KINDS.items() if f"{{{key}}}" in template}
    return title, template.format(title=title, **needed, **_details(rng))


def _details(rng: random.Random) -> dict[str, str | int]:
    year = rng.randint(1820, 1960)
    trade = rng.choice(_TRADES)
    return {
        "day": f"{rng.randint(1, 28)} {rng.choice(_MONTHS)}",
        "year": year,
        "old": rng.randint(1100, 1600),
        "later": year + rng.randint(20, 30),
        "last": year + rng.randint(31, 55),
        "small": rng.randint(2, 19),
        "large": rng.randint(200, 90_000),
        "trade": trade,
        "trade_word": trade.split(" ")[1],
        "side": rng.choice(("north", "south", "east", "west")),
        "industry": rng.choice(_INDUSTRIES),
        "form": rng.choice(_FORMS),
    }
