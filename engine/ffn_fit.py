"""A small feed-forward layer fits a curve: all activations at equal parameters, trained in one batch.

One input and one output: y(x) = b + sum_i c_i f(w_i x + b_i - cutoff), and in a gated layer each term times (v_i x + d_i).
Source: seeds 000 and 001 (section 10, made real: trained weights); Shazeer 2020, "GLU Variants Improve Transformer".
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch

from engine.device import CPU_THREADS, parallel_map
from engine.errors import InputError
from engine.ffn_params import ACTIVATIONS, SNAPSHOT_EVERY, STEPS, FfnParams
from engine.ffn_pieces import HIGH, LOW, random_pieces, random_switches, visible_pieces
from engine.params import frozen, uses
from engine.progress import OnStep, silent

TRAINED, POINTS, FINE = 65, 129, 1025
LEARNING_RATE, BETAS, EPS = 0.03, (0.9, 0.999), 1e-8
SWEEP_WIDTHS, SWEEP_SEEDS = (5, 10, 20, 40), 8
FEWEST_POINTS, MOST_POINTS = 4, 33
CURVES = {
    "abs": np.abs,
    "sine": lambda x: np.sin(3 * x),
    "square": lambda x: x * x / 2 - 1,
    "step": lambda x: np.where(x > 0, 1.0, -1.0),
}


@dataclass(frozen=True)
class Network:
    """One network to train: its activation's key, how many units it has, and the seed of its weights."""

    activation: str
    units: int
    seed: int


@dataclass(frozen=True)
class Fitted:
    """One network through training, at every snapshot (steps / 50 + 1 of them).

    ``weights`` (snapshots, 5, units): rows w, b, v, d, c of y(x) = bias + sum_i c_i f(w_i x + b_i - cutoff) (v_i x + d_i); a plain
    layer has v = 0, d = 1. ``bias`` (snapshots,). ``curves`` (snapshots, 129) on ``grid()``; ``errors`` (snapshots,): root mean
    square of y - target over 1025 points of [-2, 2], most of which were not trained on.
    """

    activation: str
    units: int
    parameters: int
    cutoff: float
    weights: np.ndarray
    bias: np.ndarray
    curves: np.ndarray
    errors: np.ndarray

    def switches(self, snapshot: int) -> np.ndarray:
        """Return, for every unit, the x at which its gate's input w x + b - cutoff is 0; NaN if it never is."""
        w, b = self.weights[snapshot, :2]
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(w == 0, np.nan, (self.cutoff - b) / w)

    def in_view(self, snapshot: int) -> int:
        """Return how many switches lie inside (-2, 2)."""
        places = self.switches(snapshot)
        return int(((places > LOW) & (places < HIGH)).sum())

    def pieces(self, snapshot: int) -> int:
        """Return the straight pieces to be seen on [-2, 2] of a ReLU network, ``visible_pieces``; only ReLU has any."""
        w, _, _, _, c = self.weights[snapshot]
        return visible_pieces(self.switches(snapshot), c * np.abs(w))

    def contributions(self, snapshot: int) -> np.ndarray:
        """Return c_i f(...) (v_i x + d_i) of every unit on ``grid()``, (units, 129); with the bias they sum to the curve."""
        theta, x = torch.from_numpy(self.weights[snapshot].copy()), torch.from_numpy(grid())
        return frozen(_terms(self.activation, theta, x, self.cutoff))


@dataclass(frozen=True)
class FitResult:
    """All activations on one target at equal parameters, through training.

    ``target`` (129,) on ``grid()``; ``steps`` (snapshots,); ``constant_error``: root mean square error of the best constant;
    ``random_pieces``: mean straight pieces of 256 ReLU networks with random weights of this width; ``random_share``: mean share of
    units whose switch lies inside (-2, 2), of any activation.
    """

    steps: np.ndarray
    target: np.ndarray
    constant_error: float
    random_pieces: float
    random_share: float
    fits: dict[str, Fitted]


@dataclass(frozen=True)
class SweepResult:
    """Final errors of every activation at several sizes over several seeds, trained in one batch.

    ``parameters`` (sizes,); ``errors`` activation -> (sizes, seeds), root mean square; ``constant_error`` of the best constant;
    ``networks``: how many were trained at once.
    """

    parameters: np.ndarray
    errors: dict[str, np.ndarray]
    constant_error: float
    networks: int


def grid(n: int = POINTS) -> np.ndarray:
    """Return n evenly spaced points of [-2, 2]."""
    return np.linspace(LOW, HIGH, n)


def units_of(activation: str, width: int) -> int:
    """Return the units that have 3 width + 1 parameters: width of a plain layer (3 each), 3/5 of it of a gated one (5 each)."""
    return 3 * width // 5 if ACTIVATIONS[activation].gated else width


def drawn_points(drawing: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    """Return x and y of a drawing x1, y1, x2, y2, ...; raise InputError if it is no function of x with 4 to 33 points."""
    if len(drawing) % 2:
        raise InputError(f"The drawing holds {len(drawing)} numbers; an even count is needed: x1, y1, x2, y2 and so on.")
    x, y = np.asarray(drawing[::2], dtype=float), np.asarray(drawing[1::2], dtype=float)
    if not FEWEST_POINTS <= len(x) <= MOST_POINTS:
        raise InputError(f"The drawing has {len(x)} points; {FEWEST_POINTS} to {MOST_POINTS} are needed.")
    if not (np.isfinite(x).all() and np.isfinite(y).all() and np.abs(x).max() <= HIGH and np.abs(y).max() <= HIGH):
        raise InputError("The drawing has a point outside -2 to 2; both coordinates must lie within.")
    for before, after in pairwise(x):
        if after == before:
            raise InputError(f"The drawing has two values at x = {after:g}; a function has one.")
        if after < before:
            raise InputError(f"The drawing goes back from x = {before:g} to {after:g}; its points must go from left to right.")
    return x, y


def target_values(params: FfnParams, x: np.ndarray) -> np.ndarray:
    """Return the target at x: a chosen curve, or straight lines through the points drawn, level beyond the outer ones."""
    if params.target == "drawn":
        return np.interp(x, *drawn_points(params.drawing))
    return CURVES[params.target](x)


@uses("width", "seed", "cutoff", "target", "drawing")
def fit(params: FfnParams, on_step: OnStep = silent) -> FitResult:
    """Return all four activations fitted to the target with 3 width + 1 parameters each, at every 50th of 2000 steps."""
    networks = [Network(name, units_of(name, params.width), params.seed) for name in ACTIVATIONS]
    t, t_fine = target_values(params, grid()), target_values(params, grid(FINE))
    on_step(0, STEPS, "Training")
    (snapshots,) = parallel_map(lambda part: train(part, params, STEPS, on_step), [networks])
    fits = {n.activation: _fitted(n, params.cutoff, i, snapshots, t_fine) for i, n in enumerate(networks)}
    steps = np.arange(0, STEPS + 1, SNAPSHOT_EVERY)
    chance = (random_pieces(params.width, params.cutoff), random_switches(params.width, params.cutoff) / params.width)
    return FitResult(frozen(steps), frozen(t), float(t_fine.std()), *chance, fits)


@uses("cutoff", "target", "drawing")
def sweep(params: FfnParams, on_step: OnStep = silent) -> SweepResult:
    """Return errors after 2000 steps of every activation at 16, 31, 61 and 121 parameters, eight seeds each, in one batch."""
    networks = [Network(name, units_of(name, width), seed) for name in ACTIVATIONS for width in SWEEP_WIDTHS for seed in range(SWEEP_SEEDS)]
    t_fine = target_values(params, grid(FINE))

    def trained(first: int) -> np.ndarray:
        part = networks[first::CPU_THREADS]
        snapshots = train(part, params, STEPS, on_step if first == 0 else silent, keep_all=False)
        return np.array([_errors(n, params.cutoff, i, snapshots, t_fine)[-1] for i, n in enumerate(part)])

    errors = np.empty(len(networks))
    for first, found in enumerate(parallel_map(trained, range(CPU_THREADS))):
        errors[first::CPU_THREADS] = found
    by_kind = dict(zip(ACTIVATIONS, errors.reshape(len(ACTIVATIONS), len(SWEEP_WIDTHS), SWEEP_SEEDS), strict=True))
    sizes = frozen(np.array([3 * width + 1 for width in SWEEP_WIDTHS]))
    return SweepResult(sizes, {name: frozen(e) for name, e in by_kind.items()}, float(t_fine.std()), len(networks))


def initial(network: Network) -> torch.Tensor:
    """Return random weights (5, units), rows w, b, v, d, c: standard normal, c with variance 1 / units; plain: v = 0, d = 1."""
    theta = torch.from_numpy(np.random.default_rng(network.seed).standard_normal((5, network.units)))
    theta[4] /= network.units**0.5
    if not ACTIVATIONS[network.activation].gated:
        theta[2], theta[3] = 0.0, 1.0
    return theta


@dataclass(frozen=True)
class Snapshots:
    """All networks at some steps: theta (snapshots, 5, all units), bias (snapshots, networks), and each network's slice of the units."""

    theta: torch.Tensor
    bias: torch.Tensor
    slices: tuple[slice, ...]


@torch.no_grad()
def train(networks: list[Network], params: FfnParams, steps: int, on_step: OnStep = silent, keep_all: bool = True) -> Snapshots:
    """Train networks together with full-batch Adam on their mean squared errors over 65 points; return snapshots.

    The units of all networks stand side by side, (5, all units), so one step is a few operations whatever the number of
    networks; their gradients do not mix. The learning rate falls in a line from 0.03 to 0. Target and cutoff are those of ``params``.
    Same losses as torch.optim.Adam on each network alone (Kingma & Ba 2015); always on the CPU, one thread (``parallel_map``): a
    step is too small for a GPU, and threads that wait for each other take longer than the arithmetic.
    """
    x, t, cutoff = torch.from_numpy(grid(TRAINED)), torch.from_numpy(target_values(params, grid(TRAINED))), params.cutoff
    slices, segments, member, free = _layout(networks)
    theta, bias = torch.cat([initial(n) for n in networks], dim=1), torch.zeros(len(networks), 1, dtype=torch.float64)
    inputs = torch.stack([x, torch.ones_like(x)], dim=1)  # (points, 2): one product gives the gradients of slope and offset
    owner = member.argmax(0)  # the network of each unit
    momenta = [[torch.zeros_like(p), torch.zeros_like(p)] for p in (theta, bias)]
    kept = [(theta.clone(), bias.clone())]
    for step in range(1, steps + 1):
        d_theta, d_bias, loss = _gradients(theta, bias, x, inputs, t, cutoff, segments, member, owner)
        rate = LEARNING_RATE * (1 - (step - 1) / steps)
        for parameter, gradient, (m, v) in zip((theta, bias), (d_theta * free, d_bias), momenta, strict=True):
            _adam(parameter, gradient, m, v, rate, step)
        if step % SNAPSHOT_EVERY == 0:
            on_step(step, steps, f"Training, mean squared error {float(loss.mean()):.2g}")
            if keep_all or step == steps:
                kept.append((theta.clone(), bias.clone()))
    return Snapshots(torch.stack([k[0] for k in kept]), torch.stack([k[1][:, 0] for k in kept]), slices)


def _layout(networks: list[Network]):
    """Return each network's slice of the units, (activation, slice) segments of one activation each, membership, what may move."""
    ends = np.cumsum([0, *(n.units for n in networks)])
    slices = tuple(slice(int(a), int(b)) for a, b in pairwise(ends))
    segments = []
    for network, part in zip(networks, slices, strict=True):
        if segments and segments[-1][0] == network.activation:
            segments[-1] = (network.activation, slice(segments[-1][1].start, part.stop))
        else:
            segments.append((network.activation, part))
    member = torch.zeros(len(networks), int(ends[-1]), dtype=torch.float64)
    free = torch.ones(5, int(ends[-1]), dtype=torch.float64)
    for i, (network, part) in enumerate(zip(networks, slices, strict=True)):
        member[i, part] = 1
        free[2:4, part] = float(ACTIVATIONS[network.activation].gated)
    return slices, segments, member, free


def _gradients(theta, bias, x, inputs, t, cutoff, segments, member, owner):
    """Return gradients of the summed mean squared errors by theta (5, units) and bias (networks, 1), and the losses (networks,)."""
    w, b, v, d, c = (row[:, None] for row in theta)
    z, u = w * x + (b - cutoff), v * x + d
    f, slope = (torch.cat([getattr(ACTIVATIONS[name], what)(z[part]) for name, part in segments]) for what in ("value", "slope"))
    a = f * u
    r = member @ (c * a) + bias - t
    g = (2 / len(x)) * r
    back = g[owner]  # (units, points): what each unit's term is to change by
    through = back * c
    d_gate, d_up = (through * slope * u) @ inputs, (through * f) @ inputs
    d_theta = torch.stack([d_gate[:, 0], d_gate[:, 1], d_up[:, 0], d_up[:, 1], (back * a).sum(1)])
    return d_theta, g.sum(1, keepdim=True), r.square().mean(1)


def _adam(parameter, gradient, m, v, rate: float, step: int) -> None:
    m.mul_(BETAS[0]).add_(gradient, alpha=1 - BETAS[0])
    v.mul_(BETAS[1]).addcmul_(gradient, gradient, value=1 - BETAS[1])
    root = (v / (1 - BETAS[1] ** step)).sqrt_().add_(EPS)
    parameter.addcdiv_(m, root, value=-rate / (1 - BETAS[0] ** step))


def _terms(activation: str, theta: torch.Tensor, x: torch.Tensor, cutoff: float) -> torch.Tensor:
    """Return c f(w x + b - cutoff) (v x + d), (..., units, points), for theta (..., 5, units)."""
    w, b, v, d, c = (row[..., None] for row in theta.unbind(-2))
    return c * ACTIVATIONS[activation].value(w * x + (b - cutoff)) * (v * x + d)


def _curves(network: Network, cutoff: float, i: int, snapshots: Snapshots, x: np.ndarray) -> np.ndarray:
    terms = _terms(network.activation, snapshots.theta[:, :, snapshots.slices[i]], torch.from_numpy(x), cutoff)
    return (terms.sum(-2) + snapshots.bias[:, i, None]).numpy()


def _errors(network: Network, cutoff: float, i: int, snapshots: Snapshots, t_fine: np.ndarray) -> np.ndarray:
    return np.sqrt(((_curves(network, cutoff, i, snapshots, grid(FINE)) - t_fine) ** 2).mean(-1))


def _fitted(network: Network, cutoff: float, i: int, snapshots: Snapshots, t_fine: np.ndarray) -> Fitted:
    gated = ACTIVATIONS[network.activation].gated
    weights, bias = frozen(snapshots.theta[:, :, snapshots.slices[i]].contiguous()), frozen(snapshots.bias[:, i].contiguous())
    curves, errors = _curves(network, cutoff, i, snapshots, grid()), _errors(network, cutoff, i, snapshots, t_fine)
    return Fitted(network.activation, network.units, (5 if gated else 3) * network.units + 1, cutoff, weights, bias, frozen(curves), frozen(errors))
