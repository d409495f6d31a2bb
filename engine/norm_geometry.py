"""Where the norms send points, and what their Jacobians let through.

Sources: seeds 000 and 004 (which say unit sphere and doubly stochastic; measured here); formulas: ``engine.normalisation``.
"""

from dataclasses import dataclass

import numpy as np
import torch

from engine.errors import InputError
from engine.norm_values import NormsParams, inputs_of, marked
from engine.normalisation import LOST_BELOW, NORMS, jacobian, standardise
from engine.norms import check_features, rank_of
from engine.params import Number, frozen, uses
from engine.progress import OnStep, silent

POINTS, DRAWS = 240, 200
MEANS = np.linspace(0, 5, 51)
EPSILONS = 10.0 ** np.arange(-16, 2.1, 1)
STEP_SIZES = 10.0 ** np.linspace(-5, 1.5, 27)


@dataclass(frozen=True)
class GeometryResult:
    """Points before and after: ``*_3`` (points, 3) and ``*_2`` (points, 2), each ``points``, ``layer`` and ``rms``.

    ``d``: features of the curve; ``means`` (k,); ``angle``, ``low``, ``high`` (k,): mean angle between both norms' outputs in
    degrees and its 5 and 95 % over 200 Gaussian vectors with that mean added; ``expected`` (k,): arctan(mean), d large.
    ``here``: the mean angle at the mean asked for. ``radius``: mean length of both norms' outputs in
    R^3; ``limit_2`` (n, 2): the different points that LayerNorm leaves in R^2 with epsilon 0, to 3 digits; ``eps``: epsilon elsewhere.
    """

    mean: float
    eps: float
    d: int
    points_3: np.ndarray
    layer_3: np.ndarray
    rms_3: np.ndarray
    points_2: np.ndarray
    layer_2: np.ndarray
    rms_2: np.ndarray
    means: np.ndarray
    angle: np.ndarray
    low: np.ndarray
    high: np.ndarray
    expected: np.ndarray
    here: float
    radius: float
    limit_2: np.ndarray

    def numbers(self) -> tuple[Number, ...]:
        """Return the radius beside the unit sphere of the source, the answers left in R^2, and the angle beside random directions."""
        return (
            Number("Length of the outputs in R³, mean", self.radius, 1.0, 3, against="the source says"),
            Number("LayerNorm's answers in R², epsilon 0", len(self.limit_2), len(self.points_2), 0, against="points put in"),
            Number(f"Angle between the norms, {self.d} features", self.here, 90.0, 1, "°", against="random directions"),
        )


@dataclass(frozen=True)
class JacobianResult:
    """Both Jacobians at one vector of d features; of each ``layer`` and ``rms``.

    ``singular_values`` (d,) descending; ``row_sums`` (d,); ``rank`` at the epsilon asked for and ``rank_at_0`` without it
    (None where the norm is undefined there); ``lost``: singular values below 1 % of 1 / s; ``autograd``: the largest
    difference from torch's autograd through its own norm; ``last`` (epsilons,): the singular value along c as epsilon
    moves, ``formula`` (epsilons,): eps / s^3, both over 1 / s; ``error`` (steps,): |f(x + h) - f(x) - J h| over
    |f(x + h) - f(x)| for steps h of those sizes over the input's RMS.
    """

    d: int
    eps: float
    scale: float
    matrix: np.ndarray
    singular_values: np.ndarray
    row_sums: np.ndarray
    rank: int
    rank_at_0: int | None
    lost: int
    autograd: float
    unscaled: float
    last: np.ndarray
    formula: np.ndarray
    error: np.ndarray


@dataclass(frozen=True)
class JacobiansResult:
    """``layer`` and ``rms`` at the same vector; ``epsilons`` and ``steps`` are the axes of ``last`` and ``error``.

    A norm that is undefined there is None, and ``refused`` says why.
    """

    layer: JacobianResult | None
    rms: JacobianResult | None
    refused: str | None
    epsilons: np.ndarray
    steps: np.ndarray

    @property
    def defined(self) -> dict[str, JacobianResult]:
        """The norms that have a Jacobian at this vector, by name."""
        return {name: found for name, found in (("layer", self.layer), ("rms", self.rms)) if found is not None}

    def numbers(self) -> tuple[Number, ...]:
        """Return directions lost beside none, LayerNorm's largest row sum beside a doubly stochastic matrix's, and the distance from autograd."""
        lost = tuple(
            Number(f"{NORMS[name].label}: directions lost, below 1 %", found.lost, 0, 0, f" of {found.d}", against="without a norm")
            for name, found in self.defined.items()
        )
        if self.layer is None:
            return lost
        layer = self.layer
        return (
            *lost,
            Number("LayerNorm: largest row sum", float(np.abs(layer.row_sums).max()), 1.0, 3, against="doubly stochastic"),
            Number("LayerNorm: smallest entry times s", float(layer.matrix.min() * layer.scale), 0.0, 3, against="stochastic: at least"),
        )


@uses("mean", "eps", "seed", "features")
def geometry(params: NormsParams, on_step: OnStep = silent) -> GeometryResult:
    """Return where Gaussian points with a mean added go in R^3 and R^2, and the angle between both norms' outputs in d dimensions."""
    rng = torch.Generator().manual_seed(params.seed)
    draw = lambda *size: torch.randn(*size, generator=rng, dtype=torch.float64)  # noqa: E731
    sent = {}
    for n in (3, 2):
        points = draw(POINTS, n) + params.mean
        sent |= {f"points_{n}": points, **{f"{name}_{n}": _sent(name, points, params.eps) for name in ("layer", "rms")}}
    if params.features < 2:
        raise InputError("With one feature LayerNorm's output is 0, which has no direction; give at least 2 features.")
    x = draw(DRAWS, params.features)
    curve = np.stack([_angles(x + mean, params.eps) for mean in MEANS])
    low, high = np.percentile(curve, (5, 95), axis=1)
    lengths = torch.cat([sent["layer_3"], sent["rms_3"]]).norm(dim=-1)
    return GeometryResult(
        params.mean,
        params.eps,
        params.features,
        **{name: frozen(value) for name, value in sent.items()},
        means=frozen(MEANS.copy()),
        angle=frozen(curve.mean(1)),
        low=frozen(low),
        high=frozen(high),
        expected=frozen(np.degrees(np.arctan(MEANS))),
        here=float(_angles(x + params.mean, params.eps).mean()),
        radius=float(lengths.mean()),
        limit_2=frozen(torch.unique(_sent("layer", sent["points_2"], 0.0).round(decimals=3), dim=0)),
    )


@uses("values", "batch", "outlier", "tokens", "features", "eps", "seed", "model")
def jacobians(params: NormsParams, on_step: OnStep = silent) -> JacobiansResult:
    """Return both norms' Jacobians at the token of the block that holds the marked entry.

    Raises InputError above 512 features, and where both norms are undefined (``engine.normalisation.standardise``).
    """
    block = inputs_of(params, on_step)
    x = block[marked(block.shape)[:2]]
    check_features(len(x))
    on_step(0, 1, "Singular values of the Jacobians")
    found, refused = {}, {}
    for name in ("layer", "rms"):
        try:
            found[name] = _studied(name, x, params.eps, params.seed)
        except InputError as error:
            refused[name] = f"{NORMS[name].label} has no Jacobian here. {error}"
    if not found:
        raise InputError(refused["rms"])
    return JacobiansResult(
        found.get("layer"), found.get("rms"), next(iter(refused.values()), None), frozen(EPSILONS.copy()), frozen(STEP_SIZES.copy())
    )


def jacobian_table(result: JacobiansResult, eps: float) -> tuple[list[str], list[list[str]]]:
    """Return header and rows of what is measured on the Jacobians of the norms that are defined."""
    rows = {
        "directions lost: singular values below 1 % of 1 / s": lambda found: f"{found.lost} of {found.d}",
        f"rank above rounding, epsilon {eps:g}": lambda found: f"{found.rank} of {found.d}",
        "rank above rounding, epsilon 0": lambda found: "undefined" if found.rank_at_0 is None else f"{found.rank_at_0} of {found.d}",
        "last singular value that epsilon keeps, times s": lambda found: f"{found.eps / found.scale**2:.1e}",
        "largest row sum": lambda found: f"{abs(found.row_sums).max():.1e}",
        "difference from autograd through torch's norm": lambda found: f"{found.autograd:.1e}",
        "the same, if 1 / s is left out": lambda found: f"{found.unscaled:.1e}",
    }
    header = ["measured here", *(NORMS[name].label for name in result.defined)]
    return header, [[what, *(measure(found) for found in result.defined.values())] for what, measure in rows.items()]


def _studied(name: str, x: torch.Tensor, eps: float, seed: int) -> JacobianResult:
    centred = NORMS[name].centred
    J = jacobian(x, eps, centred)
    by_autograd = torch.autograd.functional.jacobian(lambda v: _torch_norm(name, v, eps), x)
    sigma = torch.linalg.svdvals(J)
    s = float(standardise(x, (-1,), eps, centred)[2])
    try:
        at_0 = rank_of(torch.linalg.svdvals(jacobian(x, 0.0, centred)))
    except InputError:  # 0 / 0 without epsilon
        at_0 = None
    last, formula = zip(*(_along_length(x, float(e), centred) for e in EPSILONS), strict=True)
    return JacobianResult(
        len(x),
        eps,
        s,
        frozen(J),
        frozen(sigma),
        frozen(J.sum(-1)),
        rank_of(sigma),
        at_0,
        int((sigma * s < LOST_BELOW).sum()),
        float((J - by_autograd).abs().max()),
        float((s * J - by_autograd).abs().max()),
        frozen(np.array(last)),
        frozen(np.array(formula)),
        frozen(_linearisation_error(name, x, J, eps, seed)),
    )


def _along_length(x: torch.Tensor, eps: float, centred: bool) -> tuple[float, float]:
    """Return what J lets through along c, measured and by the formula eps / s^2, both as a share of 1 / s (0 if c is 0)."""
    _, mean, s = standardise(x, (-1,), eps, centred)
    c = x - mean
    if not bool(c.any()):
        return 0.0, 0.0
    return float((jacobian(x, eps, centred) @ c).norm() / c.norm() * s), eps / float(s) ** 2


def _linearisation_error(name: str, x: torch.Tensor, J: torch.Tensor, eps: float, seed: int) -> torch.Tensor:
    """Return the relative error of f(x) + J h for a random direction at every step size, (steps,); 0 where f does not move."""
    h = torch.randn(len(x), generator=torch.Generator().manual_seed(seed + 1), dtype=x.dtype)
    unit = h / h.norm() * x.norm()
    steps = torch.from_numpy(STEP_SIZES)[:, None] * unit
    f = lambda z: standardise(z, (-1,), eps, NORMS[name].centred)[0]  # noqa: E731
    moved = f(x + steps) - f(x)
    size = moved.norm(dim=-1)
    return torch.where(size > 0, (moved - steps @ J.T).norm(dim=-1) / torch.where(size > 0, size, 1.0), 0.0)


def _sent(name: str, points: torch.Tensor, eps: float) -> torch.Tensor:
    return standardise(points, (-1,), eps, NORMS[name].centred)[0]


def _torch_norm(name: str, v: torch.Tensor, eps: float) -> torch.Tensor:
    function = torch.nn.functional.layer_norm if name == "layer" else torch.nn.functional.rms_norm
    return function(v, (len(v),), eps=eps)


def _angles(x: torch.Tensor, eps: float) -> np.ndarray:
    """Return the angle in degrees between LayerNorm's and RMSNorm's output for every row of x."""
    u, v = (torch.nn.functional.normalize(_sent(name, x, eps), dim=-1) for name in ("layer", "rms"))
    return torch.rad2deg(2 * torch.atan2((u - v).norm(dim=-1), (u + v).norm(dim=-1))).numpy()  # no cancellation near 0 and 180
