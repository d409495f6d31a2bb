"""How many straight pieces of a ReLU network's curve can be seen, and how many random weights would make."""

import numpy as np

LOW, HIGH = -2.0, 2.0
DRAWS = 256
NARROWEST, LEAST_TURN = 0.04, 0.1


def random_pieces(width: int, cutoff: float) -> float:
    """Return the mean ``visible_pieces`` of 256 ReLU networks with random weights, distributed as those of ``initial``."""
    w, b, c = np.random.default_rng(0).standard_normal((3, DRAWS, width))
    return float(np.mean([visible_pieces(*pair) for pair in zip((cutoff - b) / w, c * np.abs(w) / width**0.5, strict=True)]))


def visible_pieces(places: np.ndarray, turns: np.ndarray) -> int:
    """Return the straight pieces to be seen on [-2, 2] of a curve whose slope changes by turns (n,) at places (n,).

    Pieces narrower than 0.04, a hundredth of the picture, are passed over; one whose slope is within 0.1 of the last counted
    piece's continues it.
    """
    order = np.argsort(places)[: int((places < HIGH).sum())]
    order = order[places[order] > LOW]
    ends = np.concatenate([[LOW], places[order], [HIGH]])
    slopes = np.concatenate([[0.0], np.cumsum(turns[order])])[np.diff(ends) >= NARROWEST]
    count, last = 1, slopes[0] if len(slopes) else 0.0
    for slope in slopes[1:]:
        if abs(slope - last) >= LEAST_TURN:
            count, last = count + 1, slope
    return count


def random_switches(width: int, cutoff: float) -> float:
    """Return the mean number of switches inside (-2, 2) of 256 networks with random weights."""
    w, b = np.random.default_rng(0).standard_normal((2, DRAWS, width))
    return float((np.abs(cutoff - b) < HIGH * np.abs(w)).sum(1).mean())
