"""Whose turn it is, what is refused, and what is given up: the line of long computations."""

import threading
import time

import pytest

from pages.shared import jobs as store_of_jobs
from pages.shared import line as lines
from pages.shared.jobs import Busy, Store
from pages.shared.line import Job, Line, Pace
from tests.pages.test_compute import wait_until


@pytest.fixture
def gate():
    """A gate that long computations wait at; opened at the end, so that no thread stays."""
    event = threading.Event()
    yield event
    event.set()


def behind(gate, seen=None, name=None):
    """Return a computation that waits at the gate and then notes its name."""

    def compute(on_step):
        while not gate.wait(0.01):
            on_step(0, 0, "Waiting")
        if seen is not None:
            seen.append(name)
        return name

    return compute


def jobs_of(*visitors):
    return [Job(key=n, compute=None, visitor=visitor, waiters=[visitor]) for n, visitor in enumerate(visitors)]


def order(line):
    taken = []
    while job := line.take():
        taken.append((job.visitor, job.key))
    return taken


def test_visitors_take_turns():
    line = Line()
    for job in jobs_of("a", "a", "a", "b", "c", "b"):
        line.add(job)
    assert order(line) == [("a", 0), ("b", 3), ("c", 4), ("a", 1), ("b", 5), ("a", 2)]


def test_who_comes_late_does_not_wait_for_all_that_another_asked_for_before():
    line, jobs = Line(), jobs_of("a", "a", "a", "b")
    for job in jobs[:3]:
        line.add(job)
    assert line.take() is jobs[0]
    line.add(jobs[3])
    assert order(line)[0] == ("b", 3)


def test_nor_does_having_been_served_put_anybody_back_for_ever():
    line = Line()
    for job in jobs_of(*"aaaaaaaa"):
        line.add(job)
    order(line)
    a, b = jobs_of("a", "b")
    line.add(a)
    line.add(b)
    assert line.take() is b
    assert line.take() is a
    assert len(line._last) <= 2  # visitors of long ago are forgotten


def test_what_somebody_waits_for_comes_before_what_nobody_does():
    line, (left, waited) = Line(), jobs_of("a", "b")
    left.waiters.clear()
    line.add(left)
    line.add(waited)
    assert line.ahead_of(left) == [waited]
    assert line.take() is waited


def test_fifty_who_ask_for_the_same_are_one_in_line(gate):
    store, seen = Store(workers=1, queue=2), []
    first = store.join("first", behind(gate, seen, "first"), visitor="x")
    wait_until(lambda: first.started)
    same = {id(store.join("same", behind(gate, seen, "same"), visitor=n)) for n in range(50)}
    assert len(same) == 1
    gate.set()
    assert store.join("same", None, visitor="last").done.wait(5)
    assert seen == ["first", "same"]


def test_place_and_wait_are_known(gate):
    store = Store(workers=1)
    for _ in range(3):
        store._pace.note("slow", 8.0)
    first = store.join("first", behind(gate), "slow", "a")
    wait_until(lambda: first.started)
    second, third = (store.join(name, behind(gate), "slow", name) for name in ("b", "c"))
    assert store.place(first) is None
    assert (store.place(second).ahead, store.place(third).ahead) == (0, 1)
    assert 6 < store.place(second).seconds <= 8
    assert 14 < store.place(third).seconds <= 16


def test_a_job_that_reports_progress_is_believed():
    job, pace = Job("key", None, "kind", started=time.monotonic() - 3), Pace()
    job.progress = (1, 4, "Step")
    assert pace.left(job) == pytest.approx(9, abs=0.5)


def test_a_full_line_is_refused_with_the_limit_and_when_to_come_again(gate):
    store = Store(workers=1, queue=2)
    jobs = [store.join("busy", behind(gate), visitor=0)]
    wait_until(lambda: jobs[0].started)
    jobs += [store.join(n, behind(gate), visitor=n) for n in (1, 2)]
    with pytest.raises(Busy, match=r"2 long computations wait in line.* in about [0-9]+ s"):
        store.join(3, behind(gate), visitor=3)
    assert store.join(2, behind(gate), visitor=3) is jobs[2]  # who asks for what is in line already needs no room
    gate.set()
    wait_until(lambda: all(job.done.is_set() for job in jobs))
    assert store.join(3, behind(gate), visitor=3).done.wait(5)


def test_one_visitor_waits_for_only_so_much(gate):
    store = Store(workers=1, per_visitor=2)
    for n in (1, 2):
        store.join(n, behind(gate), visitor="a")
    with pytest.raises(Busy, match="2 long computations of yours"):
        store.join(3, behind(gate), visitor="a")
    store.join(4, behind(gate), visitor="b")


def test_who_asks_for_something_else_gives_up_the_oldest_that_nobody_waits_for(gate):
    store = Store(workers=1, per_visitor=1, grace=60)
    running = store.join("one", behind(gate), visitor="a")
    wait_until(lambda: running.started)
    store.leave(running, "a")
    in_line = store.join("two", behind(gate), visitor="a")  # stops the first, long before its grace is over
    wait_until(running.done.is_set)
    wait_until(lambda: in_line.started)
    store.join("three", behind(gate), visitor="b")
    store.leave(in_line, "a")
    shared = store.join("two", behind(gate), visitor="c")
    assert shared is in_line
    store.join("four", behind(gate), visitor="a")
    time.sleep(0.1)
    assert not in_line.done.is_set()  # another visitor waits for it


def test_a_slider_that_moves_on_does_not_wait_out_the_grace_period(gate, monkeypatch):
    monkeypatch.setattr(lines, "MOVED_ON_SECONDS", 0.1)
    store = Store(workers=1, grace=60.0)
    left = store.join("factor 2", behind(gate), "loss", "a")
    wait_until(lambda: left.started is not None)
    store.leave(left, "a")
    other = store.join("other page", behind(gate), "spectra", "a")
    time.sleep(0.3)
    assert not left.done.is_set(), "another kind does not mean that this one is given up"
    moved = store.join("factor 4", behind(gate), "loss", "a")
    assert left.done.wait(5)
    assert store.join("factor 2", behind(gate), "loss", "a") is not left
    gate.set()
    assert moved.done.wait(5)
    assert other.done.wait(5)


def test_what_was_left_in_line_is_not_begun(gate):
    store, seen = Store(workers=1, grace=0.05), []
    busy = store.join("busy", behind(gate), visitor="a")
    left = store.join("left", behind(gate, seen, "left"), visitor="b")
    after = store.join("after", behind(gate, seen, "after"), visitor="c")
    store.leave(left, "b")
    time.sleep(0.1)
    gate.set()
    assert busy.done.wait(5)
    assert after.done.wait(5)
    assert seen == ["after"]


def test_what_is_known_to_be_quick_does_not_stand_in_line(gate):
    store = Store(workers=1)
    for n in range(2):
        store.join(n, behind(gate), visitor=n)
    store._pace.note("quick", 0.01)
    assert store.join("quick", lambda on_step: 1, "quick", "a").done.wait(5)


def test_what_was_quick_and_takes_long_now_does_not_draw_others_after_it(gate, monkeypatch):
    monkeypatch.setattr(store_of_jobs, "QUICK_SECONDS", 0.05)
    store = Store(workers=1)
    for _ in range(5):
        store._pace.note("sweep", 0.01)
    large = store.join("large", behind(gate), "sweep", "a")
    assert large.quick
    wait_until(lambda: large.started)
    time.sleep(0.1)
    then = [store.join(name, behind(gate), "sweep", "b") for name in ("one", "two")]
    assert not any(job.quick for job in then)
    gate.set()
    assert all(job.done.wait(5) for job in (large, *then))


def test_one_long_time_among_the_last_few_is_enough_to_stand_in_line():
    pace = Pace()
    pace.note("sweep", 30.0)
    for _ in range(2):
        pace.note("sweep", 0.01)
    assert not pace.is_quick("sweep")
    pace.note("sweep", 0.01)
    assert pace.is_quick("sweep")


def test_a_visitor_passes_the_line_with_only_so_much(gate):
    store = Store(workers=1, per_visitor=2)
    store._pace.note("quick", 0.01)
    asked = [store.join(n, behind(gate), "quick", "a") for n in range(3)]
    assert [job.quick for job in asked] == [True, True, False]
    assert store.join("other", behind(gate), "quick", "b").quick


def test_who_stops_ends_the_job_unless_another_waits(gate, monkeypatch):
    monkeypatch.setattr(lines, "MOVED_ON_SECONDS", 0.05)
    store = Store(workers=2, grace=60)
    alone, shared = (store.join(name, behind(gate), visitor="a") for name in ("alone", "shared"))
    store.join("shared", behind(gate), visitor="b")
    wait_until(lambda: alone.started and shared.started)
    for job in (alone, shared):
        store.leave(job, "a")
        store.stop(job)
    assert alone.done.wait(5)
    time.sleep(0.2)
    assert not shared.done.is_set()


def test_the_time_that_is_left_counts_down_between_two_steps():
    now = time.monotonic()
    job, pace = Job("key", None, "kind", started=now - 10, stepped=now - 4), Pace()
    job.progress = (3, 6, "Step")
    assert pace.left(job) == pytest.approx(6 - 4, abs=0.2)
