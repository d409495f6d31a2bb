"""Who computes: not the visitor's script thread.

``run`` hands an engine function to a worker; whoever asks for the same key waits on the same job and draws its
progress; a visitor who moves on stops waiting; a job that nobody has waited for during a grace period is told to stop.
Results go to one store bounded in bytes. The key holds everything that can influence a result.
"""

import sys
import threading
import time
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, fields, is_dataclass

import numpy as np
import streamlit as st
from cachetools import LRUCache

from engine.device import compute_device, use_all_threads
from engine.errors import Abandoned
from engine.models.catalog import identity
from engine.params import restrict

STORE_BYTES = 256 * 2**20
GRACE_SECONDS = 10.0
QUIET_SECONDS = 0.3
POLL_SECONDS = 0.1
WORKERS = 2


def size_of(result) -> int:
    """Return roughly how many bytes a result keeps alive."""
    if isinstance(result, np.ndarray):
        return result.nbytes
    if is_dataclass(result):
        return 200 + sum(size_of(getattr(result, f.name)) for f in fields(result))
    if isinstance(result, (tuple, list)):
        return 60 + sum(size_of(item) for item in result)
    return sys.getsizeof(result)


@dataclass
class Job:
    """One computation under way, or finished: its progress, its outcome, and how many visitors wait for it."""

    done: threading.Event = field(default_factory=threading.Event)
    progress: tuple[int, int, str] = (0, 0, "Waiting for a free worker")
    waiting: int = 0
    left_at: float = field(default_factory=time.monotonic)
    result: object = None
    error: BaseException | None = None
    seconds: float = 0.0


class Store:
    """Results, bounded in bytes, and the jobs that make them: at most one job per key."""

    def __init__(self, capacity: int = STORE_BYTES, workers: int = WORKERS, grace: float = GRACE_SECONDS):
        self.grace = grace
        self._lock = threading.Lock()
        self._finished: LRUCache[Hashable, Job] = LRUCache(capacity, getsizeof=lambda job: size_of(job.result))
        self._running: dict[Hashable, Job] = {}
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="lab", initializer=use_all_threads)

    def join(self, key: Hashable, compute: Callable) -> Job:
        """Return the job of a key, started if there is none, with the caller counted as waiting."""
        with self._lock:
            job = self._finished.get(key) or self._running.get(key)
            if job is None:
                job = self._running[key] = Job()
                self._pool.submit(self._work, key, job, compute)
            job.waiting += 1
            return job

    def has(self, key: Hashable) -> bool:
        """Return whether the result of a key is there."""
        with self._lock:
            return key in self._finished

    def leave(self, job: Job) -> None:
        """Count the caller as no longer waiting."""
        with self._lock:
            job.waiting -= 1
            job.left_at = time.monotonic()

    def _work(self, key: Hashable, job: Job, compute: Callable) -> None:
        def on_step(done: int, total: int, message: str) -> None:
            job.progress = (done, total, message)
            with self._lock:
                if job.waiting == 0 and time.monotonic() - job.left_at > self.grace:
                    self._running.pop(key, None)
                    raise Abandoned(message)

        started = time.perf_counter()
        try:
            on_step(0, 0, "Starting")
            job.result = compute(on_step)
        except BaseException as error:  # the visitors' threads raise it again
            job.error = error
        job.seconds = time.perf_counter() - started
        with self._lock:
            self._running.pop(key, None)
            if job.error is None and size_of(job.result) <= self._finished.maxsize:
                self._finished[key] = job
        job.done.set()


@st.cache_resource(show_spinner=False)
def store() -> Store:
    """Return the one store of this process."""
    return Store()


def run(function: Callable, params):
    """Return ``function(params)``, from the store or from a worker, drawing progress after a moment.

    ``params`` is restricted to the fields that the function uses; with the function's name, the device and the
    identity of the model's files it is the key. Engine errors come out as they are.
    """
    params = restrict(function, params)
    job = store().join(_key(function, params), lambda on_step: function(params, on_step))
    try:
        _wait(job)
    finally:
        store().leave(job)
    if job.error is not None:
        raise job.error
    st.session_state["_seconds"] = job.seconds
    return job.result


def is_stored(function: Callable, params) -> bool:
    """Return whether ``run`` would answer at once."""
    return store().has(_key(function, restrict(function, params)))


def _key(function: Callable, params) -> Hashable:
    name = f"{function.__module__}.{function.__qualname__}"
    return name, params, compute_device().name, identity(params.model) if hasattr(params, "model") else None


def _wait(job: Job) -> None:
    """Wait for a job; after a moment show how far it is. Drawing is also where Streamlit ends a script that has moved on."""
    if job.done.wait(QUIET_SECONDS):
        return
    place = st.empty()
    while not job.done.wait(POLL_SECONDS):
        done, total, message = job.progress
        place.progress(done / total if total else 0.0, f"{message}: {done} of {total}" if total else f"{message} …")
    place.empty()
