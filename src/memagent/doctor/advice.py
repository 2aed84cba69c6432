"""What follows from a diagnosis: what to pass to memagent or to the server, and what it would gain."""

from __future__ import annotations

from dataclasses import dataclass

from memagent.doctor.values import Diagnosis

# Flags that switch on speculation from the prompt, which changes no greedy reply.
SPECULATION = {
    "vllm": """--speculative-config '{"method": "ngram", "num_speculative_tokens": 8, "prompt_lookup_max": 4}'""",
    "llamacpp": "--spec-type ngram-simple --spec-ngram-simple-size-n 4 --spec-ngram-simple-size-m 16",
    "sglang": "--speculative-algorithm NGRAM --speculative-num-draft-tokens 8",
}
_DRAFT = 8  # tokens of a draft, for the estimate
_WORTH = 1.1  # what an advice must promise
_POOR = 0.3  # share of accepted drafts below which speculation costs more than it gains where a server is busy


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """What to do, and why. `gain` is how many times as fast reading may become; None where it is not about speed."""

    do: str
    why: str
    gain: float | None = None


def advise(found: Diagnosis) -> list[Advice]:
    """Advice, the safety of answers first, then the greatest gain."""
    speed = [one for one in (*_speculation(found), *_concurrency(found)) if (one.gain or 0) >= _WORTH]
    return [
        *_window(found),
        *_counting(found),
        *_sampling(found),
        *sorted(speed, key=lambda one: -(one.gain or 0)),
        *_poor(found),
    ]


def _window(found: Diagnosis) -> list[Advice]:
    if found.window is None:
        return [Advice(do="pass --window N", why="the server does not report its window, so prompts may not fit it")]
    if found.kind == "ollama" and found.window <= 4096:
        return [Advice(do="raise num_ctx in the Modelfile", why=f"the server gives a request {found.window:,} tokens")]
    if found.too_long == "cut":
        return [
            Advice(
                do="pass --window N with the window that the server really has, if it is another one",
                why="it cuts prompts that are too long without a word; memagent ends a reading where it sees that",
            )
        ]
    return []


def _counting(found: Diagnosis) -> list[Advice]:
    if found.exact:
        return []
    waste = f", {found.counted / found.reported - 1:+.0%} against the server's" if found.reported else ""
    return [Advice(do="pass --tokenizer FOLDER", why=f"tokens are estimated{waste}, so chunks do not fill the window")]


def _sampling(found: Diagnosis) -> list[Advice]:
    if found.repeats is not False:
        return []
    return [Advice(do="keep --temperature 0", why="the server does not repeat a sampled reply with the same seed")]


def _speculation(found: Diagnosis) -> list[Advice]:
    """Flags for a server that does not speculate: the tokens of the old memory then come several at a time."""
    share, kept = found.decoding, found.reading.kept
    if found.reading.drafted or not share or not kept or found.kind not in SPECULATION:
        return []
    unless = "" if found.reading.drafted == 0 else ", unless it does so already (it shows no /metrics)"
    gain = 1 / (1 - share + share * (1 - kept + kept / _DRAFT))
    why = f"{share:.0%} of a turn is decoding, and {kept:.0%} of the words of a new memory are those of the old one"
    return [Advice(do=f"start the server with {SPECULATION[found.kind]}{unless}", why=why, gain=gain)]


def _concurrency(found: Diagnosis) -> list[Advice]:
    best = found.best
    alone = found.levels[0].turns_per_second
    why = f"{best.concurrency} turns at once: {best.turns_per_second:.2f} turns a second; one alone: {alone:.2f}"
    made = [
        Advice(
            do=f"for several questions or documents, pass --concurrency {best.concurrency}",
            why=why,
            gain=best.turns_per_second / found.levels[0].turns_per_second,
        )
    ]
    if found.slots is not None and found.slots < found.levels[-1].concurrency and best.concurrency >= found.slots:
        made[0] = Advice(
            do=f"{made[0].do}; more needs more slots of the server (--parallel, now {found.slots})",
            why=why,
            gain=made[0].gain,
        )
    return made


def _poor(found: Diagnosis) -> list[Advice]:
    drafted, accepted = found.reading.drafted, found.reading.accepted
    if not drafted or accepted is None or accepted / drafted >= _POOR:
        return []
    why = f"the server guessed {drafted:,} tokens and {accepted:,} were right: under load, wrong guesses cost time"
    return [Advice(do="let the server guess fewer tokens at a time", why=why)]
