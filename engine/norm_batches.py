"""Why BatchNorm depends on its company, and transformers do not use it: in numbers. Also the norms of images.

Sources: seed 002, exercises 4 and 13; Ioffe & Szegedy 2015; Wu & He 2018 (GroupNorm, 1803.08494); Ulyanov et al. 2016.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from engine.errors import InputError
from engine.norm_values import NormsParams, inputs_of, marked, population
from engine.normalisation import NORMS, evaluate, normalise, running_statistics, standardise
from engine.params import Number, frozen, uses
from engine.progress import OnStep, silent

SIZES = (2, 3, 4, 6, 8, 16, 32, 64, 128, 256)
DRAWS, MOST_FEATURES, STEPS = 64, 64, 60
IMAGE, GROUPS = (4, 8, 6, 6), 2
IMAGE_NORMS = {"BatchNorm2d": (0, 2, 3), "LayerNorm": (1, 2, 3), "InstanceNorm2d": (2, 3), "GroupNorm": None}


@dataclass(frozen=True)
class NoiseResult:
    """How much one sample's outputs move with its company, by batch size; and how running statistics catch up.

    ``sizes`` (n,); ``train``, ``evaluation``, ``layer`` (n,): standard deviation of an output over 64 draws of the other
    samples, root mean square over features; ``layer`` is None where LayerNorm is undefined. ``expected`` (n,):
    sqrt(1.5 / size), the large-batch estimate for Gaussian values. ``values``: the kind drawn.
    ``steps`` (k,) and ``apart`` (k,): root mean square of output in training - output in evaluation after that many
    batches of ``batch`` samples; ``floor``: the same with the exact mean and variance of what batches are drawn from.
    """

    values: str
    batch: int
    sizes: np.ndarray
    train: np.ndarray
    evaluation: np.ndarray
    layer: np.ndarray | None
    expected: np.ndarray
    steps: np.ndarray
    apart: np.ndarray
    floor: float

    def numbers(self) -> tuple[Number, ...]:
        """Return the noise at batches of 2 and 256, beside LayerNorm's, and the gap between training and evaluation."""
        ends = ((SIZES[i], float(self.train[i]), None if self.layer is None else float(self.layer[i])) for i in (0, -1))
        return (
            *(Number(f"Noise of an output, batch of {size}", noise, other, 3, against="LayerNorm") for size, noise, other in ends),
            Number("Training against evaluation, first batch", float(self.apart[0]), self.floor, 3, against="exact statistics"),
            Number(f"The same after {len(self.steps)} batches", float(self.apart[-1]), self.floor, 3, against="exact statistics"),
        )


@dataclass(frozen=True)
class CompanyResult:
    """What else an output depends on: rows of (what was changed, {norm: RMS change of outputs that should not care, or None if undefined}).

    Norms: batch (in training), evaluation (BatchNorm with running statistics), layer, rms. ``exchanged``: numbers that
    machines sharing a batch must add up per norm and step to get BatchNorm of the whole batch; 0 for the others.
    """

    rows: tuple[tuple[str, dict[str, float | None]], ...]
    exchanged: int


@dataclass(frozen=True)
class ImageResult:
    """Norms on images (batch, channels, height, width): rows of (name, averaged over, statistics' shape, difference from torch)."""

    shape: tuple[int, ...]
    rows: tuple[tuple[str, str, tuple[int, ...], float], ...]


@uses("values", "batch", "outlier", "tokens", "features", "eps", "seed", "model")
def batch_noise(params: NormsParams, on_step: OnStep = silent) -> NoiseResult:
    """Return how far BatchNorm's output for one fixed sample scatters with the rest of its batch, and running statistics over steps.

    The sample is the block's marked token, outlier included, its company drawn from values of the same kind; at most 64 features, evenly spaced.
    """
    block = inputs_of(params, on_step)
    b, t, at = marked(block.shape)
    step = -(-block.shape[-1] // MOST_FEATURES)
    kept = slice(at % step, None, step)
    values, sample = population(params, on_step)[:, kept], block[b, t, kept]
    generator = torch.Generator().manual_seed(params.seed + 1)
    draw = lambda n, size: values[_picked(len(values), n, size, generator)]  # noqa: E731
    exact = values.mean(0), values.var(0, correction=0)
    scatter = {"batch": [], "evaluation": [], "layer": []}
    for done, size in enumerate(SIZES):
        on_step(done, len(SIZES), "Drawing company for one sample")
        batches = torch.cat([sample.expand(DRAWS, 1, -1), draw(DRAWS, size - 1)], 1)
        scatter["batch"].append(_scatter(standardise(batches, (1,), params.eps)[0]))
        scatter["evaluation"].append(_scatter(evaluate(batches[:, :1], *exact, params.eps)))
        scatter["layer"].append(_layer_scatter(batches[:, :1], params.eps))
    size = max(params.batch, 2)
    apart, floor = _catching_up(draw(STEPS, size), exact, params.eps)
    return NoiseResult(
        params.values,
        size,
        frozen(np.array(SIZES)),
        frozen(np.array(scatter["batch"])),
        frozen(np.array(scatter["evaluation"])),
        None if None in scatter["layer"] else frozen(np.array(scatter["layer"])),
        expected=frozen(np.sqrt(1.5 / np.array(SIZES))),
        steps=frozen(np.arange(1, STEPS + 1)),
        apart=frozen(apart),
        floor=floor,
    )


def _picked(population: int, batches: int, size: int, generator: torch.Generator) -> torch.Tensor:
    """Return positions drawn at random, (batches, size), the first two of a batch never the same: a pair needs a spread."""
    index = torch.randint(population, (batches, size), generator=generator)
    if size > 1:
        index[:, 1] = (index[:, 0] + 1 + torch.randint(population - 1, (batches,), generator=generator)) % population
    return index


def _scatter(y: torch.Tensor) -> float:
    """Return the standard deviation over draws of the first sample's outputs, y (draws, samples, features), RMS over features."""
    return float(y[:, 0].var(0).mean().sqrt())


def _layer_scatter(batches: torch.Tensor, eps: float) -> float | None:
    try:
        return _scatter(standardise(batches, (2,), eps)[0])
    except InputError:  # 0 / 0 without epsilon
        return None


def _catching_up(steps: torch.Tensor, exact: tuple[torch.Tensor, torch.Tensor], eps: float) -> tuple[torch.Tensor, float]:
    """Return the RMS of training - evaluation after each of the batches (steps, samples, features), and its RMS with exact statistics."""
    mean, variance = running_statistics(steps)
    trained = standardise(steps, (1,), eps)[0]
    apart = lambda mean, variance: (trained - evaluate(steps, mean, variance, eps)).square().mean((1, 2)).sqrt()  # noqa: E731
    return apart(mean[:, None], variance[:, None]), float(apart(*exact).square().mean().sqrt())


@uses("values", "batch", "outlier", "tokens", "features", "eps", "seed", "model")
def company(params: NormsParams, on_step: OnStep = silent) -> CompanyResult:
    """Return how the first sample's outputs change with what should not matter to them: other samples, later tokens, padding, machines.

    A block of fewer than 2 samples or tokens is taken with 2 of each, so that there is something to change.
    """
    size = {"batch": max(params.batch, 2), "tokens": max(params.tokens, 2)}
    x = inputs_of(type(params)(**{**vars(params), **size}), on_step)
    rng = torch.Generator().manual_seed(params.seed + 1)
    others, later, padded = x.clone(), x.clone(), x.clone()
    others[1:] = x[1:].flip(1) + x.std() * torch.randn(x[1:].shape, generator=rng, dtype=x.dtype)
    later[0, -1] = x[0, -1] + x.std() * torch.randn(x.shape[-1], generator=rng, dtype=x.dtype)
    padded[1:, x.shape[1] // 2 :] = x.std() * torch.randn(x.shape[-1], generator=rng, dtype=x.dtype)  # one padding token, repeated
    half = x[: (len(x) + 1) // 2]
    fixed = x.flatten(0, 1).mean(0), x.flatten(0, 1).var(0, correction=0)
    norms = {name: (lambda z, name=name: normalise(name, z, params.eps)) for name in NORMS}
    norms["evaluation"] = lambda z: evaluate(z, *fixed, params.eps)
    kept = slice(0, x.shape[1] - 1)
    changed = {
        "the other samples replaced": others,
        "the sample's own last token replaced": later,
        "padding put into the others": padded,
        "half of the batch taken away": half,
    }
    rows = tuple((what, {name: _change(norm, x, z, kept) for name, norm in norms.items()}) for what, z in changed.items())
    return CompanyResult(rows, 2 * x.shape[-1] + 1)


def _change(norm: Callable, x: torch.Tensor, z: torch.Tensor, kept: slice) -> float | None:
    """Return the root mean square change of the first sample's kept outputs from x to z; None where the norm is undefined."""
    try:
        return float((norm(z)[0, kept] - norm(x)[0, kept]).square().mean().sqrt())
    except InputError:  # 0 / 0 without epsilon
        return None


@uses("seed", "eps")
def images(params: NormsParams, on_step: OnStep = silent) -> ImageResult:
    """Return what each norm averages over for a feature map (4, 8, 6, 6), its statistics' shape, and its distance from torch's module."""
    x = torch.randn(IMAGE, generator=torch.Generator().manual_seed(params.seed), dtype=torch.float64)
    rows = []
    for name, axes in IMAGE_NORMS.items():
        theirs = _module(name, max(params.eps, torch.finfo(x.dtype).tiny))(x)  # torch refuses epsilon 0 in training
        if axes is None:
            y, mean, _ = standardise(x.unflatten(1, (GROUPS, -1)), (2, 3, 4), params.eps)
            y, over = y.flatten(1, 2), f"{IMAGE[1] // GROUPS} channels, height, width"
        else:
            y, mean, _ = standardise(x, axes, params.eps)
            over = ", ".join(("batch", "channels", "height", "width")[axis] for axis in axes)
        shape = tuple(n for n in mean.shape if n > 1)
        rows.append((name, over, shape, float((y - theirs).abs().max())))
    return ImageResult(IMAGE, tuple(rows))


def _module(name: str, eps: float) -> torch.nn.Module:
    kind = getattr(torch.nn, name)
    size = {"LayerNorm": (IMAGE[1:],), "GroupNorm": (GROUPS, IMAGE[1])}.get(name, (IMAGE[1],))
    options = {"elementwise_affine": False} if name == "LayerNorm" else {"affine": False}
    return kind(*size, eps=eps, dtype=torch.float64, **options)
