"""Small files in the official forms of evaluation suites, with invented content."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from memagent.models.tokenizers import ByteTokenizer
from memagent.tasks.haystack import Haystack
from memagent.tasks.suites.catalog import find_suite
from memagent.tasks.suites.importing import Import
from memagent.tasks.suites.suite import Hay

HAY = "The clock had stopped, and nobody said a word.\nRain came from the west.\nA boat lay in the harbour.\n" * 60


@dataclass(frozen=True)
class Invented:
    """A file: its name, its records, whether each has a line, and how many samples it gives."""

    suite: str
    name: str
    records: list[dict[str, Any]]
    samples: int
    lines: bool = True
    options: dict[str, Any] = field(default_factory=dict)

    def write(self, folder: Path, name: str = "", records: list[dict[str, Any]] | None = None) -> Path:
        path = folder / (name or self.name)
        path.parent.mkdir(parents=True, exist_ok=True)
        given = self.records if records is None else records
        text = "".join(json.dumps(one) + "\n" for one in given) if self.lines else json.dumps(given)
        path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
        return path

    def wanted(self, file: Path, **options: Any) -> Import:
        suite = find_suite(self.suite)
        return Import(suite=suite, file=file, hay=hay() if suite.needs_hay else None, **(self.options | options))


def hay(tokens: int = 600, depths: int = 3) -> Hay:
    texts = (("book", Haystack([HAY], lines=True)),)
    return Hay(texts=texts, tokenizer=ByteTokenizer(), tokens=tokens, depths=depths)


def oolong_synth(answer: str, kind: str, number: int = 1) -> dict[str, Any]:
    return {
        "id": 1000 + number, "context_len": 1024, "dataset": "greetings", "question": "In the data above, what …?\n",
        "context_window_text": "Date: Jan 5, 2023 || User: 7 || Instance: hello\n" * 3, "task_group": "counting",
        "context_window_text_with_labels": "…", "task": "TASK_TYPE.MOST_FREQ", "answer": answer,
        "answer_type": f"ANSWER_TYPE.{kind}", "input_subset": "False", "num_labels": 2, "context_window_id": 5,
    }  # fmt: skip


def oolong_real(answer: str, number: int = 1) -> dict[str, Any]:
    return {
        "id": f"real-{number}", "context_window_id": "w1", "context_window_text": "Ada: I roll a twenty.\nBea: Three.",
        "question": "How many rolls? Answer in \\boxed{}.", "answer": answer, "question_type": "rolls", "episodes": [1],
    }  # fmt: skip


def chats(id: str, kind: str, answer: Any) -> dict[str, Any]:
    sessions = [
        [{"role": "user", "content": "I moved to Port 4b.", "has_answer": True}, {"role": "assistant", "content": "Nice."}],
        [{"role": "user", "content": "My cat is grey."}],
    ]
    return {
        "question_id": id, "question_type": kind, "question": "Where do I live?", "answer": answer,
        "question_date": "2023/05/30 (Tue) 23:40", "haystack_session_ids": ["s1", "s2"], "answer_session_ids": ["s1"],
        "haystack_dates": ["2023/05/20 (Sat) 02:21", "2023/05/21 (Sun) 10:00"], "haystack_sessions": sessions,
    }  # fmt: skip


def longbench(letter: str, number: int = 1) -> dict[str, Any]:
    return {
        "_id": f"lb{number}", "domain": "Single-Document QA", "sub_domain": "Legal", "difficulty": "hard",
        "length": "short", "question": "Who may end it?", "choice_A": "The buyer", "choice_B": "The seller",
        "choice_C": "Both", "choice_D": "Nobody", "answer": letter, "context": "The buyer may end the contract.",
    }  # fmt: skip


def mrcr() -> dict[str, Any]:
    messages = [
        {"role": "user", "content": "write a poem about tides"},
        {"role": "assistant", "content": "The tide comes in."},
        {"role": "user", "content": "write a poem about tides"},
        {"role": "assistant", "content": "The tide goes out,\nand out."},
        {"role": "user", "content": "Prepend aB3xY9kQ2z to the 2nd (1 indexed) poem about tides."},
    ]
    return {
        "prompt": json.dumps(messages), "answer": "aB3xY9kQ2zThe tide goes out,\nand out.", "n_needles": 2,
        "random_string_to_prepend": "aB3xY9kQ2z", "desired_msg_index": 3, "total_messages": 5, "n_chars": 150,
        "date_added": "04-12-2025",
    }  # fmt: skip


def graphwalks(nodes: list[str], kind: str = "bfs") -> dict[str, Any]:
    prompt = (
        "You are given a graph.\nReturn nodes.\n\nHere is an example.\nThe graph has the following edges:\na1 -> b1\n"
        "Operation:\nFind the parents of node b1.\nFinal Answer: [a1]\n\nThe graph has the following edges:\nc3 -> d4\n"
        "c3 -> e5\n\nOperation:\nPerform a BFS from node c3 with depth 1.\n\nFinal Answer: [node, node]\n"
    )
    return {"prompt": prompt, "answer_nodes": nodes, "prompt_chars": len(prompt), "problem_type": kind, "date_added": "x"}


def infinite(answer: Any, question: str = "What is it?", options: list[str] | None = None) -> dict[str, Any]:
    return {"id": 0, "context": "A long book about 71432.", "input": question, "answer": answer, "options": options or []}


def locomo() -> dict[str, Any]:
    asked = [
        ("What did Ada buy?", "a kettle, two lamps", 1, ["D1:1", "D2:1"]),
        ("When did Bea leave?", "8 May 2023", 2, ["D1:2"]),
        ("Would Ada like tea?", "Likely yes; she has a kettle", 3, []), ("How many lamps?", 2, 4, ["D2:1; D9:9"]),
    ]  # fmt: skip
    qa = [dict(zip(("question", "answer", "category", "evidence"), one, strict=True)) for one in asked]
    qa.append({"question": "What did Bea buy?", "adversarial_answer": "a kettle", "category": 5, "evidence": ["D1:1"]})
    conversation = {
        "speaker_a": "Ada", "speaker_b": "Bea", "session_1_date_time": "1:56 pm on 8 May, 2023",
        "session_1": [{"speaker": "Ada", "dia_id": "D1:1", "text": "I bought a kettle.", "blip_caption": "a kettle"},
                      {"speaker": "Bea", "dia_id": "D1:2", "text": "I leave today."}],
        "session_2_date_time": "9:00 am on 9 May, 2023",
        "session_2": [{"speaker": "Ada", "dia_id": "D2:1", "text": "And two lamps."}],
        "session_10": [], "session_10_date_time": "",
    }  # fmt: skip
    return {"sample_id": "conv-1", "conversation": conversation, "qa": qa, "event_summary": {}, "observation": {}}


def nolima() -> dict[str, Any]:
    return {
        "id": "0401", "reasoning_type": "world_knowledge", "system_prompt": "",
        "character_set": ["Yuki", "Stuart", "Katie"],
        "needle": "Actually, {CHAR} lives next to the {1}.",
        "questions": {"onehop": "Which character has been to {2}?", "twohop": "Which character has been near {2}?"},
        "tests": {"T1": {"input_args": ["Semper Opera", "Dresden"]}, "T2": {"input_args": ["Kiasma", "Helsinki"]}},
        "distractors": {"onehop": "There was an article about {2}.", "twohop": "A letter came from {2}."},
    }  # fmt: skip


def pairs() -> dict[str, Any]:
    return {"ordered_kv_records": [[f"key-{n}", f'value "{n}"'] for n in range(5)], "key": "key-3", "value": 'value "3"'}


def meeting() -> dict[str, Any]:
    return {
        "topic_list": [{"topic": "Budget", "relevant_text_span": [["0", "1"]]}],
        "general_query_list": [{"query": "Summarize the whole meeting.", "answer": "They agreed on the budget."}],
        "specific_query_list": [
            {"query": "What about lamps?", "answer": "Lamps are too dear.", "relevant_text_span": [["1", "1"]]}
        ],
        "meeting_transcripts": [
            {"speaker": "Chair", "content": "The budget ."}, {"speaker": "Grad B", "content": "Lamps are dear . "},
        ],
    }  # fmt: skip


def babilong(question: str, target: str) -> dict[str, Any]:
    return {"input": "It rained. Mary went to the garden. It rained.", "question": question, "target": target}


def ruler(outputs: list[Any], index: int = 0) -> dict[str, Any]:
    text = "Some numbers are hidden in the text.\nThe number for amber is 4821973. Grass.\nWhat is the number for amber?"
    return {"index": index, "input": text, "outputs": outputs, "length": 4096, "answer_prefix": " The number is"}


INVENTED = [
    Invented("oolong", "oolong_synth.jsonl", [
        oolong_synth("['ham']", "LABEL", 1), oolong_synth("[12]", "NUMERIC", 2),
        oolong_synth("[datetime.date(2023, 1, 5)]", "DATE", 3), oolong_synth("['less common than']", "COMPARISON", 4),
    ], 4),
    Invented("oolong", "oolong_real.jsonl", [oolong_real("42"), oolong_real("Bolt, Shield", 2), oolong_real("Ada", 3)], 3),
    Invented("longmemeval", "longmemeval_oracle.json", [
        chats("q1", "single-session-user", "Port 4b"), chats("q2", "multi-session", 3),
        chats("q3", "single-session-preference", "The user would prefer hints about Port 4b."),
        chats("q4_abs", "single-session-user", "You did not mention a hamster."),
    ], 4, lines=False),
    Invented("longbench-v2", "data.json", [longbench(one, number) for number, one in enumerate("ABCD")], 4, lines=False),
    Invented("mrcr", "2needle.jsonl", [mrcr(), mrcr()], 2),
    Invented("graphwalks", "graphwalks.jsonl", [graphwalks(["d4", "e5"]), graphwalks([], "parents")], 2),
    Invented("infinitebench", "passkey.jsonl", [infinite(["71432"])], 1),
    Invented("infinitebench", "number_string.jsonl", [infinite(["0071432"])], 1),
    Invented("infinitebench", "kv_retrieval.jsonl.gz", [infinite("8bc3e90d-e044-4923-9a5d-7bf48917ed39")], 1),
    Invented("infinitebench", "longbook_choice_eng.jsonl", [infinite(["Bea"], options=["Ada", "Bea", "Cy", "Di"])], 1),
    Invented("infinitebench", "code_debug.jsonl", [infinite(["f.b", "B"], "", ["f.a", "f.b", "f.c", "f.d"])], 1),
    Invented("infinitebench", "longbook_qa_eng.jsonl", [infinite(["The old mill", "mill"])], 1),
    Invented("infinitebench", "longbook_qa_chn.jsonl", [infinite(["大回"], "谁？")], 1),
    Invented("infinitebench", "longbook_sum_eng.jsonl", [infinite("A boat goes home.\nIt rains.", "")], 1),
    Invented("infinitebench", "longdialogue_qa_eng.jsonl", [infinite(["OIL MAN", "MAN"], "")], 1),
    Invented("infinitebench", "math_find.jsonl", [infinite([-41]), infinite(12.5) | {"id": 1}], 2),
    Invented("infinitebench", "math_calc.jsonl", [infinite([3, -1, 11], "")], 1),
    Invented("infinitebench", "code_run.jsonl", [infinite([-7])], 1),
    Invented("babilong", "data/qa1/4k.json", [babilong("Where is Mary?", "garden")], 1, lines=False),
    Invented("babilong", "qa8-00000-of-00001.jsonl", [babilong("What is Mary carrying?", "apple,milk")], 1),
    Invented("babilong", "data/qa19/0k.json", [babilong("How do I go from garden to office?", "e,s")], 1, lines=False),
    Invented("locomo", "locomo10.json", [locomo()], 5, lines=False),
    Invented("nolima", "needle_set.json", [nolima()], 12, lines=False),
    Invented("ruler", "niah_single_1/validation.jsonl", [ruler(["4821973"]), ruler(["4821973"], 1)], 2),
    Invented("ruler", "vt/validation.jsonl", [ruler(["VAR1", "VAR2"])], 1),
    Invented("ruler", "qa_1.jsonl", [ruler(["Paris", "city of Paris"])], 1),
    Invented("kv-retrieval", "kv-retrieval-75_keys.jsonl.gz", [pairs()], 1),
    Invented("qmsum", "test.jsonl", [meeting(), meeting()], 4),
]  # fmt: skip
