"""Whose turn it is: jobs wait by key, and the keys take turns."""

from __future__ import annotations

from collections import OrderedDict, deque

from memagent.server.values import Job, Limits


class FairQueue:
    """Jobs in the order in which they came, for each key; a key with many jobs does not hold up the others."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._waiting: OrderedDict[str, deque[Job]] = OrderedDict()  # the key whose turn it is comes first
        self._running: dict[str, int] = {}

    def __len__(self) -> int:
        return sum(map(len, self._waiting.values()))

    @property
    def running(self) -> int:
        """Jobs that were taken and are not done."""
        return sum(self._running.values())

    def waiting(self, owner: str) -> int:
        """Jobs of a key that wait."""
        return len(self._waiting.get(owner, ()))

    def put(self, job: Job) -> None:
        self._waiting.setdefault(job.owner, deque()).append(job)

    def has_room(self, owner: str) -> bool:
        """Whether a job of this key would be taken at once."""
        limits = self._limits
        free = self.running < limits.readings and self._running.get(owner, 0) < limits.readings_per_key
        return free and not self.waiting(owner)

    def take(self) -> Job | None:
        """The next job; None if there is none, or as many are under way as may be."""
        if self.running >= self._limits.readings:
            return None
        for owner in self._waiting:
            if self._running.get(owner, 0) < self._limits.readings_per_key:
                job = self._waiting[owner].popleft()
                if self._waiting[owner]:
                    self._waiting.move_to_end(owner)
                else:
                    del self._waiting[owner]
                self._running[owner] = self._running.get(owner, 0) + 1
                return job
        return None

    def done(self, job: Job) -> None:
        """A job that was taken is over."""
        self._running[job.owner] -= 1
        if not self._running[job.owner]:
            del self._running[job.owner]

    def withdraw(self, id: str) -> bool:
        """Takes back a job that waits; False if none of that id does."""
        for owner, jobs in self._waiting.items():
            for job in jobs:
                if job.id == id:
                    jobs.remove(job)
                    if not jobs:
                        del self._waiting[owner]
                    return True
        return False
