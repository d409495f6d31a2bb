"""Norms: which numbers are averaged, and what is lost, on a block (batch, tokens, features).

Sources: seed 002 (BatchNorm, LayerNorm, RMSNorm, exercises 4 and 11); the papers named in ``engine.normalisation``.
"""

from dataclasses import dataclass

import numpy as np
import torch

from engine.errors import InputError
from engine.norm_values import NormsParams, inputs_of, marked, population
from engine.normalisation import NORMS, check_input, directions_lost, evaluate, jacobian, normalise, running_statistics
from engine.params import Number, frozen, uses
from engine.progress import OnStep, silent

MOST_IN_JACOBIAN = 512
TRAINED, MOST_TRAINED = 100, 2**16
RUNNING = ("In evaluation BatchNorm shifts and scales by numbers kept from 100 earlier batches: the outlier and the company do not move them.",)


@dataclass(frozen=True)
class BlockResult:
    """One norm on one block: ``before`` and ``after`` (batch, tokens, features), and each set's statistics.

    ``*_mean`` and ``*_rms`` keep averaged axes at size 1. ``at``: the entry that the outlier sits in. ``lost``: directions
    of its set that get through at less than 1 % of the others. ``torch_difference``: the largest difference from torch's
    own module. ``notes``: sentences on what is special about this input.
    """

    norm: str
    axes: tuple[int, ...]
    set_shape: tuple[int, ...]
    set_size: int
    at: tuple[int, int, int]
    lost: int
    torch_difference: float
    notes: tuple[str, ...]
    before: np.ndarray
    after: np.ndarray
    before_mean: np.ndarray
    before_rms: np.ndarray
    after_mean: np.ndarray
    after_rms: np.ndarray

    def set_at(self, what: str) -> float:
        """Return a statistic, such as ``before_mean``, of the set that the marked entry is in."""
        return float(getattr(self, what)[tuple(0 if axis in self.axes else i for axis, i in enumerate(self.at))])

    def others(self, block: np.ndarray) -> float:
        """Return the root mean square of the entries of the marked set other than the marked one."""
        members = np.square(block[tuple(slice(None) if axis in self.axes else i for axis, i in enumerate(self.at))])
        return float(np.sqrt((members.sum() - block[self.at] ** 2) / max(members.size - 1, 1)))


@dataclass(frozen=True)
class ReportResult:
    """All norms on one seeded block, (batch, tokens, features), and both Jacobians at the token that holds the outlier.

    Singular values descending, (features,); row sums (features,); ``*_rank``: singular values above rounding.
    """

    eps: float
    seed: int
    inputs: np.ndarray
    batch: np.ndarray | None
    layer: np.ndarray
    rms: np.ndarray
    layer_singular_values: np.ndarray
    rms_singular_values: np.ndarray
    layer_row_sums: np.ndarray
    rms_row_sums: np.ndarray
    layer_rank: int
    rms_rank: int


@uses("norm", "values", "batch", "outlier", "tokens", "features", "eps", "seed", "model", "running")
def block(params: NormsParams, on_step: OnStep = silent) -> BlockResult:
    """Return what the chosen norm does to the block. Raises InputError where it is undefined (see ``engine.normalisation``)."""
    x, norm = inputs_of(params, on_step), NORMS[params.norm]
    seen = seen_in_training(params, len(x) * x.shape[1], on_step) if params.norm == "batch" and params.running else None
    y, lost = _trained(params, x) if seen is None else _evaluated(seen, x, params.eps)
    rms = lambda z: z.square().mean(norm.axes, keepdim=True).sqrt()  # noqa: E731
    at = marked(x.shape)
    own = tuple(slice(0, 1) if axis in norm.axes else slice(i, i + 1) for axis, i in enumerate(at))
    mean = x.mean(norm.axes, keepdim=True)
    return BlockResult(
        params.norm,
        norm.axes,
        norm.set_shape(x.shape),
        x.numel() // mean.numel(),
        at,
        int(lost[own]),
        float((y - torch_module(params.norm, x, params.eps, seen)).abs().max()),
        RUNNING if seen is not None else _notes(params.norm, x),
        *(frozen(z) for z in (x, y, mean, rms(x), y.mean(norm.axes, keepdim=True), rms(y))),
    )


def seen_in_training(params: NormsParams, positions: int, on_step: OnStep = silent) -> torch.Tensor:
    """Return the batches that BatchNorm saw in training before it is evaluated, (100, positions, features): other draws of such values."""
    values = population(params, on_step)
    if positions * values.shape[1] > MOST_TRAINED:
        raise InputError(f"100 batches of {positions} positions and {values.shape[1]} features are too many; at most {MOST_TRAINED} entries a batch.")
    generator = torch.Generator().manual_seed(params.seed + 1)
    return values[torch.randint(len(values), (TRAINED, max(positions, 2)), generator=generator)]


def _trained(params: NormsParams, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a norm's output with the block's own statistics, and the directions lost of every set."""
    norm = NORMS[params.norm]
    return normalise(params.norm, x, params.eps), directions_lost(x, norm.axes, params.eps, norm.centred)


def _evaluated(seen: torch.Tensor, x: torch.Tensor, eps: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Return BatchNorm's output with the statistics kept from ``seen``, and 0 directions lost: the map only shifts and scales."""
    check_input(x, eps)
    mean, variance = running_statistics(seen)
    return evaluate(x, mean[-1], variance[-1], eps), torch.zeros(1, 1, x.shape[-1])


def torch_module(norm: str, x: torch.Tensor, eps: float, seen: torch.Tensor | None = None) -> torch.Tensor:
    """Return what torch's own module gives for x (batch, tokens, features), without gain.

    BatchNorm is in training, or, where it has ``seen`` batches (steps, positions, features), in evaluation after them.
    """
    d = x.shape[-1]
    if norm == "batch":
        eps = max(eps, torch.finfo(x.dtype).tiny)  # torch refuses BatchNorm with epsilon 0 in training
        module = torch.nn.BatchNorm1d(d, eps, affine=False, dtype=x.dtype)
        for batch in () if seen is None else seen:
            module(batch)
        return module.train(seen is None)(x.mT).mT  # torch wants (batch, features, tokens)
    if norm == "layer":
        return torch.nn.functional.layer_norm(x, (d,), eps=eps)
    return torch.nn.functional.rms_norm(x, (d,), eps=eps)


def block_numbers(params: NormsParams, result: BlockResult) -> dict[str, Number]:
    """Return what is read off the marked set: mean, RMS, the other entries (if there are any) and directions lost, each beside what was before."""
    others, alone = result.others(result.after), result.set_size == 1
    numbers = {
        "mean": Number("Mean of the marked set", round(result.set_at("after_mean"), 9) + 0.0, None, 2, "", result.set_at("before_mean")),
        "rms": Number("RMS of the marked set", result.set_at("after_rms"), None, 2, "", result.set_at("before_rms")),
        "others": Number("RMS of its other entries", others, None, 3, "", result.others(result.before)),
        "answers": Number("Different numbers, to one digit", different(result.after), None, 0, "", different(result.before)),
        "lost": Number(f"Directions lost: below 1 %, epsilon {params.eps:g}", result.lost, 0, 0, f" of {result.set_size}", against="without a norm"),
    }
    return {name: number for name, number in numbers.items() if not (alone and name == "others")}


def entries(result: BlockResult) -> tuple[list[str], list[list]]:
    """Return header and rows for a CSV: one row per entry of the block, before and after."""
    rows = [[*where, float(result.before[where]), float(result.after[where])] for where in np.ndindex(result.before.shape)]
    return ["sample", "token", "feature", "before", f"after {NORMS[result.norm].label}"], rows


def different(values: np.ndarray) -> int:
    """Return how many different numbers there are, to one digit after the point."""
    return len(np.unique(np.round(values, 1) + 0.0))


def report(params: NormsParams, on_step: OnStep = silent) -> ReportResult:
    """Return every norm's output for the seeded block and both Jacobians' numbers (the command line's entry)."""
    x = inputs_of(params, on_step)
    b, t, _ = marked(x.shape)
    check_features(x.shape[-1])
    J = {norm: jacobian(x[b, t], params.eps, NORMS[norm].centred) for norm in ("layer", "rms")}
    spectra = {norm: torch.linalg.svdvals(J[norm]) for norm in J}
    single = x.shape[0] * x.shape[1] < 2
    return ReportResult(
        params.eps,
        params.seed,
        frozen(x),
        None if single else frozen(normalise("batch", x, params.eps)),
        *(frozen(normalise(norm, x, params.eps)) for norm in J),
        *(frozen(values) for values in spectra.values()),
        *(frozen(matrix.sum(-1)) for matrix in J.values()),
        *(rank_of(values) for values in spectra.values()),
    )


def table(result: ReportResult) -> tuple[list[str], list[list]]:
    """Return header and rows for a terminal: one row per norm with a Jacobian."""
    header = ["norm", "largest output", "rank", "sigma_1", "sigma_(d-1)", "sigma_d", "largest row sum"]
    rows = []
    for norm in ("layer", "rms"):
        sigma, sums = getattr(result, f"{norm}_singular_values"), getattr(result, f"{norm}_row_sums")
        largest = float(np.abs(getattr(result, norm)).max())
        rank = getattr(result, f"{norm}_rank")
        rows.append([NORMS[norm].label, largest, rank, float(sigma[0]), float(sigma[-2:][0]), float(sigma[-1]), float(np.abs(sums).max())])
    return header, rows


def rank_of(singular_values: torch.Tensor) -> int:
    """Return the numerical rank: how many singular values (d,) exceed d * rounding * the largest."""
    d = len(singular_values)
    return int((singular_values > d * torch.finfo(singular_values.dtype).eps * singular_values.max()).sum())


def check_features(d: int) -> None:
    """Raise InputError for a Jacobian too large to look at."""
    if d > MOST_IN_JACOBIAN:
        raise InputError(f"The Jacobian of {d} features is too large to compute while one waits; at most {MOST_IN_JACOBIAN} are accepted.")


def _notes(norm: str, x: torch.Tensor) -> tuple[str, ...]:
    d, positions = x.shape[-1], x.shape[0] * x.shape[1]
    said = [
        (norm == "layer" and d == 1, "With one feature LayerNorm gives 0 whatever comes in: the mean is the number itself."),
        (norm == "layer" and d == 2, "With two features LayerNorm has two answers only, (1, -1) and (-1, 1): which of the two is larger."),
        (norm == "rms" and d == 1, "With one feature RMSNorm keeps the sign only."),
        (norm == "batch" and positions == 2, "With two positions BatchNorm answers 1 or -1 for every feature: which position had more of it."),
    ]
    return tuple(sentence for holds, sentence in said if holds)
