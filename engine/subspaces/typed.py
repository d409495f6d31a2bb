"""Matrices that people type or paste, with one sentence for each way in which that goes wrong."""

import math
import re

import numpy as np

from engine.errors import InputError

LONGEST = 200_000
LARGEST = 1e6


def read_matrix(text: str, rows: int, columns: tuple[int, int]) -> np.ndarray:
    """Return the matrix (rows, k), columns[0] <= k <= columns[1], that a text holds.

    Rows end at a line break, a semicolon or a bracket; numbers are separated by commas, blanks or tabs; a typeset minus is a
    minus. Raises InputError,
    one clause that follows "The matrix", for a text that is empty, too long, ragged, of another size, or holds what is no
    finite number of at most 10^6 in size.
    """
    if len(text) > LONGEST:
        raise InputError(f"is a text of {len(text)} characters")
    text = text.replace("\N{MINUS SIGN}", "-")
    lines = [line.replace(",", " ").split() for line in re.split(r"[\n;\]]", text.replace("[", " "))]
    words = [line for line in lines if line]
    if not words:
        raise InputError("is empty")
    numbers = [[_number(word) for word in line] for line in words]
    lengths = sorted({len(line) for line in numbers})
    if len(lengths) > 1:
        raise InputError(f"is ragged: its rows hold {lengths[0]} to {lengths[-1]} numbers")
    if len(numbers) != rows or not columns[0] <= lengths[0] <= columns[1]:
        raise InputError(f"is {len(numbers)} x {lengths[0]}")
    return np.array(numbers)


def write_matrix(A: np.ndarray) -> str:
    """Return a matrix (m, n) as a link holds it: ``1,0;0,1``, twelve digits."""
    return ";".join(",".join(f"{number + 0.0:.12g}" for number in row) for row in A)


def _number(word: str) -> float:
    try:
        value = float(word) if word.isascii() else None
    except ValueError:
        value = None
    if value is None:
        raise InputError(f"holds {word[:20]!r}, which is no number")
    if not math.isfinite(value):
        raise InputError(f"holds {word[:20]!r}, which is not finite")
    if abs(value) > LARGEST:
        raise InputError(f"holds {word[:20]!r}; numbers go up to {LARGEST:,.0f}")
    return value + 0.0
