"""The depth study of several networks at once against one network at a time, in one process, with the same numbers.

One at a time is measured twice: this engine asked for each seed alone, and torch modules with autograd, which does less:
one Jacobian at the end instead of twelve on the way.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch

from engine.depth import DepthResult, depth_study, drawn
from engine.device import CPU_THREADS, use_all_threads
from engine.norms import NormsParams
from tests.benchmarks.spectra import ROUNDS, interleaved

STUDIES = {"ReLU, torch's default": NormsParams(), "ReLU, residual and pre-norm": NormsParams(place="pre", residual=True)}


def lines() -> Iterator[str]:
    """Yield one line per study: time, ratios, and the largest difference between the numbers."""
    use_all_threads()
    yield f"norms: {CPU_THREADS} CPU threads; medians of {ROUNDS} interleaved rounds in one process"
    for name, params in STUDIES.items():
        contenders = {"ours": lambda p=params: depth_study(p), "alone": lambda p=params: one_by_one(p), "torch": lambda p=params: with_autograd(p)}
        times = interleaved({key: (function, 1) for key, function in contenders.items()})
        together, alone, theirs = (function() for function in contenders.values())
        yield f"  {params.seeds} networks of {params.depth} blocks of width {params.width}, {name}: {1e3 * times['ours']:.0f} ms"
        apart = max(difference(getattr(together, field), np.concatenate([getattr(r, field) for r in alone])) for field in ("signal", "gradient"))
        yield f"    against one network at a time: {times['alone'] / times['ours']:.1f} x; largest relative difference {apart:.0e}"
        apart = difference(together.gradient[:, 0], np.array([gradient for gradient, _ in theirs]))
        yield f"    against torch and autograd, one at a time: {times['torch'] / times['ours']:.1f} x; largest relative difference {apart:.0e}"


def one_by_one(params: NormsParams) -> list[DepthResult]:
    """Return the study of every seed, each asked for alone."""
    return [depth_study(replace(params, seeds=1, seed=params.seed + i)) for i in range(params.seeds)]


def with_autograd(params: NormsParams) -> list[tuple[float, np.ndarray]]:
    """Return the gradient's norm at the input and the singular values of the Jacobian of every network, by autograd."""
    W, b, x, delta, v = drawn(params)
    found = []
    for i in range(params.seeds):

        def net(z: torch.Tensor, i=i) -> torch.Tensor:
            for layer in range(params.depth):
                u = torch.nn.functional.layer_norm(z, (params.width,), eps=params.eps) if params.place == "pre" else z
                f = torch.relu(torch.nn.functional.linear(u, W[i, layer], b[i, layer]))
                z = z + f if params.residual else f
            return z

        net(x[i] + delta[i])
        start = x[i].clone().requires_grad_()
        (net(start) @ v[i]).backward()
        J = torch.autograd.functional.jacobian(net, x[i], vectorize=True)
        found.append((float(start.grad.norm()), torch.linalg.svdvals(J).numpy()))
    return found


def difference(a: np.ndarray, b: np.ndarray) -> float:
    """Return the largest relative difference."""
    return float(np.abs(a / b - 1).max())


if __name__ == "__main__":
    for line in lines():
        print(line, flush=True)
