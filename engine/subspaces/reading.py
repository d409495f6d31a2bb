"""What the weights of a real head let through: the row space of W is all that W can read, its null space is lost on it.

Source: seed 000, section 05; the four fundamental subspaces, Strang 1993.
"""

from dataclasses import dataclass

import numpy as np
import torch

from engine.errors import InputError
from engine.models.attention import attention_input, down_input, down_weight
from engine.models.families import Shape
from engine.models.loading import open_model, tokenize
from engine.models.weights import LayerHeads, model_shape, read_layers
from engine.params import Number, frozen, uses
from engine.progress import OnStep, silent
from engine.subspaces.params import ProjectionsParams

TOKEN_LIMIT = 128
WIDE, NARROW = 768, 64


@dataclass(frozen=True)
class Twin:
    """Two inputs x and ``twin`` (d_in,) that W cannot tell apart: equal in its row space, unlike in its null space.

    x is the vector of the token ``of``; the twin has the unread part of the token ``borrowed``. ``difference_in`` = |x - twin| /
    |x|, ``difference_out`` = |W x - W twin| / |W x| in float64: rounding, no more. ``output``, ``twin_output`` (d_out,).
    """

    of: str
    borrowed: str
    x: np.ndarray
    twin: np.ndarray
    output: np.ndarray
    twin_output: np.ndarray
    difference_in: float
    difference_out: float
    cosine: float


@dataclass(frozen=True)
class ReadingResult:
    """Split of a prompt's vectors by one weight: the share of energy inside its subspace, beside chance = dimension / d_in.

    ``weight``: Q, K, V, random: the row space in the residual stream, of each head of the layer; O: the column space, what
    a head can write; down: the row space in the hidden activations, of each layer. ``shares`` (groups,): mean over tokens,
    ``by_token`` (tokens,): of the chosen head or layer. ``rank``, ``d_in``, ``nullity`` = inputs of W - rank. ``twin``: None
    where the null space of W is {0}.
    """

    weight: str
    layer: int
    head: int
    grouped_by: str
    chosen: int
    labels: tuple[str, ...]
    shares: np.ndarray
    by_token: np.ndarray
    rank: int
    d_in: int
    nullity: int
    chance: float
    twin: Twin | None


@dataclass(frozen=True)
class RandomResult:
    """``shares`` (draws,): |P x|^2 / |x|^2 of random vectors x of R^d, P onto a fixed subspace of r dimensions."""

    d: int
    r: int
    shares: np.ndarray


@uses("model", "weight", "layer", "head", "prompt")
def reading(params: ProjectionsParams, on_step: OnStep = silent) -> ReadingResult:
    """Return how much of each token's vector, at most 128 of them, the chosen weight can read, for all heads of the layer.

    The vectors are what W multiplies: the normed residual stream before attention, or the hidden activations before W_down.
    Raises InputError for a layer or head that the model lacks, or a prompt that it cannot take.
    """
    shape = model_shape(params.model)
    check_head(params, shape)
    ids, labels = tokenize(params.model, params.prompt, min(TOKEN_LIMIT, shape.context))
    model = open_model(params.model, on_step)
    down = params.weight == "down"
    weights, inputs, chosen = _of_layers(model, ids, params, shape, on_step) if down else _of_heads(model, ids, params, shape)
    shares, bases = [], []
    for done, (W, X) in enumerate(zip(weights, inputs, strict=True)):
        on_step(done, len(weights), "Splitting the vectors")
        bases.append(orthonormal(W if params.weight == "O" else W.T))
        shares.append(share_inside(bases[-1], X))
    W, X, Q = weights[chosen], inputs[chosen], bases[chosen]
    nullity = W.shape[1] - Q.shape[1]
    twin = twin_of(W, Q, X, labels) if nullity else None
    named = (params.weight, params.layer, params.head, "layer" if down else "head", chosen, tuple(labels))
    means = np.array([share.mean() for share in shares])
    return ReadingResult(*named, frozen(means), frozen(shares[chosen]), Q.shape[1], X.shape[1], nullity, Q.shape[1] / X.shape[1], twin)


def reading_numbers(result: ReadingResult) -> dict[str, Number]:
    """Return the share that the chosen weight reads beside chance, and how unlike two inputs of the same output are."""
    place, rest = f"{result.grouped_by} {result.chosen}", result.d_in - result.rank
    numbers = {
        "read": Number(f"Energy kept, {place}", 100 * float(result.shares[result.chosen]), 100 * result.chance, 1, " %"),
        "rank": Number("Dimensions kept", result.rank, None, 0, f" of {result.d_in}"),
        "unread": Number("Dimensions lost", rest, None, 0, f" of {result.d_in}"),
    }
    if result.twin:
        numbers["twin"] = Number("Two inputs differ by", 100 * result.twin.difference_in, None, 0, " %")
    return numbers


def twin_sentence(result: ReadingResult) -> str:
    """Return in words which two inputs the weight cannot tell apart, or why there are none."""
    if result.twin is None:
        return f"W has {result.rank} inputs and lets through all {result.rank} directions of them: no two inputs share an output."
    twin = result.twin
    unlike = f"{twin.difference_in:.0%} of the first one's length (cosine {twin.cosine:.2f})"
    return (
        f"The vector of the last token, '{twin.of}', and the same with the unread part of '{twin.borrowed}': they differ by {unlike}, "
        f"and the outputs by {twin.difference_out:.0e}, which is rounding."
    )


@uses()
def random_energy(params: ProjectionsParams, on_step: OnStep = silent) -> RandomResult:
    """Return what 2000 seeded Gaussian vectors of R^768 keep in a fixed subspace of 64 dimensions: by rotation, the first 64 coordinates."""
    squares = np.random.default_rng(0).standard_normal((2000, WIDE)) ** 2
    return RandomResult(WIDE, NARROW, frozen(squares[:, :NARROW].sum(1) / squares.sum(1)))


def random_number(result: RandomResult) -> Number:
    """Return the mean share that a random vector keeps, beside r / d."""
    label = f"Energy kept from {result.d} to {result.r} dimensions"
    return Number(label, 100 * float(result.shares.mean()), 100 * result.r / result.d, 1, " %")


def orthonormal(W: torch.Tensor) -> torch.Tensor:
    """Return an orthonormal basis (m, rank) of the column space of W (m, n) by its SVD; columns below rounding are dropped."""
    U, sigma, _ = torch.linalg.svd(W, full_matrices=False)
    return U[:, sigma > max(W.shape) * torch.finfo(W.dtype).eps * sigma[0]]


def share_inside(Q: torch.Tensor, X: torch.Tensor) -> np.ndarray:
    """Return |Q^T x|^2 / |x|^2 for each row x of X (tokens, d), (tokens,); 0 for a zero vector."""
    total = X.square().sum(1)
    return ((X @ Q).square().sum(1) / torch.where(total > 0, total, 1.0)).cpu().numpy()


def twin_of(W: torch.Tensor, Q: torch.Tensor, X: torch.Tensor, labels: list[str]) -> Twin:
    """Return the last token's x and Q Q^T x + (I - Q Q^T) y, for the y among the other tokens that makes them most unlike.

    A prompt of one token borrows from its own negative.
    """
    inside = X @ Q @ Q.T
    outside = X - inside
    x, lost = X[-1], outside[-1]
    others = outside[:-1] if len(X) > 1 else -outside
    which = int((others - lost).norm(dim=1).argmax())
    twin = inside[-1] + others[which]
    outputs = W @ x, W @ twin
    return Twin(
        labels[-1],
        labels[which] if len(X) > 1 else f"minus {labels[-1]}",
        *(frozen(v) for v in (x, twin, *outputs)),
        difference_in=float((x - twin).norm() / x.norm()),
        difference_out=float((outputs[0] - outputs[1]).norm() / outputs[0].norm()),
        cosine=float(torch.cosine_similarity(x, twin, dim=0)),
    )


def head_weight(heads: LayerHeads, name: str, head: int) -> torch.Tensor:
    """Return W_Q, W_K, W_V (d_head, d_model) or W_O (d_model, d_head) of a query head in float64."""
    W = getattr(heads, f"W_{name}")
    return W[head * len(W) // len(heads.W_Q)].double()


def check_head(params: ProjectionsParams, shape: Shape) -> None:
    """Raise InputError if the model has no such layer or head."""
    if params.layer >= shape.n_layers or params.head >= shape.n_heads:
        accepted = f"layers 0 to {shape.n_layers - 1} and heads 0 to {shape.n_heads - 1}"
        raise InputError(f"Layer {params.layer}, head {params.head}: this model has {accepted}.")


def _of_heads(model, ids: list[int], params: ProjectionsParams, shape: Shape) -> tuple[list, list, int]:
    """Return the weight of every head of the layer, what it reads on the prompt (the same for all), and the chosen head."""
    X = attention_input(model, ids, params.layer).double().cpu()
    (heads,) = read_layers(params.model, [params.layer])
    if params.weight == "random":
        drawn = np.random.default_rng(0).standard_normal((shape.n_heads, shape.d_head, shape.d_model))
        weights = list(torch.from_numpy(drawn))
    else:
        weights = [head_weight(heads, params.weight, head) for head in range(shape.n_heads)]
    return weights, [X] * len(weights), params.head


def _of_layers(model, ids: list[int], params: ProjectionsParams, shape: Shape, on_step: OnStep) -> tuple[list, list, int]:
    """Return W_down of every layer, the hidden activations that it reads, and the chosen layer."""
    weights, inputs = [], []
    for layer in range(shape.n_layers):
        on_step(layer, shape.n_layers, "Hidden activations, layer by layer")
        weights.append(down_weight(model, layer).double().cpu())
        inputs.append(down_input(model, ids, layer).double().cpu())
    return weights, inputs, params.layer
