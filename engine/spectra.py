"""Head spectra: which heads carry many directions, which few, and what one head looks at.

Source: seed 004 (spectral diagnostics); Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits".
"""

from dataclasses import dataclass

import numpy as np
import torch

from engine.device import compute_device, parallel_map
from engine.errors import InputError
from engine.linalg import cumulative_energy, directions_for, energy_effective_rank, gaussian_product_spectra, product_singular_values
from engine.models.attention import head_attention
from engine.models.catalog import sha256
from engine.models.loading import open_model, tokenize
from engine.models.weights import LayerHeads, model_shape, read_layers
from engine.params import Number, frozen, uses
from engine.progress import OnStep, silent

CIRCUITS = ("ov", "qk")
TOKEN_LIMIT = 128
CHANCE_DRAWS = 64
BAND = (5, 95)


@dataclass(frozen=True)
class SpectraParams:
    """What the head-spectrum lab can be asked. ``circuit``: ov (what a head moves) or qk (where it looks).

    ``model`` is a catalogue name or, outside a hosted page, a folder with a checkpoint.
    """

    model: str = "fable"
    circuit: str = "ov"
    layer: int = 0
    head: int = 0
    prompt: str = "The true meaning of life is absurdity, and suffering"

    def __post_init__(self):
        if self.circuit not in CIRCUITS:
            raise InputError(f"The circuit is {self.circuit[:40]!r}; accepted are {', '.join(CIRCUITS)}.")
        if self.layer < 0 or self.head < 0:
            raise InputError(f"Layer {self.layer}, head {self.head}: both count from 0.")


@dataclass(frozen=True)
class SpectraResult:
    """Singular values of W_OV = W_O W_V and W_QK = W_Q^T W_K of every head, nothing folded, distance 0.

    ``*_singular_values`` (n_layers, n_heads, d_head), descending; ``*_effective_rank`` (n_layers, n_heads), the
    energy definition; ``*_scale`` (n_layers, n_heads), the product of both factors' Frobenius norms.
    """

    model: str
    sha256: str
    family: str
    n_layers: int
    n_heads: int
    n_kv_heads: int
    d_model: int
    d_head: int
    ov_singular_values: np.ndarray
    qk_singular_values: np.ndarray
    ov_effective_rank: np.ndarray
    qk_effective_rank: np.ndarray
    ov_scale: np.ndarray
    qk_scale: np.ndarray

    def of(self, circuit: str, what: str) -> np.ndarray:
        """Return a field by circuit: ``of("ov", "effective_rank")``."""
        return getattr(self, f"{circuit}_{what}")


@dataclass(frozen=True)
class ChanceResult:
    """Products of Gaussian factors of a head's shape, each factor of Frobenius norm 1: what chance gives.

    ``median``, ``low``, ``high`` (d_head,): singular values, with the 5 % to 95 % band over draws.
    ``energy_median`` (d_head,): cumulative energy. ``effective_rank`` and ``directions_90``: means over draws.
    """

    draws: int
    median: np.ndarray
    low: np.ndarray
    high: np.ndarray
    energy_median: np.ndarray
    effective_rank: float
    effective_rank_band: tuple[float, float]
    directions_90: float


@dataclass(frozen=True)
class AttentionResult:
    """One head on one prompt: token labels and A (tokens, tokens), A[i, j] = weight that token i gives to token j."""

    labels: tuple[str, ...]
    attention: np.ndarray

    def numbers(self) -> tuple[Number, ...]:
        """Return mean weight on the first and on the previous token, beside uniform attention over what is visible."""
        A, n = self.attention, len(self.labels)
        visible = 1 / np.arange(1, n + 1)
        first = Number("Weight on the first token", 100 * float(A[1:, 0].mean()), 100 * float(visible[1:].mean()), 0, " %")
        before = Number("Weight on the token before", 100 * float(A.diagonal(-1)[1:].mean()), 100 * float(visible[2:].mean()), 0, " %")
        return (first, before) if n > 2 else ()


@uses("model")
def head_spectra(params: SpectraParams, on_step: OnStep = silent) -> SpectraResult:
    """Return both spectra of every head of a model, from its weights alone, one layer in memory at a time."""
    shape = model_shape(params.model)
    device = compute_device().name
    spectra, scales = [], []
    for layer, heads in enumerate(read_layers(params.model)):
        on_step(layer, shape.n_layers, "Singular values, layer by layer")
        factors = [factor.to(device) for factor in circuit_factors(heads, shape.group_size)]
        pairs = [(A[h], B[h]) for A, B in (factors[:2], factors[2:]) for h in range(shape.n_heads)]
        values = torch.stack(parallel_map(lambda pair: product_singular_values(*pair), pairs))
        spectra.append(values.view(2, shape.n_heads, -1).cpu())
        scales.append(torch.stack([_norms(A) * _norms(B) for A, B in (factors[:2], factors[2:])]).cpu())
    on_step(shape.n_layers, shape.n_layers, "Singular values, layer by layer")
    ov, qk = torch.stack(spectra, dim=1).numpy()
    ov_scale, qk_scale = torch.stack(scales, dim=1).numpy()
    sizes = {name: getattr(shape, name) for name in ("family", "n_layers", "n_heads", "n_kv_heads", "d_model", "d_head")}
    ranks = (frozen(energy_effective_rank(ov)), frozen(energy_effective_rank(qk)))
    return SpectraResult(params.model, sha256(params.model), **sizes, **_arrays(ov, qk, ranks, ov_scale, qk_scale))


def report(params: SpectraParams, on_step: OnStep = silent) -> SpectraResult:
    """Return the spectra of a model after checking that it has the layer and head asked for (the command line's entry)."""
    check_head(params, model_shape(params.model))
    return head_spectra(params, on_step)


def circuit_factors(heads: LayerHeads, group_size: int) -> tuple[torch.Tensor, ...]:
    """Return W_O, W_V, W_Q^T, W_K per query head: (n_heads, d_model, d_head), (n_heads, d_head, d_model), twice."""
    share = lambda matrix: matrix.repeat_interleave(group_size, dim=0)  # noqa: E731
    return heads.W_O, share(heads.W_V), heads.W_Q.mT, share(heads.W_K)


@uses("model")
def chance(params: SpectraParams, on_step: OnStep = silent) -> ChanceResult:
    """Return what Gaussian factors of the heads' shape would give, from 64 seeded draws."""
    shape = model_shape(params.model)
    draws = gaussian_product_spectra(shape.d_model, shape.d_head, shape.d_model, CHANCE_DRAWS)
    ranks = energy_effective_rank(draws)
    low, median, high = np.percentile(draws, (BAND[0], 50, BAND[1]), axis=0)
    energies = np.cumsum(draws**2, axis=-1) / np.sum(draws**2, axis=-1, keepdims=True)
    return ChanceResult(
        CHANCE_DRAWS,
        *(frozen(a) for a in (median, low, high, np.median(energies, axis=0))),
        effective_rank=float(ranks.mean()),
        effective_rank_band=tuple(float(v) for v in np.percentile(ranks, BAND)),
        directions_90=float(directions_for(draws, 0.9).mean()),
    )


@uses("model", "layer", "head", "prompt")
def prompt_attention(params: SpectraParams, on_step: OnStep = silent) -> AttentionResult:
    """Return the attention of the chosen head on the prompt, at most 128 tokens."""
    shape = model_shape(params.model)
    check_head(params, shape)
    ids, labels = tokenize(params.model, params.prompt, min(TOKEN_LIMIT, shape.context))
    on_step(0, 1, "Running the model up to that layer")
    return AttentionResult(tuple(labels), frozen(head_attention(open_model(params.model), ids, params.layer, params.head)))


def head_numbers(params: SpectraParams, result: SpectraResult, by_chance: ChanceResult) -> dict[str, Number]:
    """Return what is read off for the chosen head: effective rank, directions for 90 % of the energy, largest share."""
    check_head(params, result)
    values = result.of(params.circuit, "singular_values")[params.layer, params.head]
    rank = result.of(params.circuit, "effective_rank")
    top = float(by_chance.energy_median[0])
    return {
        "effective_rank": Number("Effective rank", float(rank[params.layer, params.head]), by_chance.effective_rank),
        "directions_90": Number("Directions for 90 % of the energy", float(directions_for(values, 0.9)), by_chance.directions_90, 0),
        "top_share": Number("Energy in the first direction", 100 * float(cumulative_energy(values)[0]), 100 * top, 0, " %"),
        "rank_place": Number("Heads with a lower effective rank", float((rank < rank[params.layer, params.head]).sum()), None, 0, f" of {rank.size}"),
    }


def table(result: SpectraResult) -> tuple[list[str], list[list]]:
    """Return header and rows for a terminal: one row per head."""
    header = ["layer", "head", "OV effective rank", "QK effective rank", "OV sigma_1", "QK sigma_1"]
    columns = (result.ov_effective_rank, result.qk_effective_rank, result.ov_singular_values[..., 0], result.qk_singular_values[..., 0])
    return header, [[*where, *(float(c[where]) for c in columns)] for where in np.ndindex(columns[0].shape)]


def check_head(params: SpectraParams, shape) -> None:
    """Raise InputError if the model has no such layer or head."""
    if params.layer >= shape.n_layers or params.head >= shape.n_heads:
        accepted = f"layers 0 to {shape.n_layers - 1} and heads 0 to {shape.n_heads - 1}"
        raise InputError(f"Layer {params.layer}, head {params.head}: this model has {accepted}.")


def _norms(factors: torch.Tensor) -> torch.Tensor:
    return torch.linalg.matrix_norm(factors.double())


def _arrays(ov, qk, ranks, ov_scale, qk_scale) -> dict[str, np.ndarray]:
    names = ("ov_singular_values", "qk_singular_values", "ov_effective_rank", "qk_effective_rank", "ov_scale", "qk_scale")
    return {name: frozen(array) for name, array in zip(names, (ov, qk, *ranks, ov_scale, qk_scale), strict=True)}
