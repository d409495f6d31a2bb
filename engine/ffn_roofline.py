"""How fast a machine can compute a feed-forward layer: published figures of accelerators, and this machine measured now.

Attainable = min(peak, intensity * bandwidth) (Williams et al. 2009). Below the ridge, peak / bandwidth, memory is the limit.
"""

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import cycle

import numpy as np
import torch

from engine.device import compute_device, synchronize
from engine.ffn_params import FfnParams
from engine.params import frozen, uses
from engine.progress import OnStep, silent

PUBLISHED = {
    "NVIDIA A100 80GB SXM": (312e12, 2.039e12),
    "NVIDIA H100 SXM": (989.4e12, 3.35e12),
    "AMD MI300X": (1307.4e12, 5.3e12),
    "Google TPU v5e": (197e12, 0.819e12),
}
"""Peak of dense bfloat16 products in operations per second, and bandwidth in bytes per second, from the makers' data sheets."""

SQUARE = 1536
D_MODEL, D_FF = 1024, 2816
MEASURED_BATCHES = (1, 4, 16, 64, 256)
ROUNDS, COPIES = 5, 16


@dataclass(frozen=True)
class Machine:
    """What this machine did just now in float32: ``peak`` (operations per second of a 1536-wide square product) and ``bandwidth``
    (bytes per second of matrix times vector), and a SwiGLU layer, d_model 1024, d_ff 2816, at several batches: ``intensity``
    (operations per byte) and ``reached`` (operations per second), (batches,) each. Best of five. ``when``: UTC.

    Weights come from memory and not from a cache: 16 copies, 528 MiB, are used in turn. Where the layer itself was faster than
    product or vector, in a quieter moment, it is what peak or bandwidth is: nothing measured lies above the roof.
    """

    label: str
    when: str
    peak: float
    bandwidth: float
    batches: np.ndarray
    intensity: np.ndarray
    reached: np.ndarray


@uses()
@torch.no_grad()
def machine(params: FfnParams, on_step: OnStep = silent) -> Machine:
    """Measure this machine: its peak, its memory's bandwidth, and a feed-forward layer between them."""
    device = compute_device()
    make = lambda *size: torch.randn(*size, device=device.name)  # noqa: E731
    on_step(0, 3, "Measuring the peak")
    A, B = make(SQUARE, SQUARE), make(SQUARE, SQUARE)
    peak = 2 * SQUARE**3 / _best(lambda: A @ B, device)
    on_step(1, 3, "Measuring the memory")
    once, weights = make(3, D_FF, D_MODEL), 3 * D_MODEL * D_FF
    copies = cycle([once.clone() for _ in range(COPIES)])
    x = make(D_MODEL)
    bandwidth = 4 * weights / _best(lambda: next(copies).view(-1, D_MODEL) @ x, device)
    on_step(2, 3, "Measuring a feed-forward layer")
    batches = np.array(MEASURED_BATCHES)
    seconds = np.array([_best(partial(_layer, make(int(n), D_MODEL), copies), device) for n in batches])
    intensity = 2 * batches * weights / (4 * (weights + 3 * batches * (D_MODEL + D_FF)))
    when = datetime.now(UTC).strftime("%Y-%m-%d %H:%M")
    reached = 2 * batches * weights / seconds
    peak = max(peak, float(reached.max()))
    bandwidth = max(bandwidth, float((reached / intensity).max()))
    return Machine(device.label, when, peak, bandwidth, frozen(batches), frozen(intensity), frozen(reached))


def _layer(x: torch.Tensor, copies) -> torch.Tensor:
    """Return a SwiGLU layer's output for x (batch, d_model), with the next copy of the weights (3, d_ff, d_model)."""
    W_gate, W_up, W_down = next(copies)
    return (torch.nn.functional.silu(x @ W_gate.T) * (x @ W_up.T)) @ W_down


def _best(work, device) -> float:
    """Return the shortest of five runs in seconds, after one that is not timed."""
    times = []
    for _ in range(ROUNDS + 1):
        started = time.perf_counter()
        work()
        synchronize(device)
        times.append(time.perf_counter() - started)
    return min(times[1:])
