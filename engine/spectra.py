"""Head spectra: which heads carry many directions, which few, and what one head looks at.

Source: seed 004 (spectral diagnostics); Elhage et al. 2021, "A Mathematical Framework for Transformer Circuits".
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from engine.circuits import CIRCUITS, Circuits, circuits, left_out
from engine.device import compute_device, map_heads
from engine.errors import InputError
from engine.gram import grouped_spectra
from engine.linalg import copying_score, cumulative_energy, directions_for, gaussian_product_eigenvalues, product_eigenvalues
from engine.models.attention import head_attention
from engine.models.catalog import checkpoint_folder, sha256
from engine.models.families import rotation_of
from engine.models.loading import open_model, tokenize
from engine.models.weights import LayerHeads, model_shape, read_layers
from engine.params import Number, frozen, uses
from engine.progress import OnStep, silent
from engine.scalars import BAND, ScalarBands, Scalars, bands_of, chance_spectra, scalars_of
from engine.spectra_params import SpectraParams

TOKEN_LIMIT = 512
CHANCE_DRAWS = 64


@dataclass(frozen=True)
class SpectraResult:
    """Singular values of W_OV = W_O W_V and W_QK(delta) = W_Q^T R_(-delta) W_K of every head, and what sums them up.

    ``*_singular_values`` (n_layers, n_heads, d_head), descending; ``*_effective_rank`` (n_layers, n_heads), the
    energy definition; ``*_scale`` (n_layers, n_heads), the product of both factors' Frobenius norms; ``*_exact``
    (n_layers, n_heads), True where the fast route was not trusted. ``ov`` and ``qk`` hold every number of
    ``engine.scalars``, each (n_layers, n_heads). ``left_out``: sentences on what these matrices do not show.
    """

    model: str
    sha256: str
    family: str
    n_layers: int
    n_heads: int
    n_kv_heads: int
    d_model: int
    d_head: int
    delta: int
    fold: bool
    left_out: tuple[str, ...]
    ov_singular_values: np.ndarray
    qk_singular_values: np.ndarray
    ov_effective_rank: np.ndarray
    qk_effective_rank: np.ndarray
    ov_scale: np.ndarray
    qk_scale: np.ndarray
    ov_exact: np.ndarray
    qk_exact: np.ndarray
    ov: Scalars
    qk: Scalars

    def of(self, circuit: str, what: str) -> np.ndarray:
        """Return a field by circuit: ``of("ov", "singular_values")``, or any number of ``engine.scalars``."""
        own = f"{circuit}_{what}"
        return getattr(self, own) if hasattr(self, own) else getattr(getattr(self, circuit), what)


@dataclass(frozen=True)
class CopyingResult:
    """Copying scores of every head, (n_layers, n_heads), and of Gaussian factors of the heads' shape: mean and 5 to 95 % band."""

    copying_score: np.ndarray
    chance: float
    chance_band: tuple[float, float]


@dataclass(frozen=True)
class ChanceResult:
    """Products of Gaussian factors of a head's shape, each factor of Frobenius norm 1: what chance gives.

    ``median``, ``low``, ``high`` (d_head,): singular values, with the 5 % to 95 % band over draws.
    ``energy_median`` (d_head,): cumulative energy. ``effective_rank`` and ``directions_90``: means over draws.
    ``scalars``: mean and band of every number of ``engine.scalars``.
    """

    draws: int
    median: np.ndarray
    low: np.ndarray
    high: np.ndarray
    energy_median: np.ndarray
    effective_rank: float
    effective_rank_band: tuple[float, float]
    directions_90: float
    scalars: ScalarBands


@dataclass(frozen=True)
class AttentionResult:
    """One head on one prompt: token labels and A (tokens, tokens), A[i, j] = weight that token i gives to token j.

    ``causal``: whether a token sees only itself and earlier ones; in an encoder it sees all.
    """

    labels: tuple[str, ...]
    attention: np.ndarray
    causal: bool

    def numbers(self) -> tuple[Number, ...]:
        """Return mean weight on the first and on the previous token, beside uniform attention over what is visible."""
        A, n = self.attention, len(self.labels)
        if n < 3:
            return ()
        visible = 1 / np.arange(1, n + 1) if self.causal else np.full(n, 1 / n)
        first = Number("Weight on the first token", 100 * float(A[1:, 0].mean()), 100 * float(visible[1:].mean()), 0, " %")
        before = Number("Weight on the token before", 100 * float(A.diagonal(-1)[1:].mean()), 100 * float(visible[2:].mean()), 0, " %")
        return (first, before)


def layer_circuits(params: SpectraParams) -> Iterator[tuple[LayerHeads, Circuits]]:
    """Yield every layer's weights as stored and its circuits as asked, on the compute device, one layer in memory at a time."""
    shape, device = model_shape(params.model), compute_device().name
    for layer, heads in enumerate(read_layers(params.model)):
        yield heads, circuits(heads, rotation_of(shape, layer), params.delta, params.fold, device)


@uses("model", "delta", "fold")
def head_spectra(params: SpectraParams, on_step: OnStep = silent) -> SpectraResult:
    """Return both spectra of every head of a model, from its weights alone, one layer in memory at a time."""
    checkpoint_folder(params.model, on_step)
    shape = model_shape(params.model)
    found, said = {c: [] for c in CIRCUITS}, {}
    for layer, (heads, of_layer) in enumerate(layer_circuits(params)):
        on_step(layer, shape.n_layers, "Singular values, layer by layer")
        for circuit, spectra in zip(CIRCUITS, grouped_spectra([of_layer.ov, of_layer.qk]), strict=True):
            found[circuit].append(spectra)
        said |= dict.fromkeys(left_out(heads, rotation_of(shape, layer), params.delta, params.fold))
    on_step(shape.n_layers, shape.n_layers, "Singular values, layer by layer")
    sizes = {name: getattr(shape, name) for name in ("family", "n_layers", "n_heads", "n_kv_heads", "d_model", "d_head")}
    arrays = {f"{c}_{what}": _stacked(found[c], what) for c in CIRCUITS for what in ("singular_values", "scale", "exact")}
    summed = {c: scalars_of(arrays[f"{c}_singular_values"], arrays[f"{c}_scale"]) for c in CIRCUITS}
    ranks = {f"{c}_effective_rank": summed[c].effective_rank for c in CIRCUITS}
    asked = {"delta": params.delta, "fold": params.fold, "left_out": tuple(said)}
    return SpectraResult(params.model, sha256(params.model), **sizes, **asked, **arrays, **ranks, **summed)


def report(params: SpectraParams, on_step: OnStep = silent) -> SpectraResult:
    """Return the spectra of a model after checking that it has the layer and head asked for (the command line's entry)."""
    check_head(params, model_shape(params.model))
    return head_spectra(params, on_step)


@uses("model", "fold")
def copying_scores(params: SpectraParams, on_step: OnStep = silent) -> CopyingResult:
    """Return Re(sum lambda) / sum |lambda| over the eigenvalues of every head's W_OV alone, without embedding and unembedding.

    From the d_head x d_head product W_V W_O, which has the same non-zero eigenvalues. Elhage et al. 2021 take the whole
    token circuit W_U W_OV W_E instead; the two can differ.
    """
    shape, scores = model_shape(params.model), []
    for layer, (_, of_layer) in enumerate(layer_circuits(params)):
        on_step(layer, shape.n_layers, "Eigenvalues, layer by layer")
        eigenvalues = map_heads(lambda h, c=of_layer: product_eigenvalues(*c.of("ov", h)).cpu().numpy(), range(shape.n_heads), of_layer.W_O)
        scores.append(copying_score(np.stack(eigenvalues)))
    by_chance = copying_score(gaussian_product_eigenvalues(shape.d_model, shape.d_head, CHANCE_DRAWS))
    return CopyingResult(frozen(np.stack(scores)), float(by_chance.mean()), tuple(float(v) for v in np.percentile(by_chance, BAND)))


@uses("model")
def chance(params: SpectraParams, on_step: OnStep = silent) -> ChanceResult:
    """Return what Gaussian factors of the heads' shape would give, from 64 seeded draws."""
    shape = model_shape(params.model)
    draws = chance_spectra(shape.d_model, shape.d_head, CHANCE_DRAWS)
    bands = bands_of(scalars_of(draws, np.ones(len(draws))))
    low, median, high = np.percentile(draws, (BAND[0], 50, BAND[1]), axis=0)
    return ChanceResult(
        CHANCE_DRAWS,
        *(frozen(a) for a in (median, low, high, np.median(cumulative_energy(draws), axis=0))),
        effective_rank=bands.mean.effective_rank,
        effective_rank_band=(bands.low.effective_rank, bands.high.effective_rank),
        directions_90=bands.mean.directions_90,
        scalars=bands,
    )


@uses("model", "layer", "head", "prompt")
def prompt_attention(params: SpectraParams, on_step: OnStep = silent) -> AttentionResult:
    """Return the attention of the chosen head on the prompt, at most 512 tokens or the context."""
    shape = model_shape(params.model)
    check_head(params, shape)
    ids, labels = tokenize(params.model, params.prompt, min(TOKEN_LIMIT, shape.context))
    on_step(0, 1, "Running the model up to that layer")
    A = head_attention(open_model(params.model, on_step), ids, params.layer, params.head)
    return AttentionResult(tuple(labels), frozen(A), shape.causal)


def head_numbers(params: SpectraParams, result: SpectraResult, by_chance: ChanceResult) -> dict[str, Number]:
    """Return what is read off for the chosen head: effective rank, directions for 90 % of the energy, largest share."""
    check_head(params, result)
    values = result.of(params.circuit, "singular_values")[params.layer, params.head]
    rank = result.of(params.circuit, "effective_rank")
    top = float(by_chance.energy_median[0])
    return {
        "effective_rank": Number("Effective rank", float(rank[params.layer, params.head]), by_chance.effective_rank),
        "directions_90": Number("Directions for 90 % of energy", float(directions_for(values, 0.9)), by_chance.directions_90, 0),
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


def _stacked(spectra: list, what: str) -> np.ndarray:
    return frozen(np.stack([getattr(s, what).cpu().numpy() for s in spectra]))
