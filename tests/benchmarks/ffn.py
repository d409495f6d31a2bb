"""The batched fit against the same networks trained one at a time with autograd and torch.optim.Adam; the ledger's time on Fable."""

import time
from collections.abc import Iterator

import numpy as np
import torch

from engine.device import CPU_THREADS, parallel_map
from engine.ffn_fit import SWEEP_SEEDS, SWEEP_WIDTHS, Network, grid, target_values, train, units_of
from engine.ffn_ledger import ledger
from engine.ffn_params import ACTIVATIONS, FfnParams
from engine.models.loading import open_model

STEPS, ALONE, ROUNDS = 100, 8, 5
FUNCTIONS = {"relu": torch.relu, "gelu": torch.nn.functional.gelu, "geglu": torch.nn.functional.gelu, "swiglu": torch.nn.functional.silu}


def lines() -> Iterator[str]:
    """Yield one line per comparison."""
    params = FfnParams()
    networks = [Network(name, units_of(name, width), seed) for name in ACTIVATIONS for width in SWEEP_WIDTHS for seed in range(SWEEP_SEEDS)]
    yield f"ffn: {len(networks)} networks, {STEPS} steps; {CPU_THREADS} CPU threads, each with a part of the networks or one at a time"
    parts = [networks[i::CPU_THREADS] for i in range(CPU_THREADS)]
    some = networks[:: len(networks) // ALONE]
    together, alone, difference = [], [], 0.0
    for _ in range(3):
        started = time.perf_counter()
        snapshots = parallel_map(lambda part: train(part, params, STEPS), parts)
        together.append(time.perf_counter() - started)
        started = time.perf_counter()
        biases = parallel_map(lambda network: one(network, params), some)
        alone.append((time.perf_counter() - started) * len(networks) / len(some))
        for network, bias in zip(some, biases, strict=True):
            i = networks.index(network)
            difference = max(difference, abs(float(snapshots[i % CPU_THREADS].bias[-1, i // CPU_THREADS]) - bias))
    ratio = np.median(alone) / np.median(together)
    yield f"  batched {np.median(together):.2f} s, one at a time ({len(some)} of them, scaled up) {np.median(alone):.1f} s: {ratio:.0f} x"
    yield f"  largest difference of a trained bias: {difference:.0e}"
    yield from ledger_lines()


def one(network: Network, params: FfnParams) -> float:
    """Train one network with autograd and torch.optim.Adam, and return its output bias."""
    from engine.ffn_fit import initial

    w, b, v, d, c = (row.clone() for row in initial(network))
    bias, x = torch.zeros(1, dtype=torch.float64), torch.from_numpy(grid(65))
    t, gated = torch.from_numpy(target_values(params, grid(65))), ACTIVATIONS[network.activation].gated
    free = [p.requires_grad_() for p in ((w, b, v, d, c, bias) if gated else (w, b, c, bias))]
    optimiser = torch.optim.Adam(free, lr=0.03)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: 1 - step / STEPS)
    for _ in range(STEPS):
        optimiser.zero_grad()
        a = FUNCTIONS[network.activation](x[:, None] * w + b)
        y = (a * (x[:, None] * v + d) if gated else a) @ c + bias
        ((y - t) ** 2).mean().backward()
        optimiser.step()
        schedule.step()
    return float(bias.detach())


def ledger_lines() -> Iterator[str]:
    """Yield the time of one ledger on Fable, with its forward pass and its sixteen random inputs."""
    params = FfnParams()
    open_model(params.model)
    ledger(params)
    times = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        ledger(params)
        times.append(time.perf_counter() - started)
    yield f"  the ledger of one token on Fable (704 neurons): {1e3 * np.median(times):.0f} ms"


if __name__ == "__main__":
    for line in lines():
        print(line, flush=True)
