"""The journal: every turn of a reading is on disk before the next one starts.

One SQLite file holds any number of readings. A reading is one document × one question; its turns are numbered from 0
without a gap, and each turn carries the protocol state after it, so a reading stopped anywhere goes on from its last turn.

Why it is built this way:

- **Durable.** Write-ahead log with `synchronous=FULL`: when `append` returns, the turn survives `kill -9`, and a power
  cut as far as the disk keeps its word about fsync. An append costs one fsync (0.3 to 4 ms measured, 0.04 ms of it ours),
  and a batch of readings in lockstep pays for one per step.
- **One writer per reading.** A reading belongs to one open `Journal`. Every append checks that in its own transaction, so
  a writer that lost its reading is refused rather than obeyed; finding out whether an owner still lives is only needed to
  decide who may take over, never to keep the data right.
- **Nothing twice, nothing secret.** Prompts are not stored (the plan rebuilds them). Text equal to the memory is stored
  once: a turn takes 0.4 kB and its memory. Settings with a key or a password in them are refused before anything is
  written.
- **Nothing cut twice.** The chunks of a document are kept with its reading, because cutting a long one takes minutes.
- **Any text.** NUL and lone surrogates come back as they went in.

Several processes may share one file on one machine. SQLite's write-ahead log needs shared memory, so machines cannot
share it through a network file system at the same time; one after the other works.
"""

from memagent.journal.store import Journal, check_text, default_path
from memagent.journal.values import JSON, Cut, ReadingRecord, Status, TurnEntry

__all__ = ["JSON", "Cut", "Journal", "ReadingRecord", "Status", "TurnEntry", "check_text", "default_path"]
