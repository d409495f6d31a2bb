"""A long computation that leaves a mark at every step."""

import os
import time
from dataclasses import dataclass
from pathlib import Path

from engine.params import uses


@dataclass(frozen=True)
class SlowParams:
    """How many steps of a twentieth of a second."""

    steps: int = 400


@uses("steps")
def slow(params, on_step):
    """Take the steps, leaving a mark for each."""
    marks = Path(os.environ["SLOW_PAGE_MARKS"])
    for step in range(params.steps):
        on_step(step, params.steps, "Counting")
        with marks.open("a") as file:
            file.write(".")
        time.sleep(0.05)
    return params.steps
