"""What the heads of a layer look at on a prompt: q and k of the heads asked for, and the forward pass stops at their layer."""

from collections.abc import Iterator, Sequence
from contextvars import ContextVar

import torch

from engine.errors import InputError, ModelError
from engine.models.configuration import shape_of
from engine.models.families import FAMILIES, Rotation, Shape, window_of
from engine.models.files import Get
from engine.models.weights import LayerHeads, layer_heads

_stop_at: ContextVar[torch.nn.Module | None] = ContextVar("stop_at", default=None)


class _Reached(Exception):
    """Carries the input of a layer's attention out of the forward pass."""


@torch.no_grad()
def head_attention(model, ids: list[int], layer: int, head: int) -> torch.Tensor:
    """Return A (tokens, tokens) of one head, rows summing to 1: softmax of the scores of what each token may see.

    q and k get their biases, their norms and the model's own rotation; scores their scale, softcap, window and, unless
    the model is an encoder, the causal mask. The forward pass ends at that layer's attention, so later layers, the other
    heads and the unembedding cost nothing. The model must be stoppable (``make_stoppable``).
    Raises InputError for a layer or head that the model does not have, or a prompt that it cannot take.
    """
    (A,) = _attentions(model, ids, layer, [head])
    return A


@torch.no_grad()
def heads_attention(model, ids: list[int], layer: int) -> torch.Tensor:
    """Return A (n_heads, tokens, tokens) of every head of a layer in float32, as ``head_attention`` does, by one forward pass."""
    shape = shape_of(model.config.to_dict())
    A = torch.empty(shape.n_heads, len(ids), len(ids), device=model.device)
    for head, of_head in enumerate(_attentions(model, ids, layer, range(shape.n_heads))):
        A[head] = of_head
    return A


def _attentions(model, ids: list[int], layer: int, heads: Sequence[int]) -> Iterator[torch.Tensor]:
    """Yield A (tokens, tokens) of each head asked for, in double precision; the forward pass runs once."""
    shape = shape_of(model.config.to_dict())
    if not (0 <= layer < shape.n_layers and all(0 <= head < shape.n_heads for head in heads)):
        accepted = f"layers 0 to {shape.n_layers - 1} and heads 0 to {shape.n_heads - 1}"
        raise InputError(f"Layer {layer}, head {max(heads)}: this model has {accepted}.")
    if not ids or (shape.learned_positions and len(ids) > shape.context):
        raise InputError(f"The prompt has {len(ids)} tokens; this model takes 1 to {shape.context}.")
    x, rotation = _input_of(model, _attention_of(model, shape, layer), ids)
    weights = layer_heads(shape, tensors_of(model), layer)
    for head in heads:
        q, k = head_queries_and_keys(shape, weights, head, x)
        if rotation is not None:
            q, k = (rotate_halves(v, *rotation) for v in (q, k))
        yield attention_weights(shape, layer, q, k)


def head_queries_and_keys(shape: Shape, heads: LayerHeads, head: int, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return q and k (tokens, d_head) of a head before the rotation, for the attention's input x (tokens, d_model)."""
    group = head // shape.group_size
    q, k = x @ heads.W_Q[head].T, x @ heads.W_K[group].T
    q = q if heads.b_Q is None else q + heads.b_Q[head]
    k = k if heads.b_K is None else k + heads.b_K[group]
    return _rms_norm(q, heads.q_gain, shape.norm_eps), _rms_norm(k, heads.k_gain, shape.norm_eps)


def attention_weights(shape: Shape, layer: int, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    """Return A (tokens, tokens) in double precision from the rotated q and k (tokens, d_head) of one head."""
    scores = (q @ k.T).double() * shape.query_scale
    if shape.softcap is not None:
        scores = shape.softcap * torch.tanh(scores / shape.softcap)
    return scores.masked_fill(hidden(shape, layer, len(scores)).to(scores.device), -torch.inf).softmax(-1)


def hidden(shape: Shape, layer: int, n_tokens: int) -> torch.Tensor:
    """Return (tokens, tokens), True where token i does not see token j: the future, and what lies before its window."""
    back = torch.arange(n_tokens)[:, None] - torch.arange(n_tokens)
    mask = (back < 0) if shape.causal else torch.zeros_like(back, dtype=torch.bool)
    window = window_of(shape, layer)
    return mask if window is None else mask | (back >= window)


def rotate_halves(v: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Return v (tokens, d_head) with pairs (i, i + n/2) of its first n dimensions rotated; cos and sin are (tokens, n)."""
    n = cos.shape[-1]
    turned, rest = v[:, :n], v[:, n:]
    half = torch.cat([-turned[:, n // 2 :], turned[:, : n // 2]], dim=-1)
    return torch.cat([turned * cos + half * sin, rest], dim=-1)


def cos_sin(rotation: Rotation, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return cos and sin (tokens, n_rotary) of a rotation at positions (tokens,), attention factor included."""
    angles = positions.double()[:, None] * torch.tensor(rotation.inv_freq, dtype=torch.float64)
    both = torch.cat([angles, angles], dim=-1)
    return both.cos() * rotation.attention_factor, both.sin() * rotation.attention_factor


@torch.no_grad()
def attention_input(model, ids: list[int], layer: int) -> torch.Tensor:
    """Return what a layer's query, key and value matrices read on a prompt, (tokens, d_model): the normed residual stream."""
    return _input_of(model, _attention_of(model, shape_of(model.config.to_dict()), layer), ids)[0]


@torch.no_grad()
def down_input(model, ids: list[int], layer: int) -> torch.Tensor:
    """Return what a layer's W_down reads on a prompt, (tokens, d_ff): the hidden activations of the feed-forward layer."""
    return _input_of(model, _down_of(model, shape_of(model.config.to_dict()), layer), ids)[0]


def down_weight(model, layer: int) -> torch.Tensor:
    """Return a layer's W_down (d_model, d_ff) as a view of the live model's own."""
    shape = shape_of(model.config.to_dict())
    W = _down_of(model, shape, layer).weight.detach()
    return W.mT if FAMILIES[shape.family].transposed else W


def make_stoppable(model):
    """Put a hook on every attention layer and every W_down, once and for good, that can end the forward pass of the thread that asks."""
    shape = shape_of(model.config.to_dict())
    for layer in range(shape.n_layers):
        for block in (_attention_of(model, shape, layer), _down_of(model, shape, layer)):
            block.register_forward_pre_hook(_stop, with_kwargs=True)
    return model


def tensors_of(model) -> Get:
    """Return ``get(name) -> tensor or None`` over a live model's parameters, by the names of its base model."""
    base = model.base_model

    def get(name: str) -> torch.Tensor | None:
        try:
            return base.get_parameter(name).detach()
        except AttributeError:
            return None

    return get


def _attention_of(model, shape: Shape, layer: int) -> torch.nn.Module:
    family = FAMILIES[shape.family]
    return model.base_model.get_submodule(family.block.format(layer=layer) + family.attention)


def _down_of(model, shape: Shape, layer: int) -> torch.nn.Module:
    family = FAMILIES[shape.family]
    return model.base_model.get_submodule(family.block.format(layer=layer) + family.down)


def _rms_norm(v: torch.Tensor, gain: torch.Tensor | None, eps: float) -> torch.Tensor:
    return v if gain is None else gain * v * torch.rsqrt(v.pow(2).mean(-1, keepdim=True) + eps)


def _stop(block, args, kwargs):
    if _stop_at.get() is block:
        raise _Reached(args[0] if args else kwargs["hidden_states"], kwargs.get("position_embeddings"))


def _input_of(model, block, ids: list[int]):
    """Return what a block receives: x (tokens, its input), and for attention (cos, sin), each (tokens, n_rotary), or None."""
    token = _stop_at.set(block)
    try:
        model.base_model(input_ids=torch.tensor([ids], device=model.device), use_cache=False)
    except _Reached as reached:
        x, rotation = reached.args
        return x[0], None if rotation is None else tuple(part[0] for part in rotation)
    finally:
        _stop_at.reset(token)
    raise ModelError("The forward pass ended without reaching the layer; the model was not made stoppable.")
