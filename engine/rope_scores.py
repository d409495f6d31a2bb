"""What a rotation does to scores: only the distance counts, angles never seen, the temperature, sinusoids, stale keys, costs."""

import math
from dataclasses import dataclass

import numpy as np
import torch

from engine.params import frozen, uses
from engine.progress import OnStep, silent
from engine.rope import LAW, RopeParams, even_vector, frequencies, rotor, score
from engine.rope_laws import LAWS

PRECISIONS = {"fp64": torch.float64, "fp32": torch.float32, "bf16": torch.bfloat16}
SHIFTS = (1, 10, 100, 1000, 10_000, 100_000, 1_000_000)
DRAWS, SEED, DISTANCE = 1000, 0, 16
MAP_COLUMNS, CURVE_POINTS, SHOWN_KEYS = 400, 600, 64
SCORE_SPREAD = 2.0


@dataclass(frozen=True)
class ShiftResult:
    """Largest change of a score when both positions move by ``shifts``, by precision; ``spread``: a score's standard deviation."""

    shifts: tuple[int, ...]
    fp64: np.ndarray
    fp32: np.ndarray
    bf16: np.ndarray
    distance: int
    draws: int
    spread: float


@uses("base", "d_head")
def shift_errors(params: RopeParams, on_step: OnStep = silent) -> ShiftResult:
    """Return max |score(t + delta, t) - score(delta, 0)| over Gaussian q and k, delta = 16, all steps in one precision.

    In exact arithmetic it is 0: R_(t+delta)^T R_t = R_(-delta). Angles t theta_i are rounded to the precision as well.
    """
    drawn = np.random.default_rng(SEED).standard_normal((2, DRAWS, params.d_head))
    theta = params.stretch().plain
    changes = {}
    for name, dtype in PRECISIONS.items():
        q, k, inv_freq = (torch.as_tensor(a, dtype=dtype) for a in (*drawn, theta))
        at = [(_turned(q, inv_freq, t + DISTANCE) * _turned(k, inv_freq, t)).sum(-1).double() for t in (0, *SHIFTS)]
        changes[name] = frozen(np.array([float((moved - at[0]).abs().max()) for moved in at[1:]]))
    return ShiftResult(SHIFTS, **changes, distance=DISTANCE, draws=DRAWS, spread=math.sqrt(params.d_head))


def _turned(x: torch.Tensor, inv_freq: torch.Tensor, position: int) -> torch.Tensor:
    """Return R_m x for x (..., 2n) with pairs (i, i + n), every step in x's precision."""
    angle = torch.tensor(position, dtype=x.dtype) * inv_freq
    cos, sin = angle.cos(), angle.sin()
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, first * sin + second * cos], dim=-1)


@dataclass(frozen=True)
class UnseenResult:
    """How far each pair's angle lies from any that training saw, in radians, (pairs, positions); 0 where it was seen."""

    positions: np.ndarray
    plain: np.ndarray
    scaled: np.ndarray

    def share(self, which: str) -> float:
        """Return the share of (pair, position) cells whose angle training never saw."""
        return float((getattr(self, which) > 0).mean())


@uses(*LAW, "reach")
def unseen_phases(params: RopeParams, on_step: OnStep = silent) -> UnseenResult:
    """Return the map of unseen angles up to ``reach`` trained contexts, plain and under the law.

    Distances 0 to L-1 show pair i the angles [0, (L-1) theta_i]: all of them once that is a full turn. At distance m it is at
    m theta'_i mod 2 pi; what counts is the nearest seen angle around the circle.
    """
    law, L = frequencies(params), params.original_context
    positions = np.unique(np.linspace(0, params.reach * L - 1, MAP_COLUMNS).astype(int))
    seen = (L - 1) * law.inv_freq[:, None]
    maps = [_beyond(positions * theta[:, None], seen) for theta in (law.inv_freq, law.scaled_inv_freq)]
    return UnseenResult(frozen(positions), *(frozen(m) for m in maps))


def _beyond(angle: np.ndarray, seen: np.ndarray) -> np.ndarray:
    """Return the distance around the circle from an angle to [0, seen], 0 within (rounding aside) or where seen is a full turn."""
    turned = np.mod(angle, 2 * math.pi)
    gap = np.minimum(turned - seen, 2 * math.pi - turned)
    return np.where((seen >= 2 * math.pi) | (gap < 1e-9), 0.0, gap)


@dataclass(frozen=True)
class DistanceResult:
    """The score q^T R_(-delta) k against the distance delta, each (points,), attention factor squared included."""

    delta: np.ndarray
    plain: np.ndarray
    scaled: np.ndarray
    spread: float


@uses(*LAW, "reach", "kind", "q", "k")
def score_by_distance(params: RopeParams, on_step: OnStep = silent) -> DistanceResult:
    """Return the rotor's score up to ``reach`` trained contexts; for q = k even over the pairs, of all pairs of the head.

    ``spread``: standard deviation of the score of unrelated vectors of the same lengths, |q| |k| / sqrt(d): what chance gives.
    """
    law, start = frequencies(params), rotor(params)
    delta = np.unique(np.round(np.linspace(0, params.reach * params.original_context, CURVE_POINTS)).astype(int))
    q, k, plain, theta = start.q, start.k, start.inv_freq, start.scaled_inv_freq
    if params.kind == "same" and np.array_equal(q, even_vector(len(q))):
        q = k = even_vector(params.d_head)
        plain, theta = law.inv_freq, law.scaled_inv_freq
    spread = float(np.linalg.norm(q) * np.linalg.norm(k) / math.sqrt(len(q)))
    curves = score(plain, q, k, delta), law.attention_factor**2 * score(theta, q, k, delta)
    return DistanceResult(frozen(delta), *(frozen(c) for c in curves), spread)


@dataclass(frozen=True)
class TemperatureResult:
    """Softmax weights of random scores, largest first, (shown,): as they are, and times the attention factor squared.

    ``keys``: how many there are; ``*_keys``: exp(entropy), how many keys share the weight in effect.
    """

    keys: int
    attention_factor: float
    plain: np.ndarray
    scaled: np.ndarray
    trained_keys: float
    plain_keys: float
    scaled_keys: float


@uses(*LAW)
def temperature(params: RopeParams, on_step: OnStep = silent) -> TemperatureResult:
    """Return what the attention factor does to a softmax over ``length`` Gaussian scores with standard deviation 2.

    ``trained_keys`` is the same at the original context: without a factor, more keys spread the weight thinner.
    """
    law, n = frequencies(params), min(params.used_length, 1_000_000)
    scores = SCORE_SPREAD * np.random.default_rng(SEED).standard_normal(n)
    before, after = (_softmax(scores * f) for f in (1.0, law.attention_factor**2))
    trained = _softmax(scores[: params.original_context])
    effective = [_effective(w) for w in (trained, before, after)]
    return TemperatureResult(n, law.attention_factor, *(frozen(np.sort(w)[::-1][:SHOWN_KEYS]) for w in (before, after)), *effective)


def _softmax(scores: np.ndarray) -> np.ndarray:
    weights = np.exp(scores - scores.max())
    return weights / weights.sum()


def _effective(weights: np.ndarray) -> float:
    """Return exp of the entropy of weights that sum to 1."""
    kept = weights[weights > 0]
    return float(np.exp(-(kept * np.log(kept)).sum()))


@dataclass(frozen=True)
class SinusoidalResult:
    """PE (positions, d) of sinusoidal positions, and how far PE(p + k) is from M_k PE(p): largest difference by k."""

    encoding: np.ndarray
    steps: tuple[int, ...]
    error: np.ndarray
    wrong_step: float


@uses("base", "d_head", "original_context")
def sinusoidal(params: RopeParams, on_step: OnStep = silent) -> SinusoidalResult:
    """Return PE(p) = (sin p theta_i, cos p theta_i) and check PE(p + k) = M_k PE(p) with M_k the block-diagonal rotation.

    ``wrong_step``: the largest difference with M_(k+1) in place of M_k, to tell that the check can fail.
    """
    theta, steps = params.stretch().plain, (1, 2, 4, 8, 16, 32, 64)
    encode = lambda p: np.stack([np.sin(p[:, None] * theta), np.cos(p[:, None] * theta)], -1).reshape(len(p), -1)  # noqa: E731
    p = np.arange(min(params.original_context, 512))
    errors = [float(np.abs(encode(p + k) - encode(p) @ shift_matrix(theta, k).T).max()) for k in steps]
    wrong = float(np.abs(encode(p + 1) - encode(p) @ shift_matrix(theta, 2).T).max())
    return SinusoidalResult(frozen(encode(p)), steps, frozen(np.array(errors)), wrong)


def shift_matrix(theta: np.ndarray, k: int) -> np.ndarray:
    """Return M_k (2n, 2n), block-diagonal and orthogonal: [[cos k theta, sin k theta], [-sin k theta, cos k theta]] per pair (sin, cos)."""
    M = np.zeros((2 * len(theta), 2 * len(theta)))
    even = 2 * np.arange(len(theta))
    M[even, even] = M[even + 1, even + 1] = np.cos(k * theta)
    M[even, even + 1], M[even + 1, even] = np.sin(k * theta), -np.sin(k * theta)
    return M


def rotation_matrix(theta: np.ndarray, m: float) -> np.ndarray:
    """Return R_m (2n, 2n), block-diagonal and orthogonal: [[cos m theta, -sin m theta], [sin m theta, cos m theta]] per pair."""
    return shift_matrix(theta, m).T


@dataclass(frozen=True)
class RotationResult:
    """R_m (d, d) of the rotor's pairs without a law; ``orthogonal`` = max |R^T R - I|, ``hops`` = max |R_a R_b - R_m|, a + b = m."""

    matrix: np.ndarray
    position: int
    orthogonal: float
    hops: float
    unrelated: float


@uses(*LAW, "position")
def rotation(params: RopeParams, on_step: OnStep = silent) -> RotationResult:
    """Return R_m at ``position`` of the pairs that the rotor shows, and how far it is from what it should be, in float64.

    ``unrelated``: max |R^T S - I| with S = R_(m+1), to tell that the check can fail.
    """
    theta, m = rotor(params).inv_freq, params.position
    at = lambda position: rotation_matrix(theta, position)  # noqa: E731
    R, one, first = at(m), np.eye(2 * len(theta)), m // 2
    gaps = R.T @ R - one, at(first) @ at(m - first) - R, R.T @ at(m + 1) - one
    return RotationResult(frozen(R), m, *(float(np.abs(gap).max()) for gap in gaps))


@dataclass(frozen=True)
class StaleResult:
    """Dynamic NTK with a cache: error of a score by distance back from the last query, in units of a fresh score's spread.

    ``stale``: keys keep the angle of the length at which they were cached; ``fresh_to_plain``: keys rotated again, against
    plain RoPE, which is the change that the law intends. Unrelated phases give sqrt(2).
    """

    distance: np.ndarray
    stale: np.ndarray
    intended: np.ndarray
    chance: float


@uses("base", "d_head", "original_context", "length", "factor")
def stale_cache(params: RopeParams, on_step: OnStep = silent) -> StaleResult:
    """Return the root mean square error of q^T R k over Gaussian q and k when keys are not rotated again as the base grows.

    Key j was rotated when j + 1 tokens were there, under theta(j + 1); query l - 1 turns under theta(l). With phase error
    phi_i = j (theta_i(l) - theta_i(j + 1)) the error is sqrt(mean_i 2 (1 - cos phi_i)) of the spread of a fresh score.
    """
    last, L = params.used_length, params.original_context
    keys = np.unique(np.linspace(0, last - 1, CURVE_POINTS).astype(int))
    law = lambda length: LAWS["dynamic"](params.stretch(length=int(length)))[0]  # noqa: E731
    now, plain = law(last), law(L)
    then = np.stack([law(j + 1) for j in keys])
    error = lambda phase: np.sqrt((2 * (1 - np.cos(phase))).mean(1))  # noqa: E731
    distance = last - 1 - keys
    intended = error(distance[:, None] * (now - plain))
    return StaleResult(frozen(distance), frozen(error(keys[:, None] * (now - then))), frozen(intended), math.sqrt(2))


@dataclass(frozen=True)
class CostResult:
    """What position costs a layer, or the whole model: operations per token, bytes of parameters, bytes of a table."""

    kinds: tuple[str, ...]
    operations: tuple[int, ...]
    parameter_bytes: tuple[int, ...]
    table_bytes: tuple[int, ...]


def costs(n_layers: int, n_heads: int, n_kv_heads: int, d_model: int, d_head: int, context: int) -> CostResult:
    """Return float32 costs of RoPE, sinusoidal and learned positions for a model of this shape.

    RoPE turns each pair of every query and key head in every layer: 4 products and 2 sums. The others add d_model numbers
    once, at the input. The table holds cos and sin of every pair, or the encoding, at every position of the context.
    """
    rope = n_layers * (n_heads + n_kv_heads) * 6 * (d_head // 2)
    size = 4 * context * d_model
    return CostResult(("RoPE", "sinusoidal", "learned"), (rope, d_model, d_model), (0, 0, size), (4 * context * d_head, size, 0))
