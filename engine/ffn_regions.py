"""Into how many linear pieces ReLU units cut the plane, and why an up-projection alone adds nothing.

h units on d inputs switch at h hyperplanes, which cut the space into at most sum_{j <= d} C(h, j) regions, one pattern of switches
each (Zaslavsky 1975; Montufar et al. 2014, arXiv 1402.1869); never 2^h once h > d. Sources: seeds 000, 001 (section 06).
"""

from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from math import comb, log10

import numpy as np
import torch

from engine.ffn_params import FfnParams
from engine.ffn_token import held_out_inputs, require_layer
from engine.models.feedforward import feed_forward
from engine.models.loading import open_model
from engine.params import Number, frozen, uses
from engine.progress import OnStep, silent

VIEW = 2.0
FEWEST_TOKENS = 1024
INPUTS = 2


@dataclass(frozen=True)
class RegionsResult:
    """Random ReLU units on two inputs. ``weights`` (lines, 2), ``offsets`` (lines,): unit i is on where w_i . x + b_i > 0.

    ``regions``: patterns of switches over the whole plane, counted exactly; ``bound``: the most that so many units can have;
    ``cells``: the regions within [-2, 2] x [-2, 2] as polygons (corners, 2), and ``active``: units that are on in each.
    """

    lines: int
    biases: bool
    weights: np.ndarray
    offsets: np.ndarray
    regions: int
    bound: int
    cells: tuple[np.ndarray, ...]
    active: np.ndarray

    def numbers(self) -> dict[str, Number]:
        """Return the count, the bound and 2^h."""
        return {
            "regions": Number("Regions of the whole plane", self.regions, self.bound, 0, against="at most"),
            "regions_bound": Number("At most possible", self.bound, None, 0),
            "regions_in_view": Number("Of them in the picture", len(self.cells), None, 0),
            "patterns": Number("Patterns of switches, 2^h", 2**self.lines, None, 0),
        }


@dataclass(frozen=True)
class LinearResult:
    """A layer of a real model without its nonlinearity.

    ``product_values`` (d_model,): singular values of W_down W_up; ``rank`` its numerical rank. On ``tokens`` tokens of held-out
    prose: singular values of the hidden vectors W_up x before (``before_values``) and of a after the nonlinearity
    (``after_values``), and their numerical ranks. ``recovered_error``: largest error of the d_ff - d_model redundant coordinates
    of W_up x recovered from d_model others, over the largest coordinate. ``bound_digits``, ``patterns_digits``: log10 of the most
    regions that d_ff ReLU units could cut R^d_model into, and of 2^d_ff.
    """

    d_model: int
    d_ff: int
    tokens: int
    product_values: np.ndarray
    rank: int
    before_values: np.ndarray
    after_values: np.ndarray
    before_rank: int
    after_rank: int
    recovered_error: float
    bound_digits: float
    patterns_digits: float

    def numbers(self) -> dict[str, Number]:
        """Return the ranks and the error."""
        return {
            "rank": Number("Rank of W_down W_up", self.rank, None, 0, f" of {self.d_model}"),
            "before_rank": Number("Rank of W_up x over the text", self.before_rank, None, 0, f" of {self.d_ff}"),
            "after_rank": Number("Rank after the nonlinearity", self.after_rank, None, 0, f" of {self.d_ff}"),
            "recovered": Number("Digits of the redundant ones recovered", -log10(max(self.recovered_error, 1e-17)), None, 1),
        }


def most_regions(units: int, inputs: int, biases: bool) -> int:
    """Return the most regions that ``units`` hyperplanes can cut R^inputs into: sum_{j <= d} C(h, j); through one point:
    2 sum_{j < d} C(h - 1, j), which for two inputs is 2 h (Cover 1965)."""
    if biases:
        return sum(comb(units, j) for j in range(inputs + 1))
    return 2 * sum(comb(units - 1, j) for j in range(inputs))


def count_regions(weights: np.ndarray, offsets: np.ndarray) -> int:
    """Return the regions of the plane cut by the lines w_i . x + b_i = 0, exactly: 1 + lines + sum over crossings of (lines - 1).

    ``weights`` (n, 2), ``offsets`` (n,). The floats are taken as the fractions that they are, so parallel lines, lines that
    coincide and several through one point are told apart without a tolerance. A unit with w = 0 has no line.
    """
    lines = {_line(*map(Fraction, (*map(float, w), float(b)))) for w, b in zip(weights, offsets, strict=True) if np.any(w != 0)}
    crossings: dict[tuple[Fraction, Fraction], set] = {}
    for first, second in combinations(lines, 2):
        point = _crossing(first, second)
        if point is not None:
            crossings.setdefault(point, set()).update((first, second))
    return 1 + len(lines) + sum(len(through) - 1 for through in crossings.values())


def cut(weights: np.ndarray, offsets: np.ndarray, view: float = VIEW) -> list[np.ndarray]:
    """Return the convex cells, (corners, 2) each, into which the lines cut the square [-view, view]^2."""
    cells = [np.array([[-view, -view], [view, -view], [view, view], [-view, view]])]
    for w, b in zip(weights, offsets, strict=True):
        cells = [part for cell in cells for part in _halves(cell, cell @ w + b)]
    return cells


@uses("lines", "biases", "seed")
def regions(params: FfnParams, on_step: OnStep = silent) -> RegionsResult:
    """Return the regions of standard normal ReLU units on two inputs, with standard normal biases or none."""
    generator = np.random.default_rng(params.seed)
    weights, offsets = generator.standard_normal((params.lines, INPUTS)), generator.standard_normal(params.lines) * params.biases
    cells = cut(weights, offsets)
    active = np.array([int((weights @ cell.mean(0) + offsets > 0).sum()) for cell in cells])
    counted, bound = count_regions(weights, offsets), most_regions(params.lines, INPUTS, params.biases)
    shown = tuple(frozen(cell) for cell in cells)
    return RegionsResult(params.lines, params.biases, frozen(weights), frozen(offsets), counted, bound, shown, frozen(active))


@uses("model", "layer")
@torch.no_grad()
def linear(params: FfnParams, on_step: OnStep = silent) -> LinearResult:
    """Return what is left of a model's layer without its nonlinearity, and what the nonlinearity adds on held-out prose."""
    require_layer(params)
    ffn = feed_forward(open_model(params.model, on_step), params.layer)
    d_ff, d_model = ffn.W_up.shape
    tokens = max(FEWEST_TOKENS, d_model + d_model // 4)
    x = held_out_inputs(params, on_step, tokens).flatten(0, 1).double()
    ffn = ffn.double()
    hidden = x @ ffn.W_up.mT  # without the bias, which would add a direction of its own
    on_step(0, 1, "Singular values")
    before, after = (torch.linalg.svdvals(v).cpu().numpy() for v in (hidden, ffn.activations(x)))
    product = torch.linalg.svdvals(ffn.W_down @ ffn.W_up).cpu().numpy()
    shape = (len(x), d_ff)
    ranks = (_rank(before, shape), _rank(after, shape))
    digits = (log10(most_regions(d_ff, d_model, True)), d_ff * log10(2))
    return LinearResult(
        *(d_model, d_ff, len(x), frozen(product), _rank(product, (d_model, d_model)), frozen(before), frozen(after)),
        *(*ranks, recovered_error(ffn.W_up, hidden), *digits),
    )


def recovered_error(W_up: torch.Tensor, hidden: torch.Tensor) -> float:
    """Return max |h_rest - L2 L1^-1 h_base| / max |h| for h = W_up x, (tokens, d_ff): the rest is a linear function of d_model of them.

    Which ones, partial pivoting chooses: W_up = P L U, L = [L1; L2], so that L1^-1 is well conditioned.
    """
    d_model = W_up.shape[1]
    P, L, _ = torch.linalg.lu(W_up)
    ordered = hidden @ P
    recovered = torch.linalg.solve_triangular(L[:d_model], ordered[:, :d_model].mT, upper=False, unitriangular=True)
    return float((ordered[:, d_model:].mT - L[d_model:] @ recovered).abs().max() / hidden.abs().max())


def _rank(values: np.ndarray, shape: tuple[int, int]) -> int:
    return int((values > values.max() * max(shape) * np.finfo(float).eps).sum())


def _line(a: Fraction, b: Fraction, c: Fraction) -> tuple[Fraction, Fraction, Fraction]:
    """Return a x + b y + c = 0 with its first coefficient that is not 0 scaled to 1: one name per line."""
    lead = a or b
    return a / lead, b / lead, c / lead


def _crossing(first, second) -> tuple[Fraction, Fraction] | None:
    (a, b, c), (d, e, f) = first, second
    det = a * e - b * d
    return None if det == 0 else ((b * f - c * e) / det, (c * d - a * f) / det)


def _halves(cell: np.ndarray, height: np.ndarray) -> list[np.ndarray]:
    """Split a convex polygon where ``height``, the line's value at its corners, changes sign."""
    if (height >= 0).all() or (height <= 0).all():
        return [cell]
    above, below = [], []
    for i, j in zip(range(len(cell)), [*range(1, len(cell)), 0], strict=True):
        if height[i] >= 0:
            above.append(cell[i])
        if height[i] <= 0:
            below.append(cell[i])
        if height[i] * height[j] < 0:
            point = cell[i] + (cell[j] - cell[i]) * (height[i] / (height[i] - height[j]))
            above.append(point)
            below.append(point)
    return [np.array(above), np.array(below)]
