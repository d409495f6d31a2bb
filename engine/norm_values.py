"""What the norms lab can be asked, and the values that it puts in: a block (batch, tokens, features), and what batches are drawn from."""

import math
from dataclasses import dataclass

import numpy as np
import torch

from engine.errors import InputError
from engine.models.catalog import PROSE
from engine.models.loading import open_model, open_tokenizer
from engine.models.streams import norm_inputs
from engine.models.weights import model_shape
from engine.normalisation import NORMS
from engine.progress import OnStep, silent

VALUES = ("gaussian", "shifted", "heavy", "constant", "real")
STACKS = ("relu", "linear")
INITS = ("torch", "xavier", "he", "orthogonal")
PLACES = ("none", "post", "pre")
MOST = {"batch": 256, "tokens": 256, "features": 4096, "depth": 200, "width": 128, "seeds": 32}
MOST_ENTRIES = 2**20
PASSAGES, POSITIONS, SKIPPED = 16, 1024, 4000


@dataclass(frozen=True)
class NormsParams:
    """What the norms lab can be asked. ``norm``: batch, layer or rms.

    ``values`` of the block (``batch``, ``tokens``, ``features``): gaussian N(0, 1); shifted, each feature around a mean of
    its own; heavy, Student's t with 3 degrees of freedom; constant, each token the same number throughout; real, the
    residual stream of ``model`` halfway up on held-out prose (features: its d_model). ``running``: BatchNorm in evaluation,
    with the statistics kept while it saw 100 other batches of such values; the other norms have none. ``outlier``: one entry set to this
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
    running: bool = False

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


def inputs_of(params: NormsParams, on_step: OnStep = silent) -> torch.Tensor:
    """Return the block (batch, tokens, features) in float64 that the settings describe, the outlier in place."""
    if params.values == "real":
        x = real_stream(params.model, params.batch, params.tokens, on_step)
    else:
        size = (params.batch, params.tokens, params.features)
        x, means = _drawn(params.values, size, np.random.default_rng(params.seed))
        x = x + means
    if params.outlier:
        x[marked(x.shape)] = params.outlier
    return x


def marked(shape: tuple[int, ...]) -> tuple[int, int, int]:
    """Return the entry that the outlier is put in: first sample, a token and a feature in the middle."""
    return 0, shape[1] // 2, shape[2] // 3


def real_stream(model: str, batch: int, tokens: int, on_step: OnStep = silent, skip: int = 0) -> torch.Tensor:
    """Return the residual stream that the middle norm of a model receives on passages of held-out prose, (batch, tokens, d_model).

    ``skip``: characters of the prose to pass over. Raises InputError if the prose or the model's context is too short.
    """
    on_step(0, 1, "Running the model")
    ids = open_tokenizer(model)(PROSE.read_text(encoding="utf-8")[skip:][: 40 * batch * tokens + 400])["input_ids"][: batch * tokens]
    if len(ids) < batch * tokens or tokens > model_shape(model).context:
        raise InputError(f"A block of {batch} x {tokens} real tokens is more than this model and the bundled text give; take fewer.")
    seen = list(norm_inputs(open_model(model, on_step), [ids[i * tokens : (i + 1) * tokens] for i in range(batch)]).values())
    return seen[len(seen) // 2].double().cpu()


def population(params: NormsParams, on_step: OnStep = silent) -> torch.Tensor:
    """Return what batches are drawn from: many positions with values of the block's kind and no outlier, (positions, features).

    1024 positions; real ones are 16 later passages of the bundled prose. Where features are shifted, their means are the block's own.
    """
    if params.values == "real":
        tokens = min(POSITIONS // PASSAGES, model_shape(params.model).context)
        return real_stream(params.model, PASSAGES, tokens, on_step, SKIPPED).flatten(0, 1).unique(dim=0)
    _, means = _drawn(params.values, (params.batch, params.tokens, params.features), np.random.default_rng(params.seed))
    x, _ = _drawn(params.values, (POSITIONS, 1, params.features), np.random.default_rng([params.seed, 1]))
    return (x + means)[:, 0]


def _drawn(values: str, size: tuple[int, int, int], rng: np.random.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Return seeded values of one kind around 0, and what is added to every feature, (features,)."""
    zero = torch.zeros(size[-1], dtype=torch.float64)
    if values == "constant":
        return torch.from_numpy(np.repeat(rng.standard_normal((*size[:2], 1)), size[-1], 2)), zero
    if values == "heavy":
        return torch.from_numpy(rng.standard_t(3, size)), zero
    x = torch.from_numpy(rng.standard_normal(size))
    return x, torch.from_numpy(rng.normal(1, 2, size[-1])) if values == "shifted" else zero
