"""The strongest directions of one head, told in tokens: what it reads, and what it writes or looks for."""

from dataclasses import dataclass

import numpy as np
import torch

from engine.circuits import circuits
from engine.device import compute_device
from engine.gram import top_directions
from engine.models.families import rotation_of
from engine.models.loading import label_of, open_tokenizer, require_unembedding
from engine.models.weights import model_shape, read_embeddings, read_layers
from engine.params import frozen, uses
from engine.progress import OnStep, silent
from engine.spectra import SpectraParams, check_head

DIRECTIONS = 8
TOKENS = 8


@dataclass(frozen=True)
class DirectionsResult:
    """The k strongest directions of a head, W = sum_i sigma_i u_i v_i^T, each end as the tokens that lie most along it.

    ``tokens_in[i]``, ``tokens_out[i]``: labels, largest product first; ``*_products`` (k, tokens): embedding row times the
    unit vector. For ov, v_i is read through the embedding and u_i written through the unembedding; for qk, u_i is the
    query's and v_i the key's, both through the embedding: ``in`` is the key, ``out`` the query. ``*_opposite``: the other
    end, what -v_i reads and -u_i writes: the signs of u_i and v_i are fixed only together.
    """

    singular_values: np.ndarray
    tokens_in: tuple[tuple[str, ...], ...]
    tokens_out: tuple[tuple[str, ...], ...]
    in_products: np.ndarray
    out_products: np.ndarray
    tokens_in_opposite: tuple[tuple[str, ...], ...]
    tokens_out_opposite: tuple[tuple[str, ...], ...]


@uses("model", "circuit", "layer", "head", "delta", "fold")
def direction_tokens(params: SpectraParams, on_step: OnStep = silent) -> DirectionsResult:
    """Return the 8 strongest directions of one head's circuit with 8 tokens at each end.

    The sign of each pair is chosen so that v_i's tokens lean to the positive side. Norms other than the folded gain are
    left out. Raises ModelError for ov if the model has no unembedding, or no tokenizer to name tokens.
    """
    shape = model_shape(params.model)
    check_head(params, shape)
    if params.circuit == "ov":
        require_unembedding(shape, "what a head writes")
    tokenizer = open_tokenizer(params.model)
    W_E, W_U = read_embeddings(params.model)
    on_step(0, 1, "Reading the directions through the embedding")
    device = compute_device().name
    (heads,) = read_layers(params.model, [params.layer])
    of_layer = circuits(heads, rotation_of(shape, params.layer), params.delta, params.fold, device)
    U, sigma, V = top_directions(*of_layer.of(params.circuit, params.head), DIRECTIONS)
    coming, going = _along(W_E, V), _along(W_U if params.circuit == "ov" else W_E, U)
    sign = torch.where(coming.amax(0) >= -coming.amin(0), 1.0, -1.0)
    ends = [_top(products * s, tokenizer) for products in (coming, going) for s in (sign, -sign)]
    (read, by_read), (read_back, _), (written, by_written), (written_back, _) = ends
    return DirectionsResult(frozen(sigma), read, written, by_read, by_written, read_back, written_back)


def token_rows(result: DirectionsResult, circuit: str = "ov") -> tuple[list[str], list[list[str]]]:
    """Return header and rows for a table, all text: per direction its singular value and the tokens at both ends of both signs."""
    ends = ("reads", "writes") if circuit == "ov" else ("key", "query")
    header = ["direction", "singular value", *(f"{end} {sign}" for sign in "+-" for end in ends)]
    columns = (result.tokens_in, result.tokens_out, result.tokens_in_opposite, result.tokens_out_opposite)
    rows = [
        [str(i + 1), f"{sigma:.3g}", *("  ".join(f"“{token}”" for token in column[i]) for column in columns)]
        for i, sigma in enumerate(result.singular_values)
    ]
    return header, rows


def _along(embedding: torch.Tensor, directions: torch.Tensor) -> torch.Tensor:
    """Return embedding @ directions, (vocab_size, k), in float32: enough to rank tokens."""
    return embedding.to(directions.device).float() @ directions.float()


def _top(products: torch.Tensor, tokenizer) -> tuple[tuple[tuple[str, ...], ...], np.ndarray]:
    """Return for each direction the labels of the tokens with the largest products, and those products (k, tokens)."""
    values, ids = products.topk(min(TOKENS, len(products)), dim=0)
    labels = tuple(tuple(label_of(tokenizer, token) for token in column) for column in ids.T.tolist())
    return labels, frozen(values.T)
