"""One parameter object per lab: what a result depends on, and nothing else.

An engine function declares the fields that it reads with ``@uses``. ``restrict`` puts every other field back to its
default, so that the object that reaches the function, which is also its cache key, holds what can influence the result
and no more: moving a slider that a function does not read never computes it again.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import lru_cache

import numpy as np


@dataclass(frozen=True)
class Number:
    """A number to read off, with what chance would give, or what else ``against`` names, and what it was before a change."""

    label: str
    value: float
    chance: float | None = None
    digits: int = 1
    unit: str = ""
    before: float | None = None
    against: str = "chance"

    @property
    def beside(self) -> str | None:
        """What stands under the number: before the change, and chance or another reference."""
        said = [] if self.before is None else [f"before {self.before:.{self.digits}f}{self.unit}"]
        digits = max(self.digits, 1) if self.against == "chance" else self.digits
        said += [] if self.chance is None else [f"{self.against} {self.chance:.{digits}f}{self.unit}"]
        return ", ".join(said) or None


def uses(*names: str) -> Callable:
    """Declare the fields of its parameter object that an engine function reads."""

    def mark(function):
        function.uses = names
        return function

    return mark


@lru_cache(maxsize=1024)
def restrict(function: Callable, params):
    """Return ``params`` with every field that ``function`` does not use at its default."""
    unused = [f.name for f in fields(params) if f.name not in function.uses]
    default = type(params)()
    return replace(params, **{name: getattr(default, name) for name in unused})


def frozen(values) -> np.ndarray:
    """Return values (a tensor or array) as a read-only numpy array."""
    array = np.asarray(values.detach().cpu().numpy() if hasattr(values, "detach") else values)
    array.flags.writeable = False
    return array


def plain(value):
    """Return a result as JSON-ready data: arrays as nested lists, non-finite numbers as null."""
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [plain(v) for v in value]
    if isinstance(value, np.generic):
        return plain(value.item())
    return None if isinstance(value, float) and not math.isfinite(value) else value
