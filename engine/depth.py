"""Stacks of blocks at initialisation: what is left of a signal, of a difference, and of a gradient after many of them.

A block is r = [x +] act(W N(x) + b), out = N(r): N in the first place is pre-norm, in the second post-norm. Everything is
computed for all seeds at once. Sources: seed 002 (initialisation, gradients and singular values), seed 003 section 06
(orthogonal initialisation); Glorot & Bengio 2010, He et al. 2015, Saxe et al. 2014.
"""

from dataclasses import dataclass

import numpy as np
import torch

from engine.device import compute_device, map_heads
from engine.errors import InputError
from engine.linalg import energy_effective_rank
from engine.norm_values import NormsParams
from engine.normalisation import NORMS, standardise
from engine.params import Number, frozen, uses
from engine.progress import OnStep, silent

MOST_WEIGHTS = 2**25
CLIP_AT = 1.0
CHECKPOINTS = 12
UNCHANGED = "unchanged"


@dataclass(frozen=True)
class DepthResult:
    """Stacks of ``depth`` blocks, one per seed. Axis 0 is the seed, axis 1 the number of blocks passed, 0 .. depth.

    ``signal``: root mean square; ``difference``: |x - y| over its value at the input, for two independent inputs, computed
    without cancellation; ``gradient``: norm of the gradient of v . output with respect to that point, v a random unit vector.
    ``weight_gradient`` (seeds, depth): norm of the gradient of each block's weights and bias together; ``clipped``: after
    clipping all of them at norm 1. ``depths`` (k,), ``singular_values`` (seeds, k, width), ``effective_rank`` (seeds, k): of
    the Jacobian from the input to that depth.
    """

    depth: int
    width: int
    seeds: int
    norm: str
    signal: np.ndarray
    difference: np.ndarray
    gradient: np.ndarray
    weight_gradient: np.ndarray
    clipped: np.ndarray
    depths: np.ndarray
    singular_values: np.ndarray
    effective_rank: np.ndarray

    def numbers(self) -> dict[str, Number]:
        """Return what is left after all blocks: powers of ten (medians over seeds) and the effective rank of the Jacobian."""
        power = lambda values: round(float(np.median(log10(values))), 6) + 0.0  # noqa: E731
        first, last = (float(np.median(self.effective_rank[:, i])) for i in (0, -1))
        return {
            "signal": Number("Signal, power of ten", power(self.signal[:, -1] / self.signal[:, 0]), 0.0, 1, against=UNCHANGED),
            "difference": Number("Difference of two inputs, power of ten", power(self.difference[:, -1]), 0.0, 1, against=UNCHANGED),
            "gradient": Number("Gradient at the input, power of ten", power(self.gradient[:, 0]), 0.0, 1, against=UNCHANGED),
            "rank": Number("Effective rank of the Jacobian", last, first, 1, f" of {self.width}", against="one block"),
        }

    def clip_numbers(self) -> tuple[Number, ...]:
        """Return the first network's largest and smallest weight gradient and their ratio, each beside what they were before clipping."""
        before, after = (log10(g[0]) for g in (self.weight_gradient, self.clipped))
        return (
            Number("Largest weight gradient, power of ten", float(after.max()), None, 1, "", float(before.max())),
            Number("Smallest, power of ten", float(after.min()), None, 1, "", float(before.min())),
            Number("Ratio of both, power of ten", float(np.ptp(after)), None, 1, "", float(np.ptp(before))),
        )


@dataclass(frozen=True)
class _Norm:
    """A norm's answer for x, with what its differential needs."""

    centred: bool
    c: torch.Tensor
    s: torch.Tensor

    @classmethod
    def at(cls, x: torch.Tensor, name: str, eps: float) -> "_Norm":
        y, _, s = standardise(x, (-1,), eps, NORMS[name].centred)
        return cls(NORMS[name].centred, y * s, s)

    @property
    def y(self) -> torch.Tensor:
        return self.c / self.s

    def difference(self, delta: torch.Tensor) -> torch.Tensor:
        """Return N(x + delta) - N(x) without subtracting two numbers that are nearly the same."""
        e = self._centre(delta)
        grown = (2 * self.c * e + e.square()).mean(-1, keepdim=True)  # s'^2 - s^2
        s_after = (self.s.square() + grown).clamp_min(torch.finfo(e.dtype).tiny).sqrt()
        return e / s_after - self.c * grown / (self.s * s_after * (self.s + s_after))

    def times(self, M: torch.Tensor) -> torch.Tensor:
        """Return J M for M (..., d, n), with J = (P - y y^T / d) / s."""
        M = self._centre(M.mT).mT
        y = self.y[..., None]
        return (M - y * (y.mT @ M) / len(self.y[0])) / self.s[..., None]

    def _centre(self, v: torch.Tensor) -> torch.Tensor:
        return v - v.mean(-1, keepdim=True) if self.centred else v


@dataclass(frozen=True)
class _Block:
    """One block of every seed at its input: what its differential needs. ``open``: 1 where ReLU lets through; norms may be None."""

    W: torch.Tensor
    open: torch.Tensor
    entering: torch.Tensor
    residual: bool
    pre: _Norm | None
    post: _Norm | None

    def push(self, M: torch.Tensor) -> torch.Tensor:
        """Return (d out / dx) M for M (seeds, n, k)."""
        R = self.open[..., None] * (self.W @ (self.pre.times(M) if self.pre else M))
        R = M + R if self.residual else R
        return self.post.times(R) if self.post else R

    def pull(self, g: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the gradients with respect to z = W u + b and to x, for the gradient g (seeds, n, 1) of the output."""
        g_r = self.post.times(g) if self.post else g
        g_z = self.open[..., None] * g_r
        g_u = self.W.mT @ g_z
        g_x = self.pre.times(g_u) if self.pre else g_u
        return g_z, g_x + g_r if self.residual else g_x


@uses("norm", "eps", "stack", "init", "place", "residual", "depth", "width", "seeds", "seed")
def depth_study(params: NormsParams, on_step: OnStep = silent) -> DepthResult:
    """Return signal, difference, gradient and Jacobian of the stack for every seed; BatchNorm is taken as LayerNorm here.

    Raises InputError if all weights together exceed 2^25 numbers.
    """
    if params.seeds * params.depth * params.width**2 > MOST_WEIGHTS:
        raise InputError(
            f"{params.seeds} networks of {params.depth} blocks of width {params.width} are too many to wait for; take fewer or narrower."
        )
    device = torch.empty(0, device=compute_device().name)
    return map_heads(lambda asked: _studied(asked, on_step), [params], device)[0]  # one thread: two take ten times as long


def _studied(params: NormsParams, on_step: OnStep) -> DepthResult:
    """Return the study, computed by the thread that calls."""
    W, b, x, delta, v = drawn(params)
    name = "layer" if params.norm == "batch" else params.norm
    track, blocks, depths, spectra = [(x, delta)], [], checkpoints(params.depth), []
    whole = torch.eye(params.width, dtype=x.dtype, device=x.device).expand(len(W), -1, -1)
    for layer in range(params.depth):
        on_step(layer, params.depth, f"{params.seeds} networks, block by block")
        passed, *here = _through(params, name, W[:, layer], b[:, layer], *track[-1])
        whole = passed.push(whole)
        track.append(here)
        blocks.append(passed)
        if layer + 1 in depths:
            spectra.append(torch.linalg.svdvals(whole))
    gradient, weight_gradient = _backward(blocks, v)
    sizes = [torch.stack([part[i].norm(dim=-1) for part in track], 1) for i in (0, 1)]
    values = torch.stack(spectra, 1)
    total = weight_gradient.square().sum(1, keepdim=True).sqrt()
    return DepthResult(
        params.depth,
        params.width,
        params.seeds,
        name,
        frozen(sizes[0] / params.width**0.5),
        frozen(sizes[1] / sizes[1][:, :1]),
        frozen(gradient),
        frozen(weight_gradient),
        frozen(weight_gradient * (CLIP_AT / total).clamp_max(1.0)),
        frozen(np.array(depths)),
        frozen(values),
        frozen(energy_effective_rank(values.cpu().numpy())),
    )


def drawn(params: NormsParams) -> tuple[torch.Tensor, ...]:
    """Return W (seeds, depth, n, n), b (seeds, depth, n), input x, difference to a second input, and v, (seeds, n) each.

    Every network is drawn by a generator of its own, so it is the same alone as among others.
    """
    n, drawn = params.width, []
    for seed in range(params.seed, params.seed + params.seeds):
        rng = torch.Generator().manual_seed(seed)
        draw = lambda *size, rng=rng: torch.randn(*size, generator=rng, dtype=torch.float64)  # noqa: E731
        x, y, v = draw(n), draw(n), draw(n)
        drawn.append((*_weights(params, rng, draw), x, y - x, v / v.norm()))
    return tuple(torch.stack(part).to(compute_device().name) for part in zip(*drawn, strict=True))


def _weights(params: NormsParams, rng: torch.Generator, draw) -> tuple[torch.Tensor, torch.Tensor]:
    """Return W (depth, n, n) and b (depth, n): torch's default U(-1/sqrt n, 1/sqrt n) for both, else b = 0.

    xavier: N(0, 1/n); he: N(0, 2/n); orthogonal: Q of a Gaussian's QR with R's diagonal positive, times sqrt 2 before ReLU.
    """
    depth, n = params.depth, params.width
    if params.init == "torch":
        uniform = lambda *size: (2 * torch.rand(*size, generator=rng, dtype=torch.float64) - 1) / n**0.5  # noqa: E731
        return uniform(depth, n, n), uniform(depth, n)
    W, b = draw(depth, n, n), torch.zeros(depth, n, dtype=torch.float64)
    if params.init == "orthogonal":
        Q, R = torch.linalg.qr(W)
        return Q * R.diagonal(0, -2, -1).sign()[:, None, :] * (2**0.5 if params.stack == "relu" else 1.0), b
    return W * ((2.0 if params.init == "he" else 1.0) / n) ** 0.5, b


def _through(params: NormsParams, name: str, W, b, x, delta) -> tuple[_Block, torch.Tensor, torch.Tensor]:
    """Return the block at x, its output and the difference of both inputs' outputs, (seeds, n) each."""
    pre = _Norm.at(x, name, params.eps) if params.place == "pre" else None
    u, moved = (pre.y, pre.difference(delta)) if pre else (x, delta)
    z, e = (W @ u[..., None])[..., 0] + b, (W @ moved[..., None])[..., 0]
    f, open_ = z, torch.ones_like(z)
    if params.stack == "relu":
        f, open_ = z.clamp_min(0), (z > 0).to(z.dtype)
        e = torch.where((z > 0) & (z + e > 0), e, (z + e).clamp_min(0) - f)
    if params.residual:
        f, e = x + f, delta + e
    post = _Norm.at(f, name, params.eps) if params.place == "post" else None
    out = (post.y, post.difference(e)) if post else (f, e)
    return _Block(W, open_, u, params.residual, pre, post), *out


def _backward(blocks: list[_Block], v: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return gradient norms (seeds, depth + 1) at every depth and (seeds, depth) of every block's weights and bias."""
    g, gradient, of_weights = v[..., None], [v.norm(dim=-1)], []
    for block in reversed(blocks):
        g_z, g = block.pull(g)
        of_weights.append(g_z[..., 0].norm(dim=-1) * (block.entering.square().sum(-1) + 1).sqrt())  # |g_z| |(u, 1)|
        gradient.append(g[..., 0].norm(dim=-1))
    return torch.stack(gradient[::-1], 1), torch.stack(of_weights[::-1], 1)


def checkpoints(depth: int) -> list[int]:
    """Return at most 12 depths from 1 to ``depth`` at which singular values are taken, closer together at first."""
    return sorted({round(value) for value in np.geomspace(1, depth, CHECKPOINTS)})


def log10(values: np.ndarray) -> np.ndarray:
    """Return log10, with 0 taken as the smallest positive number: a power of ten for a picture."""
    return np.log10(np.maximum(values, np.finfo(np.float64).tiny))
