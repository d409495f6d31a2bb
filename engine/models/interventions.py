"""Changing what single heads do during a forward pass of the shared model, without changing the model.

The hooks are put on once and for good; what they do is said by a ContextVar, so it concerns the thread that asks and no
other. A pass computes several *members*, each with changes of its own: the sequences run once up to the first layer that
any member changes, and are repeated there, once per member.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial

import torch
from torch.nn.functional import cross_entropy

from engine.models.configuration import shape_of
from engine.models.families import FAMILIES, Shape

TOKENS_PER_PASS = 4096
LOGITS_PER_PASS = 2**26  # 256 MB in float32


@dataclass(frozen=True)
class Change:
    """What becomes of one head's vector v at every position: matrix @ v + shift; None stands for zeros.

    ``place``: z, the head's weighted mean of values before W_O, or q, its query before norm and rotation.
    ``matrix`` (d_head, d_head), ``shift`` (d_head,).
    """

    place: str
    layer: int
    head: int
    matrix: torch.Tensor | None = None
    shift: torch.Tensor | None = None

    def __call__(self, v: torch.Tensor) -> torch.Tensor:
        """Return the vectors (..., d_head) that take the place of v (..., d_head)."""
        changed = torch.zeros_like(v) if self.matrix is None else v @ self.matrix.T
        return changed if self.shift is None else changed + self.shift


Member = Sequence[Change]


@dataclass(frozen=True)
class _Pass:
    """What the hooks do in this pass. Rows of member m are m * n_sequences and the following, from ``first`` on."""

    members: int
    n_sequences: int
    first: int = 0
    by_place: dict = field(default_factory=dict)  # (place, layer) -> [(member, change)]
    means: dict | None = None  # layer -> mean of z, filled while the pass runs


_pass: ContextVar[_Pass | None] = ContextVar("interventions", default=None)


def make_steerable(model):
    """Put hooks on every block, query projection and output projection of a causal model, once and for good; return it."""
    shape = shape_of(model.config.to_dict())
    family = FAMILIES[shape.family]
    wide_query = 3 if family.layout == "interleaved" else 1
    for layer in range(shape.n_layers if shape.causal else 0):
        name = family.block.format(layer=layer)
        at = lambda module, name=name: model.base_model.get_submodule(name + module)  # noqa: E731
        model.base_model.get_submodule(name[:-1]).register_forward_pre_hook(partial(_widen, layer), with_kwargs=True)
        at(family.output).register_forward_pre_hook(partial(_change_z, layer, shape.d_head))
        at(family.qkv[0]).register_forward_hook(partial(_change_q, layer, shape.d_head, wide_query))
    return model


@torch.no_grad()
def measured(model, members: Sequence[Member], ids: torch.Tensor, measure: Callable, on_pass: Callable = lambda: None) -> torch.Tensor:
    """Return measure(logits, ids) of every sequence under every member's changes, (members, sequences).

    ``ids`` (sequences, tokens). ``measure`` takes logits (members, sequences, tokens, vocab) and the ids of some, and
    returns (members, sequences). A pass holds at most 4096 tokens and 2^26 logits; ``on_pass()`` is called before each.
    """
    ids = ids.to(model.device)
    rows = max(1, min(TOKENS_PER_PASS, LOGITS_PER_PASS // model.config.vocab_size) // ids.shape[1])
    found = []
    for start in range(0, len(members), rows):
        some, parts = members[start : start + rows], []
        for part in ids.split(max(1, rows // len(some))):
            on_pass()
            with steered(some, len(part), widen=True):
                logits = model(input_ids=part, use_cache=False).logits
            parts.append(measure(logits.unflatten(0, (len(some), len(part))), part).cpu())
        found.append(torch.cat(parts, dim=1))
    return torch.cat(found)


def sequence_losses(logits: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """Return the mean nats per predicted token of each sequence, (members, sequences): every token but the first is predicted."""
    members, n = logits.shape[:2]
    targets = ids[:, 1:].expand(members, -1, -1)
    losses = cross_entropy(logits[:, :, :-1].flatten(0, 2).float(), targets.flatten(), reduction="none")
    return losses.view(members, n, -1).double().mean(-1)


def sequence_copying(logits: torch.Tensor, ids: torch.Tensor, repeat_length: int) -> torch.Tensor:
    """Return the share of the second half's tokens, its first left out, that are the most likely prediction: (members, sequences)."""
    predicted = logits[:, :, -repeat_length:-1].argmax(-1)
    return (predicted == ids[:, -repeat_length + 1 :]).double().mean(-1)


@torch.no_grad()
def mean_z(model, shape: Shape, ids: torch.Tensor) -> torch.Tensor:
    """Return the mean of every head's z over sequences and positions but the first, (n_layers, n_heads, d_head)."""
    means: list[dict] = []
    parts = ids.to(model.device).split(max(1, TOKENS_PER_PASS // ids.shape[1]))
    for part in parts:
        token = _pass.set(_Pass(1, len(part), means={}))
        try:
            model.base_model(input_ids=part, use_cache=False)
            means.append({layer: mean * len(part) for layer, mean in _pass.get().means.items()})
        finally:
            _pass.reset(token)
    total = torch.stack([sum(part[layer] for part in means) for layer in range(shape.n_layers)])
    return (total / len(ids)).unflatten(-1, (shape.n_heads, shape.d_head))


@contextmanager
def steered(members: Sequence[Member], n_sequences: int, widen: bool = False) -> Iterator[None]:
    """Apply the members' changes to forward passes of this thread: rows m * n_sequences and the following are member m's.

    With ``widen`` the pass is given the sequences once and repeats them for the members; without, it is given all rows.
    """
    by_place, layers = {}, [change.layer for member in members for change in member]
    for m, member in enumerate(members):
        for change in member:
            by_place.setdefault((change.place, change.layer), []).append((m, change))
    first = min(layers, default=0) if widen else -1
    token = _pass.set(_Pass(len(members), n_sequences, first, by_place))
    try:
        yield
    finally:
        _pass.reset(token)


def _widen(layer: int, _block, args: tuple, kwargs: dict):
    """Repeat the residual stream once per member at the first changed layer, and masks from there on."""
    now = _pass.get()
    if now is None or now.members == 1 or now.first < 0 or layer < now.first:
        return None
    wide = lambda v: _repeated(v, now)  # noqa: E731
    rest = args[1:]
    args = args if layer > now.first else (args[0].repeat(now.members, 1, 1), *rest)
    return (args[0], *(wide(v) for v in args[1:])), {name: wide(v) for name, v in kwargs.items()}


def _repeated(value, now: _Pass):
    """Return a mask or a pair of rotations with one copy per member; what has no row per sequence stays."""
    if isinstance(value, tuple):
        return tuple(_repeated(v, now) for v in value)
    rows = isinstance(value, torch.Tensor) and value.dim() > 2 and len(value) == now.n_sequences and len(value) > 1
    return value.repeat(now.members, *[1] * (value.dim() - 1)) if rows else value


def _change_z(layer: int, width: int, _module, args: tuple):
    now = _pass.get()
    if now is None:
        return None
    if now.means is not None:
        now.means[layer] = args[0][:, 1:].double().mean((0, 1))
    changed = _changed(now, ("z", layer), args[0], width, width)
    return None if changed is None else (changed, *args[1:])


def _change_q(layer: int, width: int, wide: int, _module, _args: tuple, output: torch.Tensor):
    now = _pass.get()
    return None if now is None else _changed(now, ("q", layer), output, width, wide * width)


def _changed(now: _Pass, where: tuple[str, int], v: torch.Tensor, width: int, stride: int) -> torch.Tensor | None:
    """Return v (rows, tokens, ...) with the vectors of the changed heads replaced, or None if there are none.

    The vector of head h is the ``width`` numbers from h * ``stride`` on.
    """
    todo = now.by_place.get(where)
    if not todo:
        return None
    v, rows = v.clone(), len(v) // now.members
    for member, change in todo:
        start = change.head * stride
        of_head = v[member * rows : (member + 1) * rows, :, start : start + width]
        of_head.copy_(change(of_head))
    return v
