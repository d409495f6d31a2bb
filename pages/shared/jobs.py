"""One computation per key, shared by all who ask; long ones stand in one line, quick ones do not.

A visitor who moves on stops waiting; a job that nobody has waited for during a grace period is told to stop, and within two
seconds if its visitor asked for another of its kind: a slider that moved on. Results go to one store bounded in bytes.
"""

import threading
import time
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from cachetools import LRUCache

from engine.device import give_way, use_all_threads
from engine.errors import Abandoned, LabError
from pages.shared.line import QUICK_SECONDS, Job, Line, Pace
from pages.shared.remembered import size_of

QUICK_WORKERS = 2


class Busy(LabError):
    """The line is full, or the visitor has too much in it."""


@dataclass(frozen=True)
class Place:
    """Where a job stands in line: how many are before it, and about how many seconds until it starts."""

    ahead: int
    seconds: float


class Store:
    """Results, bounded in bytes, and the jobs that make them: at most one job per key."""

    def __init__(self, capacity: int = 256 * 2**20, workers: int = 2, grace: float = 10.0, queue: int = 1000, per_visitor: int = 20):
        self.grace, self.workers, self.queue, self.per_visitor = grace, workers, queue, per_visitor
        self._lock = threading.Lock()
        self._finished: LRUCache[Hashable, Job] = LRUCache(capacity, getsizeof=lambda job: size_of(job.result))
        self._running: dict[Hashable, Job] = {}  # in line, or with a worker
        self._line, self._pace = Line(), Pace()
        self._quick = ThreadPoolExecutor(QUICK_WORKERS, thread_name_prefix="quick", initializer=use_all_threads)
        self._long = ThreadPoolExecutor(workers, thread_name_prefix="long", initializer=_background)

    def join(self, key: Hashable, compute: Callable, kind: Hashable = None, visitor: Hashable = None) -> Job:
        """Return the job of a key, started or put in line if there is none, with the caller counted as waiting.

        ``kind`` is what tells how long it will take; ``visitor``, whose turn it is. Raises Busy, in one sentence.
        """
        with self._lock:
            job = self._finished.get(key) or self._running.get(key)
            if job is None:
                job = Job(key, compute, kind, visitor)
                for before in self._running.values():
                    before.superseded |= visitor is not None and (before.kind, before.visitor) == (kind, visitor)
                job.quick = self._need_not_wait(job)
                if not job.quick:
                    self._make_room(visitor)
                    self._line.add(job)
                self._running[key] = job
                self._quick.submit(self._work, job) if job.quick else self._long.submit(self._work_on_the_next)
            job.waiters.append(visitor)
            job.dropped = job.superseded = False
            return job

    def finished(self, key: Hashable) -> Job | None:
        """Return the job of a key if its result is there."""
        with self._lock:
            return self._finished.get(key)

    def known(self, key: Hashable) -> Job | None:
        """Return the job of a key, finished or not, if there is one."""
        with self._lock:
            return self._finished.get(key) or self._running.get(key)

    def leave(self, job: Job, visitor: Hashable = None) -> None:
        """Count the caller as no longer waiting."""
        with self._lock:
            job.waiters.remove(visitor)
            job.left_at = time.monotonic()

    def stop(self, job: Job) -> None:
        """Let a job end soon, unless somebody else waits for it."""
        with self._lock:
            job.superseded |= not job.waiters

    def place(self, job: Job) -> Place | None:
        """Return where a job stands in line; None once a worker has it."""
        with self._lock:
            before = self._line.ahead_of(job)
            return None if before is None else Place(len(before), self._seconds_until_free(before))

    def _need_not_wait(self, job: Job) -> bool:
        """Return whether a job may pass the line: its kind is quick, none of it overruns just now, and its visitor has not many of them.

        What a computation takes depends on its parameters too, so a kind may be quick ten times and slow the next.
        """
        passing = [other for other in self._running.values() if other.quick]
        overruns = any(other.kind == job.kind and other.started and time.monotonic() - other.started > QUICK_SECONDS for other in passing)
        own = 0 if job.visitor is None else sum(other.visitor == job.visitor for other in passing)
        return self._pace.is_quick(job.kind) and not overruns and own < self.per_visitor

    def _make_room(self, visitor: Hashable) -> None:
        """Give up what was left behind; raise Busy if the visitor waits for too much, or the line is full."""
        self._forget(self._line.remove(lambda job: job.is_left(self.grace)))
        if visitor is not None:
            unfinished = [job for job in self._running.values() if not job.quick]
            if sum(visitor in job.waiters for job in unfinished) >= self.per_visitor:
                raise Busy(f"{self.per_visitor} long computations of yours are under way, which is the limit here; close a tab or wait for one.")
            own = [job for job in unfinished if job.visitor == visitor]
            left = sorted((job for job in own if not job.waiters), key=lambda job: job.left_at)
            for job in left[: max(len(own) + 1 - self.per_visitor, 0)]:
                job.dropped = True
            self._forget(self._line.remove(lambda job: job.is_left(self.grace)))
        if len(self._line) >= self.queue:
            free = self._seconds_until_free([])
            raise Busy(
                f"{len(self._line)} long computations wait in line, the most that this page lets wait; there is room in about {max(free, 1):.0f} s. "
                "Everything computed before, such as the presets, opens at once."
            )

    def _forget(self, jobs: list[Job]) -> None:
        for job in jobs:
            self._running.pop(job.key, None)

    def _seconds_until_free(self, before: list[Job]) -> float:
        """Return about how long until a worker is free for who comes after these: all that is to be done, spread over the workers."""
        with_workers = [job for job in self._running.values() if job.started is not None and not job.quick]
        busy = len(with_workers) >= self.workers
        return sum(map(self._pace.left, [*before, *(with_workers if busy else [])])) / self.workers

    def _work_on_the_next(self) -> None:
        with self._lock:
            self._forget(self._line.remove(lambda job: job.is_left(self.grace)))
            job = self._line.take()
            if job is not None:
                job.started = time.monotonic()
        if job is not None:
            self._work(job)

    def _work(self, job: Job) -> None:
        def on_step(done: int, total: int, message: str) -> None:
            job.progress, job.stepped = (done, total, message), time.monotonic()
            with self._lock:
                if job.is_left(self.grace):
                    self._forget([job])
                    raise Abandoned(message)

        on_step.keep = lambda so_far: setattr(job, "partial", so_far)
        job.started = time.monotonic()
        try:
            on_step(0, 0, "Starting")
            job.result = job.compute(on_step)
        except BaseException as error:  # the visitors' threads raise it again
            job.error = error
        job.seconds = time.monotonic() - job.started
        with self._lock:
            if self._running.get(job.key) is job:
                del self._running[job.key]
            if job.error is None:
                self._pace.note(job.kind, job.seconds)
                if size_of(job.result) <= self._finished.maxsize:
                    self._finished[job.key] = job
        job.compute = None
        job.done.set()


def _background() -> None:
    """Prepare a worker for long computations: all threads for its arithmetic, and the pages' own threads come first."""
    use_all_threads()
    give_way()
