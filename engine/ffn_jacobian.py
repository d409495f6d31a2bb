"""How a feed-forward layer answers a small change of its input: its Jacobian at one token of a real model.

Plain: J = W_down diag(f'(z)) W_up. Gated: J = W_down [diag(f(g)) W_up + diag(u f'(g)) W_gate] with g = W_gate x, u = W_up x.
Either way J = sum_i c_i r_i^T over neurons, so the neurons' shares |c_i|^2 |r_i|^2 say how many of them answer.
"""

from dataclasses import dataclass

import numpy as np
import torch

from engine.ffn_params import FfnParams
from engine.ffn_token import random_inputs, token_input
from engine.linalg import energy_effective_rank
from engine.models.feedforward import FeedForward
from engine.params import Number, frozen, uses
from engine.progress import OnStep, silent
from engine.scalars import BAND

DRAWS = 8


@dataclass(frozen=True)
class JacobianResult:
    """The Jacobian of one layer at one token: ``singular_values`` (d_model,), descending, beside ``low``, ``median``, ``high``
    (d_model,) of eight Gaussian inputs of the same length (5 to 95 %).

    ``effective_rank``: the energy definition; ``effective_width``: exp of the entropy of p_i = |c_i|^2 |r_i|^2 / sum, neurons that
    answer; both beside the mean over the random inputs.
    """

    labels: tuple[str, ...]
    token: int
    layer: int
    d_ff: int
    singular_values: np.ndarray
    low: np.ndarray
    median: np.ndarray
    high: np.ndarray
    effective_rank: float
    effective_width: float
    random_effective_rank: float
    random_effective_width: float

    def numbers(self) -> dict[str, Number]:
        """Return what is read off, beside random inputs of the same length."""
        rank, width = (self.effective_rank, self.random_effective_rank), (self.effective_width, self.random_effective_width)
        return {
            "effective_rank": Number("Directions that pass (effective rank)", *rank, 1, f" of {len(self.singular_values)}"),
            "effective_width": Number("Neurons that answer (effective width)", *width, 0, f" of {self.d_ff}"),
            "largest": Number("Largest stretch", float(self.singular_values[0]), float(self.median[0]), 2),
        }


@uses("model", "layer", "token", "prompt")
def jacobian(params: FfnParams, on_step: OnStep = silent) -> JacobianResult:
    """Return the spectrum of a layer's Jacobian at one token, in double precision."""
    labels, x, ffn, _ = token_input(params, on_step)
    values, width = _spectrum(ffn, x)
    drawn = []
    for done, v in enumerate(random_inputs(x, DRAWS)):
        on_step(done, DRAWS, "Jacobians at random inputs")
        drawn.append(_spectrum(ffn, v))
    spectra, widths = np.stack([d[0] for d in drawn]), [d[1] for d in drawn]
    low, median, high = np.percentile(spectra, (BAND[0], 50, BAND[1]), axis=0)
    ranks = float(energy_effective_rank(values)), float(np.mean([energy_effective_rank(s) for s in spectra]))
    arrays = (frozen(a) for a in (values, low, median, high))
    return JacobianResult(*(tuple(labels), params.token, params.layer, ffn.W_up.shape[0], *arrays), ranks[0], width, ranks[1], float(np.mean(widths)))


def rows(ffn: FeedForward, x: torch.Tensor) -> torch.Tensor:
    """Return r_i, (d_ff, d_model): how a_i changes with x, for x (d_model,). J = W_down @ rows."""
    gate, up = ffn.inputs(x)
    slope = torch.func.vjp(ffn.activation, gate)[1](torch.ones_like(gate))[0]  # f acts on each coordinate alone
    if ffn.W_gate is None:
        return slope[:, None] * ffn.W_up
    return ffn.activation(gate)[:, None] * ffn.W_up + (up * slope)[:, None] * ffn.W_gate


def _spectrum(ffn: FeedForward, x: torch.Tensor) -> tuple[np.ndarray, float]:
    r = rows(ffn, x)
    sizes = ffn.W_down.norm(dim=0) * r.norm(dim=1)
    values = torch.linalg.svdvals(ffn.W_down @ r).cpu().numpy()
    return values, float(energy_effective_rank(sizes.cpu().numpy()))
