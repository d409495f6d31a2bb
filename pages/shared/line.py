"""The line of long computations: whose turn it is, and how long it will take.

Fair between visitors: their jobs take turns, so that one who asks for ten things does not hold up nine others. A job that
nobody waits for any more goes behind all that somebody waits for.
"""

import statistics
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

QUICK_SECONDS = 0.25
UNKNOWN_SECONDS = 5.0
REMEMBERED = 3
MOVED_ON_SECONDS = 2.0


@dataclass(eq=False)
class Job:
    """One computation waiting, under way or finished: its progress, what it has so far, its outcome, and the visitors who wait for it."""

    key: Hashable
    compute: Callable
    kind: Hashable = None
    visitor: Hashable = None
    done: threading.Event = field(default_factory=threading.Event)
    progress: tuple[int, int, str] = (0, 0, "Starting")
    waiters: list = field(default_factory=list)
    left_at: float = field(default_factory=time.monotonic)
    turn: int = 0
    started: float | None = None
    stepped: float | None = None
    quick: bool = False
    dropped: bool = False
    superseded: bool = False
    result: object = None
    partial: object = None
    error: BaseException | None = None
    seconds: float = 0.0

    def is_left(self, grace: float) -> bool:
        """Return whether nobody waits, and nobody has for the grace period: a short one if its visitor asked for another of its kind."""
        patience = min(grace, MOVED_ON_SECONDS) if self.superseded else grace
        return not self.waiters and (self.dropped or time.monotonic() - self.left_at > patience)


class Pace:
    """How long each kind of computation took the last few times."""

    def __init__(self):
        self._seconds: dict[Hashable, deque] = {}

    def note(self, kind: Hashable, seconds: float) -> None:
        """Remember one more time."""
        self._seconds.setdefault(kind, deque(maxlen=REMEMBERED)).append(seconds)

    def expected(self, kind: Hashable) -> float:
        """Return the median of the last few times; a guess for what has never run."""
        seen = self._seconds.get(kind)
        return statistics.median(seen) if seen else UNKNOWN_SECONDS

    def is_quick(self, kind: Hashable) -> bool:
        """Return whether this kind need not stand in line: none of the last few took long; what has never run must."""
        return max(self._seconds.get(kind, [UNKNOWN_SECONDS])) < QUICK_SECONDS

    def left(self, job: Job) -> float:
        """Return the seconds that a job still needs: by its progress if it reports one, else by what its kind took."""
        if job.started is None:
            return self.expected(job.kind)
        now, (done, total, _) = time.monotonic(), job.progress
        if 0 < done < total:
            at = job.stepped or now
            return max((at - job.started) * (total - done) / done - (now - at), 0.5)
        return max(self.expected(job.kind) - (now - job.started), 0.5)


class Line:
    """Jobs that wait for a free worker. Not safe by itself: its owner holds a lock."""

    def __init__(self):
        self._jobs: list[Job] = []
        self._turn = 0
        self._last: dict[Hashable, int] = {}

    def __len__(self) -> int:
        return len(self._jobs)

    def add(self, job: Job) -> None:
        """Put a job in line: behind its visitor's own, level with the others' next."""
        job.turn = max(self._turn, self._last.get(job.visitor, -1) + 1)
        self._last = {visitor: turn for visitor, turn in self._last.items() if turn >= self._turn} | {job.visitor: job.turn}
        self._jobs.append(job)

    def take(self) -> Job | None:
        """Return the job whose turn it is, out of the line; None if nobody is in it."""
        if not self._jobs:
            return None
        job = self._order()[0]
        self._jobs.remove(job)
        self._turn = max(self._turn, job.turn)
        return job

    def remove(self, leaves: Callable[[Job], bool]) -> list[Job]:
        """Take out and return every job for which ``leaves(job)``."""
        gone = [job for job in self._jobs if leaves(job)]
        self._jobs = [job for job in self._jobs if job not in gone]
        return gone

    def ahead_of(self, job: Job) -> list[Job] | None:
        """Return the jobs that come before this one; None if it is not in line."""
        order = self._order()
        return order[: order.index(job)] if job in order else None

    def _order(self) -> list[Job]:
        return sorted(self._jobs, key=lambda job: (not job.waiters, job.turn))
