"""Condition numbers: of random Gaussian matrices by aspect ratio, of orthogonal ones, of Fable's weights while it was trained.

For a Gaussian m x n with y = min / max of m and n the limit is (1 + sqrt y) / (1 - sqrt y) (Marchenko & Pastur 1967; Geman
1980, Silverstein 1985 for the ends), which diverges at y = 1: square is the bad case, and tall is as good as wide. Seed 003,
section 05, has it the other way round.
"""

from dataclasses import dataclass

import numpy as np
import torch

from engine.device import parallel_map
from engine.linalg import gaussian_r_factor
from engine.models.snapshots import read_snapshot, snapshot_records
from engine.models.weights import LayerHeads
from engine.params import Number, frozen, uses
from engine.progress import OnStep, silent
from engine.subspaces.params import ProjectionsParams

MODEL = "fable"
NAMES = ("W_Q", "W_K", "W_V", "W_O")
NARROW = 64
ASPECTS = (1.0, 1.0625, 1.125, 1.25, 1.5, 2.0, 3.0, 4.0, 8.0, 16.0)
DRAWS = 100
SHAPE_DRAWS = 24
BAND = (10, 50, 90)
SQUARE_MEDIAN = float((1 + (1 + 2 * np.log(2)) ** 0.5) / np.log(2))


@dataclass(frozen=True)
class AspectResult:
    """Condition numbers of Gaussian matrices whose smaller side is ``narrow``: ``low``, ``median``, ``high`` (k,), 10, 50, 90 %.

    ``aspect`` (k,) is the longer side over the shorter; rows over columns or columns over rows, the condition is the same.
    ``limit`` (k,): the formula for large matrices, inf at 1. ``orthogonal``: the largest of as many orthonormal matrices.
    """

    narrow: int
    draws: int
    aspect: np.ndarray
    low: np.ndarray
    median: np.ndarray
    high: np.ndarray
    limit: np.ndarray
    orthogonal: float


@dataclass(frozen=True)
class TrainingResult:
    """Condition numbers of Fable's attention matrices at every snapshot: ``condition`` (steps, n_layers, 4), W_Q, W_K, W_V, W_O.

    ``step`` (steps,), ``names`` (4,), ``shapes`` (4,); ``chance_low``, ``chance_median``, ``chance_high`` (4,): Gaussian
    matrices of those shapes. The snapshots are stored in float16, which rounds each weight to 11 bits.
    """

    step: np.ndarray
    names: tuple[str, ...]
    shapes: tuple[tuple[int, int], ...]
    condition: np.ndarray
    chance_low: np.ndarray
    chance_median: np.ndarray
    chance_high: np.ndarray


def gaussian_conditions(m: int, n: int, draws: int, seed: int = 0) -> np.ndarray:
    """Return sigma_1 / sigma_min of ``draws`` Gaussian m x n matrices, (draws,), from their triangular factors alone."""
    long, short = max(m, n), min(m, n)
    drawn = gaussian_r_factor(np.random.default_rng(seed), long, short, draws)
    return np.array(parallel_map(_condition, drawn))


def limiting_condition(aspect: float) -> float:
    """Return (1 + sqrt y) / (1 - sqrt y) for y = 1 / aspect, the limit for large Gaussian matrices; inf for a square."""
    root = aspect**-0.5
    return float("inf") if aspect == 1 else (1 + root) / (1 - root)


@uses()
def aspect_conditions(params: ProjectionsParams, on_step: OnStep = silent) -> AspectResult:
    """Return condition numbers of Gaussian matrices from square to 16 times as long as wide, 100 seeded draws each."""
    bands = []
    for done, aspect in enumerate(ASPECTS):
        on_step(done, len(ASPECTS), "Random matrices, from square to tall")
        bands.append(np.percentile(gaussian_conditions(round(aspect * NARROW), NARROW, DRAWS), BAND))
    rng = np.random.default_rng(0)
    orthogonal = max(_condition(np.linalg.qr(rng.standard_normal((4 * NARROW, NARROW)))[0]) for _ in range(5))
    limits = np.array([limiting_condition(aspect) for aspect in ASPECTS])
    return AspectResult(NARROW, DRAWS, frozen(np.array(ASPECTS)), *(frozen(x) for x in np.array(bands).T), frozen(limits), float(orthogonal))


@uses()
def training_conditions(params: ProjectionsParams, on_step: OnStep = silent) -> TrainingResult:
    """Return the condition numbers of every layer's W_Q, W_K, W_V, W_O along Fable's snapshots."""
    steps, found = [record["step"] for record in snapshot_records(MODEL)], []
    for done, step in enumerate(steps):
        on_step(done, len(steps), "Snapshot by snapshot")
        layers = [whole_weights(heads) for heads in read_snapshot(MODEL, step)]
        found.append(np.reshape(parallel_map(_condition, [W for layer in layers for W in layer]), (len(layers), -1)))
    shapes = tuple(W.shape for W in layers[0])
    bands = {shape: np.percentile(gaussian_conditions(*shape, SHAPE_DRAWS), BAND) for shape in set(shapes)}
    chance = np.array([bands[shape] for shape in shapes]).T
    return TrainingResult(frozen(np.array(steps)), NAMES, shapes, frozen(np.array(found)), *(frozen(x) for x in chance))


def whole_weights(heads: LayerHeads) -> list[np.ndarray]:
    """Return W_Q, W_K, W_V, W_O of all heads of a layer together, (out, in), in float64."""
    W_Q, W_K, W_V = (W.double().flatten(0, 1).numpy() for W in (heads.W_Q, heads.W_K, heads.W_V))
    return [W_Q, W_K, W_V, heads.W_O.double().transpose(0, 1).flatten(1).numpy()]


def condition_numbers(aspects: AspectResult) -> tuple[Number, ...]:
    """Return the median condition of square, 2 : 1 and 16 : 1 Gaussian matrices beside that of large ones, and of orthonormal ones.

    Square: P(kappa / n < x) goes to exp(-2/x - 2/x^2), whose median is 3.67 (Edelman 1988).
    """
    at = lambda aspect: float(aspects.median[list(aspects.aspect).index(aspect)])  # noqa: E731
    square = Number(f"Square, {aspects.narrow} x {aspects.narrow}: condition", at(1.0), SQUARE_MEDIAN * aspects.narrow, 0, against="large n")
    named = [Number(f"{aspect:.0f} : 1", at(aspect), limiting_condition(aspect), 2, against="large n") for aspect in (2.0, 16.0)]
    return (square, *named, Number("Orthonormal columns", aspects.orthogonal, 1.0, 2, against="exact"))


def training_sentence(result: TrainingResult) -> str:
    """Return in words how the condition of each matrix went from the first to the last snapshot, medians over layers."""
    start, end = (np.median(result.condition[i], axis=0) for i in (0, -1))
    told = [f"{name} {a:.0f} to {b:.0f}" for name, a, b in zip(result.names, start, end, strict=True)]
    chance = ", ".join(f"{name} {c:.0f}" for name, c in zip(result.names, result.chance_median, strict=True))
    return f"Median condition over layers, first to last snapshot: {'; '.join(told)}. Gaussian matrices of those shapes: {chance}."


def _condition(W: np.ndarray) -> float:
    sigma = torch.linalg.svdvals(torch.from_numpy(W))
    return float(sigma[0] / sigma[-1])
