"""The norms of a whole model: what reaches them on a prompt, and the model run with other norms in their place.

All of it works on a private twin of the shared model: its modules are copied, its tensors are not, and nothing of the
shared one is changed.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch

from engine.errors import ModelError
from engine.models.configuration import shape_of
from engine.models.families import FAMILIES

KINDS = ("RMSNorm", "LayerNorm")


@dataclass(frozen=True)
class StreamNorm:
    """A norm over d_model: its module's name, and the gain and shift that it applies, (d_model,) each (shift None: there is none).

    ``centred``: whether it subtracts the mean (LayerNorm) or not (RMSNorm); ``eps``: its epsilon.
    """

    name: str
    centred: bool
    gain: torch.Tensor
    shift: torch.Tensor | None
    eps: float


class Replacement(torch.nn.Module):
    """A norm written out: gain * c / s + shift, with c = x - (x . u) u for a unit vector ``remove`` = u, or x itself.

    u = 1 / sqrt(d) everywhere is LayerNorm, none RMSNorm; ``divide=False`` leaves out the division by s.
    """

    def __init__(self, norm: StreamNorm, remove: torch.Tensor | None, gain: bool = True, divide: bool = True):
        super().__init__()
        self.eps, self.remove, self.divide = norm.eps, remove, divide
        self.gain, self.shift = (norm.gain, norm.shift) if gain else (None, None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the norm's output, of the shape of x (..., d_model)."""
        c = x if self.remove is None else x - (x @ self.remove)[..., None] * self.remove
        y = c * torch.rsqrt(c.square().mean(-1, keepdim=True) + self.eps) if self.divide else c
        y = y if self.gain is None else y * self.gain
        return y if self.shift is None else y + self.shift


def mean_direction(norm: StreamNorm) -> torch.Tensor:
    """Return the unit vector (d_model,) along which the mean lies: 1 / sqrt(d_model) everywhere."""
    return torch.full_like(norm.gain, len(norm.gain) ** -0.5)


def twin_of(model):
    """Return a second model over the same tensors, whose modules may be hooked and replaced."""
    tensors = [*model.parameters(), *model.buffers()]
    return copy.deepcopy(model, memo={id(t): t for t in tensors})


def stream_norms(model) -> list[StreamNorm]:
    """Return the norms over d_model, in the order in which the model's modules name them; those of single heads are left out.

    Raises ModelError if none is a LayerNorm or an RMSNorm.
    """
    shape = shape_of(model.config.to_dict())
    offset, found = FAMILIES[shape.family].norm_offset, []
    for name, module in model.named_modules():
        kind = next((kind for kind in KINDS if type(module).__name__.endswith(kind)), None)
        if kind and tuple(module.weight.shape) == (shape.d_model,) and not name.endswith(("q_norm", "k_norm")):
            eps = next(getattr(module, a) for a in ("variance_epsilon", "eps") if hasattr(module, a))
            found.append(StreamNorm(name, kind == "LayerNorm", module.weight.float() + offset, getattr(module, "bias", None), float(eps)))
    if not found:
        raise ModelError(f"No LayerNorm or RMSNorm over d_model was found in this {shape.family} model.")
    return found


@torch.no_grad()
def norm_inputs(model, ids: list[list[int]]) -> dict[str, torch.Tensor]:
    """Return what every norm receives on token ids (batch, tokens), by its name in the order of execution: (batch, tokens, d_model)."""
    twin, seen = twin_of(model), {}
    for norm in stream_norms(model):
        twin.get_submodule(norm.name).register_forward_pre_hook(lambda _, args, name=norm.name: seen.update({name: args[0]}))
    twin.base_model(input_ids=torch.tensor(ids, device=model.device), use_cache=False)
    return seen


def with_norms(model, make: Callable[[StreamNorm], torch.nn.Module]):
    """Return a twin of the model with every norm over d_model replaced by ``make(norm)``."""
    twin = twin_of(model)
    for norm in stream_norms(model):
        parent, _, name = norm.name.rpartition(".")
        setattr(twin.get_submodule(parent), name, make(norm))
    return twin


def folded(model):
    """Return (model with the gain of every norm before attention multiplied into W_Q, W_K and W_V, how many were folded).

    y = g n + b becomes n + b / g with g in the columns of the next weights: the same function, from other weights.
    Raises ModelError for a family whose norms end a sublayer instead, and where a gain is 0.
    """
    family = FAMILIES[shape_of(model.config.to_dict()).family]
    if family.norm is None:
        raise ModelError("This family has no norm before attention, so there is no gain to fold into the weights that follow.")
    norms = [norm for norm in stream_norms(model) if norm.name.endswith("." + family.norm)]
    if any(bool((norm.gain == 0).any()) for norm in norms):
        raise ModelError("A gain of this model is 0, so dividing the shift by it is impossible; it is not folded.")
    twin = twin_of(model)
    for norm in norms:
        block = norm.name[: -len(family.norm)]
        for name in family.qkv:
            layer = twin.get_submodule(block + name)
            by = norm.gain[:, None] if family.transposed else norm.gain
            layer.weight = torch.nn.Parameter(layer.weight * by, requires_grad=False)
        plain = Replacement(norm, mean_direction(norm) if norm.centred else None, gain=False)
        plain.shift = None if norm.shift is None else norm.shift / norm.gain
        parent, _, name = norm.name.rpartition(".")
        setattr(twin.get_submodule(parent), name, plain)
    return twin, len(norms)
