"""Norms: which numbers are averaged, and what is lost, on a block (batch, tokens, features).

Sources: seed 002 (BatchNorm, LayerNorm, RMSNorm, exercises 4 and 11); the papers named in ``engine.normalisation``.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch

from engine.errors import InputError
from engine.models.catalog import ASSETS
from engine.models.loading import open_model, open_tokenizer
from engine.models.streams import norm_inputs
from engine.models.weights import model_shape
from engine.normalisation import NORMS, check_batch, directions_lost, jacobian, normalise, standardise
from engine.params import Number, frozen, uses
from engine.progress import OnStep, silent

VALUES = ("gaussian", "shifted", "heavy", "constant", "real")
STACKS = ("relu", "linear")
INITS = ("torch", "xavier", "he", "orthogonal")
PLACES = ("none", "post", "pre")
MOST = {"batch": 256, "tokens": 256, "features": 4096, "depth": 200, "width": 128, "seeds": 32}
MOST_ENTRIES = 2**20
MOST_IN_JACOBIAN = 512
PROSE = ASSETS / "data" / "held-out-prose.txt"


@dataclass(frozen=True)
class NormsParams:
    """What the norms lab can be asked. ``norm``: batch (in training), layer or rms.

    ``values`` of the block (``batch``, ``tokens``, ``features``): gaussian N(0, 1); shifted, each feature around a mean of
    its own; heavy, Student's t with 3 degrees of freedom; constant, each token the same number throughout; real, the
    residual stream of ``model`` halfway up on held-out prose (features: its d_model). ``outlier``: one entry set to this
    value, 0 leaves it. ``mean``: what is added to every feature of a point. ``prompt``: text for the model's own stream.
    The stack at initialisation: ``stack`` relu or linear, ``init``, ``place`` of the norm, ``residual``, ``depth`` blocks
    of ``width``, ``seeds`` networks, ``clip``: gradients clipped at norm 1.
    """

    norm: str = "layer"
    values: str = "gaussian"
    batch: int = 4
    outlier: float = 0.0
    tokens: int = 4
    features: int = 16
    eps: float = 1e-5
    seed: int = 0
    model: str = "fable"
    mean: float = 1.0
    prompt: str = "The true meaning of life is absurdity, and suffering"
    stack: str = "relu"
    init: str = "torch"
    place: str = "none"
    residual: bool = False
    depth: int = 100
    width: int = 64
    seeds: int = 8
    clip: bool = False

    def __post_init__(self):
        for name, accepted in (("norm", tuple(NORMS)), ("values", VALUES), ("stack", STACKS), ("init", INITS), ("place", PLACES)):
            if getattr(self, name) not in accepted:
                raise InputError(f"The setting {name} is {getattr(self, name)[:40]!r}; accepted are {', '.join(accepted)}.")
        for name, most in MOST.items():
            if not 1 <= getattr(self, name) <= most:
                raise InputError(f"The setting {name} is {getattr(self, name)}; accepted are 1 to {most}.")
        if self.batch * self.tokens * self.features > MOST_ENTRIES:
            raise InputError(f"A block {self.batch} x {self.tokens} x {self.features} is too large; at most {MOST_ENTRIES} entries are accepted.")
        for name in ("outlier", "mean", "eps"):
            if not math.isfinite(getattr(self, name)) or abs(getattr(self, name)) > 1e6:
                raise InputError(f"The setting {name} is {getattr(self, name)}; accepted are numbers up to a million.")
        if self.eps < 0 or self.seed < 0:
            raise InputError(f"Epsilon is {self.eps} and the seed {self.seed}; neither can be negative.")


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


def inputs_of(params: NormsParams, on_step: OnStep = silent) -> torch.Tensor:
    """Return the block (batch, tokens, features) in float64 that the settings describe, the outlier in place."""
    size = (params.batch, params.tokens, params.features)
    rng = np.random.default_rng(params.seed)
    if params.values == "real":
        x = real_stream(params.model, params.batch, params.tokens, on_step)
    elif params.values == "constant":
        x = torch.from_numpy(np.repeat(rng.standard_normal((*size[:2], 1)), params.features, 2))
    elif params.values == "heavy":
        x = torch.from_numpy(rng.standard_t(3, size))
    else:
        x = torch.from_numpy(rng.standard_normal(size))
        x = x + torch.from_numpy(rng.normal(1, 2, params.features)) if params.values == "shifted" else x
    if params.outlier:
        x[marked(x.shape)] = params.outlier
    return x


def marked(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Return the entry that the outlier is put in: first sample, a token and a feature in the middle."""
    return 0, shape[1] // 2, shape[2] // 3


def real_stream(model: str, batch: int, tokens: int, on_step: OnStep = silent) -> torch.Tensor:
    """Return the residual stream that the middle norm of a model receives on passages of held-out prose, (batch, tokens, d_model)."""
    on_step(0, 1, "Running the model")
    ids = open_tokenizer(model)(PROSE.read_text(encoding="utf-8")[: 40 * batch * tokens + 400])["input_ids"][: batch * tokens]
    if len(ids) < batch * tokens or tokens > model_shape(model).context:
        raise InputError(f"A block of {batch} x {tokens} real tokens is more than this model and the bundled text give; take fewer.")
    seen = list(norm_inputs(open_model(model, on_step), [ids[i * tokens : (i + 1) * tokens] for i in range(batch)]).values())
    return seen[len(seen) // 2].double().cpu()


@uses("norm", "values", "batch", "outlier", "tokens", "features", "eps", "seed", "model")
def block(params: NormsParams, on_step: OnStep = silent) -> BlockResult:
    """Return what the chosen norm does to the block. Raises InputError where it is undefined (see ``engine.normalisation``)."""
    x, norm = inputs_of(params, on_step), NORMS[params.norm]
    if params.norm == "batch":
        check_batch(*x.shape[:2])
    y, mean, _ = standardise(x, norm.axes, params.eps, norm.centred)
    rms = lambda z: z.square().mean(norm.axes, keepdim=True).sqrt()  # noqa: E731
    at = marked(x.shape)
    own = tuple(slice(0, 1) if axis in norm.axes else slice(i, i + 1) for axis, i in enumerate(at))
    lost = directions_lost(x, norm.axes, params.eps, norm.centred)[own]
    mean = x.mean(norm.axes, keepdim=True)
    return BlockResult(
        params.norm,
        norm.axes,
        norm.set_shape(x.shape),
        x.numel() // mean.numel(),
        at,
        int(lost),
        float((y - torch_module(params.norm, x, params.eps)).abs().max()),
        _notes(params.norm, x),
        *(frozen(z) for z in (x, y, mean, rms(x), y.mean(norm.axes, keepdim=True), rms(y))),
    )


def torch_module(norm: str, x: torch.Tensor, eps: float) -> torch.Tensor:
    """Return what torch's own module gives for x (batch, tokens, features), without gain, BatchNorm in training."""
    d = x.shape[-1]
    if norm == "batch":
        eps = max(eps, torch.finfo(x.dtype).tiny)  # torch refuses BatchNorm with epsilon 0 in training
        return torch.nn.BatchNorm1d(d, eps, affine=False, dtype=x.dtype)(x.mT).mT  # torch wants (batch, features, tokens)
    if norm == "layer":
        return torch.nn.functional.layer_norm(x, (d,), eps=eps)
    return torch.nn.functional.rms_norm(x, (d,), eps=eps)


def block_numbers(params: NormsParams, result: BlockResult) -> dict[str, Number]:
    """Return what is read off the marked set: mean, RMS, the other entries and directions lost, each beside what was before."""
    others, entries = result.others(result.after), f" of {result.set_size}"
    return {
        "mean": Number("Mean of the marked set", round(result.set_at("after_mean"), 9) + 0.0, None, 2, "", result.set_at("before_mean")),
        "rms": Number("RMS of the marked set", result.set_at("after_rms"), None, 2, "", result.set_at("before_rms")),
        "others": Number("RMS of its other entries", others, None, 3, "", result.others(result.before)),
        "answers": Number("Different outputs, to one digit", different(result.after), None, 0, "", different(result.before)),
        "lost": Number("Directions of the set lost", result.lost, 0, 0, entries, against="without a norm"),
    }


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
