"""Updates of a model's linear layers, a set for each of several members, on a private view of the shared model.

The view shares every weight and writes none: hooks add each member's update to its own rows. Rows of member m are
m * n and the n - 1 following, so one forward pass computes all members.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import torch

from engine.errors import InputError, ModelError

PLACES = {"q": "q_proj", "k": "k_proj", "v": "v_proj", "o": "o_proj", "gate": "gate_proj", "up": "up_proj", "down": "down_proj"}
"""Short name -> last part of a module's name, in models whose q, k, v and gates are separate ``nn.Linear`` modules."""

SETS = {"qv": ("q", "v"), "attention": ("q", "k", "v", "o"), "all": tuple(PLACES)}


class Trained:
    """What an update may do while it is trained besides being moved by its gradient: nothing, unless it says so."""

    def penalty(self) -> torch.Tensor | float:
        """Return what is added to the members' summed losses."""
        return 0.0

    def settle(self, step: int) -> None:
        """Do what is to be done after optimizer step ``step``, counted from 1."""


@dataclass(frozen=True)
class LowRank(Trained):
    """scaling[m] * B[m] A[m] for every member m: A (members, r, d_in), B (members, d_out, r), scaling (members,)."""

    A: torch.Tensor
    B: torch.Tensor
    scaling: torch.Tensor

    def added(self, x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        """Return out + scaling B A x, for x (members, n, d_in) and out (members, n, d_out)."""
        return torch.baddbmm(out, torch.bmm(x, self.A.mT), (self.scaling[:, None, None] * self.B).mT.to(out.dtype))

    def update(self) -> torch.Tensor:
        """Return the whole update, (members, d_out, d_in)."""
        return self.scaling[:, None, None] * (self.B @ self.A)


@dataclass(frozen=True)
class Dense(Trained):
    """A whole update per member, D (members, d_out, d_in): full fine-tuning written as a difference."""

    D: torch.Tensor

    def added(self, x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        """Return out + D x, for x (members, n, d_in) and out (members, n, d_out)."""
        return torch.baddbmm(out, x, self.D.mT.to(out.dtype))

    def update(self) -> torch.Tensor:
        """Return D."""
        return self.D


Update = LowRank | Dense


def places_of(model, places: tuple[str, ...]) -> dict[str, torch.nn.Linear]:
    """Return module name -> linear layer for the short names asked for, in the model's order.

    Raises InputError for no name or an unknown one, ModelError for a model that is not built of such layers.
    """
    unknown = [name for name in places if name not in PLACES]
    if unknown or not places:
        asked = f"{unknown[0][:40]!r} is not one of the modules" if unknown else "No module is chosen to adapt"
        raise InputError(f"{asked}; accepted are {', '.join(PLACES)}, at least one.")
    wanted = {PLACES[name] for name in places}
    found = {name: m for name, m in model.named_modules() if name.rpartition(".")[2] in wanted and isinstance(m, torch.nn.Linear)}
    if len({name.rpartition(".")[2] for name in found}) < len(wanted):
        raise ModelError(f"This {model.config.model_type} model has no linear layers called {', '.join(sorted(wanted))}, so they cannot be adapted.")
    return found


def with_updates(model, updates: Mapping[str, Update]):
    """Return a second model over the same weights in which the layers named add their updates; the shared model is not touched."""
    tensors = [*model.parameters(), *model.buffers()]
    view = copy.deepcopy(model, memo={id(t): t for t in tensors})
    for name, update in updates.items():
        view.get_submodule(name).register_forward_hook(partial(_add, update))
    return view


def _add(update: Update, module, inputs: tuple, out: torch.Tensor) -> torch.Tensor:
    members = len(update.D if isinstance(update, Dense) else update.A)
    by_member = lambda t: t.reshape(members, -1, t.shape[-1])  # noqa: E731
    return update.added(by_member(inputs[0]), by_member(out)).view_as(out)
