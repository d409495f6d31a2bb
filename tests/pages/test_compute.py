"""One computation per key, shared by all who wait, stopped when nobody does."""

import threading
import time
from dataclasses import dataclass

import numpy as np
import pytest

from engine.errors import Abandoned, InputError
from pages.shared.jobs import Store
from pages.shared.remembered import size_of


def wait_until(condition, seconds=5.0):
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    assert condition()


def test_two_who_ask_for_the_same_share_one_computation():
    store, gate, calls = Store(workers=2), threading.Event(), []

    def compute(on_step):
        calls.append(1)
        gate.wait(5)
        return np.arange(3)

    first, second = store.join("key", compute), store.join("key", compute)
    gate.set()
    assert first is second
    assert first.done.wait(5)
    assert store.join("key", compute).result is first.result
    assert len(calls) == 1


def test_another_key_is_another_computation():
    store = Store()
    jobs = [store.join(("f", n), lambda on_step, n=n: n) for n in range(20)]
    assert [job.done.wait(5) and job.result for job in jobs] == list(range(20))


def test_a_job_that_nobody_waits_for_is_told_to_stop():
    store, stopped = Store(grace=0.05), threading.Event()

    def compute(on_step):
        try:
            for step in range(10_000):
                on_step(step, 10_000, "Working")
                time.sleep(0.005)
        except Abandoned:
            stopped.set()
            raise

    job = store.join("key", compute)
    wait_until(lambda: job.progress[0] > 0)
    store.leave(job)
    assert stopped.wait(5)
    again = store.join("key", lambda on_step: "fresh")
    assert again.done.wait(5)
    assert again.result == "fresh"


def test_a_job_goes_on_while_anybody_waits_and_through_the_grace_period():
    store = Store(grace=0.3)
    gate = threading.Event()

    def compute(on_step):
        while not gate.is_set():
            on_step(1, 2, "Working")
            time.sleep(0.01)
        return "done"

    job = store.join("key", compute)
    store.join("key", compute)
    store.leave(job)
    time.sleep(0.5)  # one visitor still waits
    store.leave(job)
    time.sleep(0.1)  # nobody, but within the grace period
    assert store.join("key", compute) is job
    time.sleep(0.5)
    gate.set()
    assert job.done.wait(5)
    assert job.result == "done"


def test_an_error_reaches_everybody_and_is_tried_again():
    store = Store()

    def fail(on_step):
        raise InputError("no such thing")

    job = store.join("key", fail)
    assert job.done.wait(5)
    assert isinstance(job.error, InputError)
    again = store.join("key", lambda on_step: 1)
    assert again.done.wait(5)
    assert again.result == 1


def test_the_store_is_bounded_in_bytes():
    store = Store(capacity=100_000)
    for n in range(50):
        store.join(n, lambda on_step: np.zeros(1000)).done.wait(5)
    wait_until(lambda: not store._running)
    assert 0 < store._finished.currsize <= 100_000
    big = store.join("big", lambda on_step: np.zeros(1_000_000))
    assert big.done.wait(5)
    assert big.result.nbytes == 8_000_000
    wait_until(lambda: not store._running)
    assert "big" not in store._finished


def test_sizes_count_arrays_inside_results():
    @dataclass
    class Result:
        a: np.ndarray
        b: tuple
        c: dict

    assert size_of(Result(np.zeros(1000), (np.zeros(500),), {"c": np.zeros(500)})) >= 16_000


@pytest.mark.parametrize("seconds", [0.0, 0.05])
def test_a_job_knows_how_long_it_took(seconds):
    job = Store().join("key", lambda on_step: time.sleep(seconds))
    assert job.done.wait(5)
    assert seconds <= job.seconds < seconds + 2
