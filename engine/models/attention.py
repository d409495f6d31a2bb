"""What one head looks at on a prompt: its own q and k only, and the forward pass stops at its layer."""

from contextvars import ContextVar

import torch

from engine.models.families import FAMILIES, shape_of

_stop_at: ContextVar[torch.nn.Module | None] = ContextVar("stop_at", default=None)


class _Reached(Exception):
    """Carries the input of a layer's attention out of the forward pass."""


@torch.no_grad()
def head_attention(model, ids: list[int], layer: int, head: int) -> torch.Tensor:
    """Return A (tokens, tokens) of one head, rows summing to 1: softmax(q k^T / sqrt(d_head)), causal.

    The forward pass ends at that layer's attention, so later layers, the other heads and the unembedding cost
    nothing. The model must be stoppable (Llama layout: rotation of halves, no q or k norm).
    """
    shape = shape_of(model.config.to_dict())
    family = FAMILIES[shape.family]
    block = model.get_submodule(family.attention.format(layer=layer))
    x, (cos, sin) = _input_of(model, block, ids)
    group, r = shape.group_size, shape.d_head
    rows = lambda name, index: model.get_parameter(f"{family.attention.format(layer=layer)}.{name}")[index * r : (index + 1) * r]  # noqa: E731
    q, k = x @ rows(family.query, head).T, x @ rows(family.key, head // group).T
    q, k = (v * cos + torch.cat([-v[:, r // 2 :], v[:, : r // 2]], dim=-1) * sin for v in (q, k))
    scores = (q @ k.T).double() / r**0.5
    future = torch.ones_like(scores, dtype=torch.bool).triu(1)
    return scores.masked_fill(future, -torch.inf).softmax(-1)


@torch.no_grad()
def attention_input(model, ids: list[int], layer: int) -> torch.Tensor:
    """Return what a layer's query, key and value matrices read on a prompt, (tokens, d_model): the normed residual stream."""
    family = FAMILIES[shape_of(model.config.to_dict()).family]
    return _input_of(model, model.get_submodule(family.attention.format(layer=layer)), ids)[0]


def make_stoppable(model):
    """Put a hook on every attention layer, once and for good, that can end the forward pass of the thread that asks."""
    shape = shape_of(model.config.to_dict())
    for layer in range(shape.n_layers):
        block = model.get_submodule(FAMILIES[shape.family].attention.format(layer=layer))
        block.register_forward_pre_hook(_stop, with_kwargs=True)
    return model


def _stop(block, args, kwargs):
    if _stop_at.get() is block:
        raise _Reached(args[0] if args else kwargs["hidden_states"], kwargs["position_embeddings"])


def _input_of(model, block, ids: list[int]):
    """Return what a layer's attention receives: x (tokens, d_model) and its rotation (cos, sin), each (tokens, d_head)."""
    token = _stop_at.set(block)
    try:
        model.base_model(input_ids=torch.tensor([ids], device=model.device), use_cache=False)
    except _Reached as reached:
        x, (cos, sin) = reached.args
        return x[0], (cos[0], sin[0])
    finally:
        _stop_at.reset(token)
    raise RuntimeError("The forward pass ended without reaching the layer; was the model made stoppable?")
