"""How a long computation says where it is, and how it is told to stop.

Every engine function that can take long accepts ``on_step(done, total, message)``. The callback may raise
``engine.errors.Abandoned``: the function then stops, having stored nothing.
"""

from collections.abc import Callable

OnStep = Callable[[int, int, str], None]


def silent(done: int, total: int, message: str) -> None:
    """Report nothing."""


def console(done: int, total: int, message: str) -> None:
    """Rewrite one line of the terminal's standard error."""
    import sys

    if sys.stderr.isatty():
        print(f"\r{message}: {done} of {total}", end="\n" if done == total else "", file=sys.stderr, flush=True)


def offer(on_step: OnStep, so_far: Callable[[], object]) -> None:
    """Hand over what a computation has so far, ``so_far()``, to a callback that wants to draw it (it has a method ``keep``)."""
    keep = getattr(on_step, "keep", None)
    if keep is not None:
        keep(so_far())
