"""Small question files in the published formats, with invented content, and materials to make samples from."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

from memagent.core.types import Tokenizer
from memagent.tasks.articles import article
from memagent.tasks.haystack import Haystack
from memagent.tasks.questions import QuestionSet
from memagent.tasks.task import Materials
from memagent.tasks.words import Words, split_of

NOUNS = tuple(word for word in ("anchor", "basket", "candle", "dolphin", "engine", "feather", "garden", "hammer", "island",
                                "jacket", "kettle", "lantern") if split_of(word) == "train")  # fmt: skip
HAYSTACK = Haystack(["The old clock on the wall had stopped again, and nobody said a word. It rained. " * 400])


def materials(tokenizer: Tokenizer, questions: QuestionSet | None = None) -> Materials:
    return Materials(tokenizer=tokenizer, haystack=HAYSTACK, words=Words(NOUNS, NOUNS), questions=questions)


def write(path: Path, value: Any, *, lines: bool = False) -> Path:
    """JSON, or a JSON object a line; gzipped if the name says so."""
    text = "".join(json.dumps(line) + "\n" for line in value) if lines else json.dumps(value)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def squad(articles: int = 4, paragraphs: int = 5) -> dict[str, Any]:
    """SQuAD 2.0: every passage has a question with two spellings of its answer, and one without an answer."""
    data = []
    for number in range(articles):
        passages = []
        for place in range(paragraphs):
            title, text = article(number * paragraphs + place, "train")
            keeper = f"Mr. Keeper{number}x{place}"
            asked = [
                {
                    "id": f"q{number}-{place}",
                    "question": f"Who keeps {title}?",
                    "answers": [{"text": keeper, "answer_start": 14}, {"text": keeper[4:], "answer_start": 18}],
                    "is_impossible": False,
                },
                {"id": f"u{number}-{place}", "question": f"Who lost {title}?", "answers": [], "is_impossible": True},
            ]
            passages.append({"context": f"The keeper is {keeper}. {text}", "qas": asked})
        data.append({"title": f"Article_{number}", "paragraphs": passages})
    return {"version": "v2.0", "data": data}


def hotpot(questions: int = 6, context: int = 10) -> list[dict[str, Any]]:
    """HotpotQA's official form: a bridge between two articles among others, and one comparison with the answer yes."""
    records = []
    for number in range(questions):
        others = [article(1000 + number * context + place, "train") for place in range(context - 2)]
        first, second = f"Society {number}", f"Founder{number} Lee"
        gold = [
            [first, [f"{first} is a society of readers.", f" It was founded by {second} in a cellar."]],
            [second, [f"{second} is a printer.", f" The printer's home is Port {number}b."]],
        ]
        records.append(
            {
                "_id": f"h{number}",
                "question": f"Where is the home of the founder of {first}?",
                "answer": f"Port {number}b",
                "type": "bridge",
                "level": "hard",
                "supporting_facts": [[first, 1], [second, 1]],
                "context": [gold[0], *([title, [text]] for title, text in others), gold[1]],
            }
        )
    records[-1] |= {"question": f"Are {first} and {second} both old?", "answer": "yes", "type": "comparison"}
    return records


def musique(**changes: Any) -> dict[str, Any]:
    """A record of MuSiQue's official form."""
    titles = ["Reef", "Captain Oda", "Isle of Um"]
    texts = [
        "The Reef is a ship led by Captain Oda.",
        "Captain Oda was born on the Isle of Um.",
        "It is in the sea of Pol.",
    ]
    return {
        "id": "2hop__1_2",
        "question": "Where was the captain of the Reef born?",
        "answer": "Isle of Um",
        "answer_aliases": ["Um Island"],
        "answerable": True,
        "question_decomposition": [
            {"id": 1, "question": "Reef >> captain", "answer": "Captain Oda", "paragraph_support_idx": 0},
            {"id": 2, "question": "#1 >> born", "answer": "Isle of Um", "paragraph_support_idx": 1},
        ],
        "paragraphs": [
            {"idx": place, "title": title, "paragraph_text": text, "is_supporting": place < 2}
            for place, (title, text) in enumerate(zip(titles, texts, strict=True))
        ],
    } | changes


def contract(name: str = "Acme supply.txt", **changes: Any) -> dict[str, Any]:
    """A line of CUAD's form."""
    text = (
        "SUPPLY AGREEMENT\n\nMade on the 5th of May, 2019 between Acme Bolts and Zeta “Nuts”.\n\n"
        "The law of Oregon\n   governs it. Either side may end it with 60 days' notice. "
        "Neither side may assign it. Nor may it be pledged, except to a bank."
    )
    labels = [
        {"category": "Document Name", "clauses": ["SUPPLY AGREEMENT"], "answer": "SUPPLY AGREEMENT"},
        {"category": "Parties", "clauses": ["Acme Bolts", 'Zeta "Nuts"'], "answer": 'Acme Bolts; Zeta "Nuts"'},
        {"category": "Agreement Date", "clauses": ["the 5th of May, 2019"], "answer": "5/5/19"},
        {"category": "Renewal Term", "clauses": [], "answer": ""},
        {"category": "Governing Law", "clauses": ["The law of Oregon governs it."], "answer": "Oregon"},
        {
            "category": "Anti-Assignment",
            "clauses": ["Neither side may assign it.<omitted>except to a bank.", "It may not be sold on a Sunday."],
            "answer": "Yes",
        },
        {"category": "Insurance", "clauses": [], "answer": "No"},
    ]
    return {"name": name, "text": text, "labels": labels} | changes


def filing() -> dict[str, Any]:
    """A line of FinanceBench's document file."""
    return {"doc_name": "BOLTS_2022", "pages": ["Bolts Inc.\nAnnual report", "Net sales\n $ 417\nmillion", "Staff: 22"]}


def filing_question(**changes: Any) -> dict[str, Any]:
    """A line of FinanceBench's question file."""
    return {
        "financebench_id": "fb_1",
        "company": "Bolts",
        "doc_name": "BOLTS_2022",
        "question_type": "metrics-generated",
        "question": "What were the net sales of Bolts in 2022?",
        "answer": "417",
        "justification": None,
        "evidence": [
            {"evidence_text": "Net sales $ 417 million", "doc_name": "BOLTS_2022", "evidence_page_num": 1},
            {"evidence_text": "It was a good year.", "doc_name": "BOLTS_2022", "evidence_page_num": 0},
        ],
    } | changes
