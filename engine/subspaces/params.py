"""What the projections lab can be asked."""

import math
from dataclasses import dataclass

import numpy as np

from engine.errors import InputError
from engine.subspaces.typed import read_matrix, write_matrix

SPACES = {"2-D": 2, "3-D": 3}
WEIGHTS = ("Q", "K", "V", "O", "down", "random")
METHODS = ("classical", "modified", "Householder", "Givens")
LARGEST = 1e100
COLUMNS = (1, 2)
DEGREES = (0, 6)
POINTS = (2, 12)


@dataclass(frozen=True)
class ProjectionsParams:
    """A vector ``v`` and the direction ``a`` of a line, in ``space`` 2-D (their first two numbers) or 3-D.

    ``matrix``: 3 rows of 1 or 2 numbers, the columns span a line or
    a plane of R^3; ``slant``: degrees between the oblique projection and the perpendicular. ``kappa``: the base-10 logarithm of
    a condition number. ``weight``: Q, K, V, O of the chosen head, down (the layer's W_down), or random. ``method``: classical
    or modified Gram-Schmidt, Householder, Givens, shown after ``step`` steps. ``points``: x1, y1, x2, y2, ...; ``degree`` of the
    polynomial through them; ``rank``: directions kept of the token embeddings.
    """

    model: str = "fable"
    space: str = "2-D"
    v: tuple[float, ...] = (1.6, 2.2, 1.4)
    a: tuple[float, ...] = (2.4, 0.8, 0.6)
    matrix: str = "2,-0.4;0.4,2;0.3,0"
    slant: int = 35
    kappa: int = 8
    weight: str = "V"
    layer: int = 2
    head: int = 6
    prompt: str = "The fox sang and the crow danced, the fox sang and the crow"
    method: str = "classical"
    step: int = 5
    points: tuple[float, ...] = (-1.8, -0.9, -1.2, 0.7, -0.6, 0.9, 0.0, 0.1, 0.5, -0.7, 1.1, -0.4, 1.7, 1.3)
    degree: int = 2
    rank: int = 32

    def __post_init__(self):
        for name, accepted in (("space", SPACES), ("weight", WEIGHTS), ("method", METHODS)):
            if getattr(self, name) not in accepted:
                raise InputError(f"The {name} is {str(getattr(self, name))[:40]!r}; accepted are {', '.join(accepted)}.")
        for name, counts in (("v", (2, 3)), ("a", (2, 3)), ("points", (2 * POINTS[0], 2 * POINTS[1]))):
            _check_numbers(name, getattr(self, name), counts)
        if len(self.points) % 2:
            raise InputError(f"The points are {len(self.points)} numbers; each point has an x and a y.")
        for name, (low, high) in {"slant": (0, 80), "kappa": (0, 16), "degree": DEGREES}.items():
            if not low <= getattr(self, name) <= high:
                raise InputError(f"The {name} is {getattr(self, name)}; accepted are {low} to {high}.")
        if min(self.layer, self.head, self.step) < 0 or self.rank < 1:
            raise InputError(f"Layer {self.layer}, head {self.head}, step {self.step}, rank {self.rank}: the rank is at least 1, the others 0.")
        columns_of(self.matrix)


def columns_of(text: str) -> np.ndarray:
    """Return the columns (3, 1 or 2) that a text holds; raise InputError saying what it holds instead."""
    try:
        return read_matrix(text, 3, COLUMNS)
    except InputError as error:
        raise InputError(f"The matrix {error}; accepted are 3 rows of {COLUMNS[0]} or {COLUMNS[1]} numbers.") from error


def _check_numbers(name: str, values: tuple[float, ...], counts: tuple[int, int]) -> None:
    if not counts[0] <= len(values) <= counts[1]:
        raise InputError(f"{name} has {len(values)} numbers; accepted are {counts[0]} to {counts[1]}.")
    wrong = next((value for value in values if not (math.isfinite(value) and abs(value) <= LARGEST)), None)
    if wrong is not None:
        raise InputError(f"{name} holds {wrong}; accepted are finite numbers up to {LARGEST:.0e} in size.")


def canonical(text: str) -> str:
    """Return the typed columns as a link holds them; raise InputError, a clause that follows their name, if they are none."""
    return write_matrix(read_matrix(text, 3, COLUMNS))
