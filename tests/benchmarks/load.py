"""A room full of visitors on one process, beside a bare Streamlit page under the same settings.

    python -m tests.benchmarks load                                     # short
    python -m tests.benchmarks.load --visitors 100 --seconds 1200       # for figures worth keeping

Visitors speak Streamlit's websocket protocol, connect to this machine only, and share it with the server: what they cost
counts against it. Times are from a move to the end of the script's run, as the visitor sees it.
"""

import argparse
import asyncio
import gc
import os
import signal
import statistics
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import uvloop

from tests.benchmarks._visitor import STEPS, Visitor, everybody, moving, troubles
from tests.browser.conftest import serve
from tests.conftest import ROOT

BARE = Path(__file__).parent / "bare" / "slider.py"
SLIDERS = {
    "projections": ("tab=Subspace", "Slant"),
    "ffn": ("", "Width"),
    "rope": ("reach=1", "Factor"),
    "norms": ("", "Batch"),
    "lora": ("", "Its rank k"),
    "spectra": ("", "Layer"),
}
"""Lab -> its link and the slider that is moved. Every value is computed once before the room comes in."""
LONG = ("rope?reach=8", "rope?reach=7", "rope?scheme=ntk&reach=6", "ffn?width=45&seed=3", "ffn?width=60&seed=4")
SPREAD = 10.0
WINDOW, SPARED = 5.0, 0.05
LONGEST = 120.0


def lines() -> Iterator[str]:
    """Yield the lines of this benchmark, in its short form."""
    yield from measured(visitors=30, seconds=15.0, visits=100)


def run(room):
    """Run a room to its end; the visitors are not to hold each other up, so they get the faster loop and no garbage collection."""
    gc.disable()
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(room)
    finally:
        gc.enable()


def measured(visitors: int, seconds: float, visits: int, labs: tuple[str, ...] = tuple(SLIDERS)) -> Iterator[str]:
    """Yield what a room of some visitors meets on every lab in turn, on all at once with long jobs, and what it leaves behind."""
    with bare() as (port, pid):
        yield run(room("bare page", [Visitor(port, "") for _ in range(visitors)], seconds, pid))
    with hosted() as (port, pid):
        for lab in labs:
            query, slider = SLIDERS[lab]
            run(walk(Visitor(port, lab, query, slider)))
            yield run(room(lab, [Visitor(port, lab, query, slider) for _ in range(visitors)], seconds, pid))
        yield from mixed(port, pid, labs, visitors, seconds)
        yield run(coming_and_going(port, pid, labs, visits))


def mixed(port: int, pid: int, labs: tuple[str, ...], visitors: int, seconds: float) -> Iterator[str]:
    """Yield the lines of a room spread over all labs while five long jobs run."""
    spread = [Visitor(port, lab, *SLIDERS[lab]) for i in range(visitors) for lab in [labs[i % len(labs)]]]
    busy = [Visitor(port, *link.split("?")) for link in LONG]

    async def both():
        waiting = [asyncio.create_task(one.arrive()) for one in busy]
        line = await room("all labs and five long jobs", spread, seconds, pid)
        await asyncio.wait(waiting, timeout=LONGEST)
        late = [task for task in waiting if not task.done()]
        for task in late:
            task.cancel()
        found = await asyncio.gather(*waiting, return_exceptions=True)
        return line, [f for f in found if not isinstance(f, asyncio.CancelledError)], len(late)

    line, took, late = run(both())
    lost = [repr(t) for t in took if not isinstance(t, float)] + list(troubles(busy))
    yield line
    yield f"  long jobs: {', '.join(f'{t:.0f} s' for t in took if isinstance(t, float))}; {late} still under way; lost {len(lost)} {lost[:3]}"


async def walk(visitor: Visitor) -> None:
    """Go once through every value that the room will ask for."""
    await visitor.arrive()
    for _ in range(STEPS + 1):
        await visitor.move()
    await visitor.leave()


async def room(name: str, visitors: list[Visitor], seconds: float, pid: int) -> str:
    """Let all come in within ten seconds and move their sliders; return the line that says how that went."""
    opened, lost = await everybody(visitors, SPREAD)
    there = [v for v in visitors if v.sliders]
    before, started, machine = processor_seconds(pid), time.perf_counter(), machine_ticks()
    watching = asyncio.create_task(watch(windows := []))
    times, more = await moving(there, seconds)
    watching.cancel()
    share = (processor_seconds(pid) - before) / (time.perf_counter() - started)
    taken, all_of_it = (now - then for now, then in zip(machine_ticks(), machine, strict=True))
    size = sum(v.bytes for v in visitors) / max(sum(v.moves + 1 for v in there), 1)
    wrong = [*lost, *more, *troubles(visitors)]
    for visitor in visitors:
        await visitor.leave()
    spared = [(since, until) for since, until, stolen in windows if stolen < SPARED]
    undisturbed = [took for v in there for when, took in v.answered if any(since <= when < until for since, until in spared)]
    return (
        f"{name}: {len(visitors)} visitors, {len(times)} moves, {summary(times)}; opening {summary(opened)}; {share:.2f} processors, "
        f"{size / 1000:.0f} kB an answer, {resident(pid):.0f} MiB; errors {len(wrong)} {wrong[:3]}; "
        f"load of the machine {os.getloadavg()[0]:.1f}, {taken / max(all_of_it, 1):.0%} of it taken by its host; "
        f"in {len(spared)} of {len(windows)} windows of {WINDOW:.0f} s less than {SPARED:.0%}: there {summary(undisturbed)}"
    )


async def watch(windows: list[tuple[float, float, float]]) -> None:
    """Note window after window what share of the machine its host takes: begin, end, share."""
    since, (taken, ticks) = time.perf_counter(), machine_ticks()
    while True:
        await asyncio.sleep(WINDOW)
        until, (taken_now, ticks_now) = time.perf_counter(), machine_ticks()
        windows.append((since, until, (taken_now - taken) / max(ticks_now - ticks, 1)))
        since, taken, ticks = until, taken_now, ticks_now


async def coming_and_going(port: int, pid: int, labs: tuple[str, ...], visits: int) -> str:
    """Return the line on memory before and after visitors have come and gone, ten at a time."""
    before, lost = resident(pid), []
    for start in range(0, visits, 10):
        some = [Visitor(port, labs[i % len(labs)], SLIDERS[labs[i % len(labs)]][0]) for i in range(start, min(start + 10, visits))]
        lost += (await everybody(some, 0.5))[1]
        for visitor in some:
            await visitor.leave()
    highest = resident(pid)
    await asyncio.sleep(5)
    return f"{visits} visits: {before:.0f} MiB before, {highest:.0f} at the end, {resident(pid):.0f} five seconds later; lost {len(lost)} {lost[:3]}"


def summary(times: list[float]) -> str:
    """Return median and 95th percentile in milliseconds."""
    if len(times) < 2:
        return "too few to say"
    return f"p50 {1000 * statistics.median(times):.0f} ms, p95 {1000 * statistics.quantiles(times, n=20)[-1]:.0f} ms"


@contextmanager
def hosted():
    """Yield port and process id of the lab as it is hosted, once it is warm."""
    with serve("serve.py", ROOT) as (address, process):
        end = time.monotonic() + 120
        while not ready(address):
            if time.monotonic() > end:
                raise RuntimeError("The server did not become ready.")
            time.sleep(0.2)
        yield int(address.rpartition(":")[2]), process.pid


@contextmanager
def bare():
    """Yield port and process id of a page with one slider and one chart."""
    with serve(str(BARE), ROOT) as (address, process):
        yield int(address.rpartition(":")[2]), process.pid


def ready(address: str) -> bool:
    """Return whether the server says that it is warm."""
    try:
        with urllib.request.urlopen(f"{address}/readyz", timeout=5) as answer:
            return answer.status == 200
    except OSError:
        return False


def resident(pid: int) -> float:
    """Return the resident memory of a process in MiB."""
    return int(Path(f"/proc/{pid}/status").read_text().split("VmRSS:")[1].split()[0]) / 1024


def processor_seconds(pid: int) -> float:
    """Return the processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def machine_ticks() -> tuple[int, int]:
    """Return the processor time that a virtual machine's host has given to others, and all of it, since the start."""
    ticks = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return ticks[7], sum(ticks)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--visitors", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=15.0, help="of moving, on each lab")
    parser.add_argument("--visits", type=int, default=100, help="that come and go at the end")
    parser.add_argument("--labs", default=",".join(SLIDERS))
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the servers it has started end with it
    for said in measured(options.visitors, options.seconds, options.visits, tuple(options.labs.split(","))):
        print(said, flush=True)
