"""The feed-forward layers of a live model: their weights, what goes in and comes out, and what happens if activations are changed.

The shared model is never changed. Hooks put on once and for good (``make_watchable``) do nothing unless the thread that runs the
model asks for something with ``watching``.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace

import torch

from engine.errors import ModelError
from engine.models.catalog import config_path
from engine.models.configuration import shape_of
from engine.models.families import FAMILIES, Shape
from engine.models.files import read_json


@dataclass(frozen=True)
class Names:
    """Where a family keeps its feed-forward layer within a block, and how."""

    module: str = "mlp"
    up: str = "up_proj"
    down: str = "down_proj"
    gate: str | None = "gate_proj"
    activation: str = "act_fn"
    fused: bool = False  # gate and up share a matrix, the gate first
    d_ff: str = "intermediate_size"


_LLAMA = Names()
NAMES = {
    **dict.fromkeys(("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text"), _LLAMA),
    "phi3": replace(_LLAMA, up="gate_up_proj", gate="gate_up_proj", activation="activation_fn", fused=True),
    "gpt2": Names(up="c_fc", down="c_proj", gate=None, activation="act", d_ff="n_inner"),
    "gpt_neox": Names(up="dense_h_to_4h", down="dense_4h_to_h", gate=None, activation="act"),
}
Watch = Callable[[torch.Tensor], torch.Tensor | None]
_asked: ContextVar[Mapping[torch.nn.Module, Watch] | None] = ContextVar("asked", default=None)


@dataclass(frozen=True)
class FeedForward:
    """One feed-forward layer: FFN(x) = W_down a + b_down with a = f(W_up x + b_up), or gated f(W_gate x + b_gate) (W_up x + b_up).

    W_up, W_gate (d_ff, d_model), W_down (d_model, d_ff): views of the model's own tensors, float32; ``activation`` is f, the
    model's own module. Column i of W_down is what neuron i writes. None: there is none.
    """

    W_up: torch.Tensor
    W_down: torch.Tensor
    activation: Callable[[torch.Tensor], torch.Tensor]
    W_gate: torch.Tensor | None = None
    b_up: torch.Tensor | None = None
    b_gate: torch.Tensor | None = None
    b_down: torch.Tensor | None = None

    def double(self) -> "FeedForward":
        """Return the same layer in double precision."""
        tensors = {name: value.double() for name, value in vars(self).items() if isinstance(value, torch.Tensor)}
        return replace(self, **tensors)

    def inputs(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return what f is applied to and what it is multiplied by (ones in a plain layer), each (..., d_ff), for x (..., d_model)."""
        up = _affine(x, self.W_up, self.b_up)
        return (up, torch.ones_like(up)) if self.W_gate is None else (_affine(x, self.W_gate, self.b_gate), up)

    def activations(self, x: torch.Tensor) -> torch.Tensor:
        """Return a (..., d_ff), what W_down reads."""
        gate, up = self.inputs(x)
        return self.activation(gate) * up


class _Captured(Exception):
    """Carries a tensor out of a forward pass that need not go on."""


def d_ff_of(model: str) -> int:
    """Return the width of a model's feed-forward layers, from its config.json alone; raise ModelError for an encoder."""
    config = read_json(config_path(model))
    shape = shape_of(config)
    found = config.get(names_of(shape).d_ff)
    found = 4 * shape.d_model if found is None else found
    if isinstance(found, bool) or not isinstance(found, int) or not 1 <= found <= 10**6:
        raise ModelError(f"config.json has a feed-forward width of {str(found)[:40]}; a whole number from 1 to 1000000 is needed.")
    return found


def names_of(shape: Shape) -> Names:
    """Return where the feed-forward layers are; raise ModelError for a family whose layers are not understood."""
    if shape.family not in NAMES:
        what = "is an encoder" if not shape.causal else "keeps its feed-forward layers in a way that is not understood"
        raise ModelError(f"{shape.family} {what}; this lab needs a model that reads left to right, one of: {', '.join(NAMES)}.")
    return NAMES[shape.family]


def make_watchable(model):
    """Put hooks on every feed-forward layer and its down-projection, once and for good; they do nothing unless asked."""
    shape = shape_of(model.config.to_dict())
    if shape.family in NAMES:
        for layer in range(shape.n_layers):
            for module in (layer_module(model, shape, layer), down_module(model, shape, layer)):
                module.register_forward_pre_hook(_watch)
    return model


@contextmanager
def watching(asked: Mapping[torch.nn.Module, Watch]) -> Iterator[None]:
    """While the context lasts, show each module's input to its function; a tensor that it returns goes in instead. This thread only."""
    token = _asked.set(asked)
    try:
        yield
    finally:
        _asked.reset(token)


@torch.no_grad()
def layer_input(model, ids: list[list[int]], layer: int) -> torch.Tensor:
    """Return what a feed-forward layer reads, (batch, tokens, d_model); the forward pass ends there."""
    module = layer_module(model, shape_of(model.config.to_dict()), layer)

    def capture(x: torch.Tensor) -> None:
        raise _Captured(x)

    with watching({module: capture}):
        try:
            model.base_model(input_ids=torch.tensor(ids, device=model.device), use_cache=False)
        except _Captured as captured:
            return captured.args[0]
    raise ModelError("The forward pass ended without reaching the layer; the model was not made watchable.")


def feed_forward(model, layer: int) -> FeedForward:
    """Return a layer's weights, without copies where the model keeps them apart."""
    shape = shape_of(model.config.to_dict())
    names, block = names_of(shape), layer_module(model, shape, layer)
    turned = FAMILIES[shape.family].transposed
    up, down = _linear(block.get_submodule(names.up), turned), _linear(block.get_submodule(names.down), turned)
    activation = block.get_submodule(names.activation)
    if names.fused:
        (gate, up), biases = up[0].chunk(2), (None, None) if up[1] is None else up[1].chunk(2)
        return FeedForward(up, down[0], activation, gate, biases[1], biases[0], down[1])
    gate = (None, None) if names.gate is None else _linear(block.get_submodule(names.gate), turned)
    return FeedForward(up[0], down[0], activation, gate[0], up[1], gate[1], down[1])


def layer_module(model, shape: Shape, layer: int) -> torch.nn.Module:
    """Return the module of a layer's feed-forward part."""
    return model.base_model.get_submodule(FAMILIES[shape.family].block.format(layer=layer) + names_of(shape).module)


def down_module(model, shape: Shape, layer: int) -> torch.nn.Module:
    """Return the module of a layer's down-projection; its input is what the neurons hold."""
    return layer_module(model, shape, layer).get_submodule(names_of(shape).down)


def unembedding(model) -> tuple[torch.Tensor, bool]:
    """Return W_U with the last norm's gain folded in, (vocab_size, d_model), and whether that norm subtracts the mean."""
    shape = shape_of(model.config.to_dict())
    base = model.base_model
    norm = next(getattr(base, name) for name in ("norm", "ln_f", "final_layer_norm") if hasattr(base, name))
    return model.get_output_embeddings().weight * (norm.weight + FAMILIES[shape.family].norm_offset), isinstance(norm, torch.nn.LayerNorm)


def _watch(module, args):
    watch = (_asked.get() or {}).get(module)
    return None if watch is None else watch(args[0])


def _affine(x: torch.Tensor, W: torch.Tensor, b: torch.Tensor | None) -> torch.Tensor:
    return x @ W.mT if b is None else x @ W.mT + b


def _linear(module, turned: bool) -> tuple[torch.Tensor, torch.Tensor | None]:
    weight = module.weight.detach()
    return weight.mT if turned else weight, None if module.bias is None else module.bias.detach()
