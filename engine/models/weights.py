"""The attention weights of one layer at a time, straight from safetensors: the model itself is never built."""

import json
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from engine.errors import ModelError
from engine.models.catalog import checkpoint_folder
from engine.models.families import FAMILIES, Shape, shape_of


@dataclass(frozen=True)
class LayerHeads:
    """The heads of one layer: W_Q (n_heads, d_head, d_model), W_K and W_V (n_kv_heads, d_head, d_model), W_O (n_heads, d_model, d_head).

    What a family lacks is None: biases, the gain and shift (d_model,) of the norm before attention, and the gains
    (d_head,) of norms on queries and keys.
    """

    W_Q: torch.Tensor
    W_K: torch.Tensor
    W_V: torch.Tensor
    W_O: torch.Tensor
    b_Q: torch.Tensor | None = None
    b_K: torch.Tensor | None = None
    b_V: torch.Tensor | None = None
    b_O: torch.Tensor | None = None
    gain: torch.Tensor | None = None
    shift: torch.Tensor | None = None
    q_gain: torch.Tensor | None = None
    k_gain: torch.Tensor | None = None


def model_shape(model: str) -> Shape:
    """Return the shape of a model from its config.json alone."""
    path = checkpoint_folder(model) / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{path.name} of {path.parent.name} cannot be read: {error}.") from error
    if not isinstance(config, dict):
        raise ModelError(f"{path.name} of {path.parent.name} holds no object.")
    return shape_of(config)


def read_layers(model: str, layers: Iterable[int] | None = None) -> Iterator[LayerHeads]:
    """Yield the heads of the layers asked for (default: all, in order), as they are stored; memory is that of one layer."""
    shape = model_shape(model)
    family = FAMILIES[shape.family]
    with ExitStack() as stack:
        get = _reader(checkpoint_folder(model), stack)
        for layer in range(shape.n_layers) if layers is None else layers:
            prefix = family.attention.format(layer=layer) + "."
            heads = split_heads(shape, *(get(prefix + name) for name in (family.query, family.key, family.value, family.output)))
            yield replace(heads, gain=get(family.norm.format(layer=layer)))


def read_embeddings(model: str) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return W_E and W_U, each (vocab_size, d_model), as they are stored; W_U is W_E where they are tied."""
    shape = model_shape(model)
    family = FAMILIES[shape.family]
    with ExitStack() as stack:
        get = _reader(checkpoint_folder(model), stack)
        W_E = get(family.embedding)
        return W_E, W_E if shape.tied else get(family.unembedding)


def split_heads(shape: Shape, query, key, value, output) -> LayerHeads:
    """Cut a layer's four matrices into heads; raise ModelError if a shape is not what config.json says."""
    d, r, h, k = shape.d_model, shape.d_head, shape.n_heads, shape.n_kv_heads
    expected = {"query": (h * r, d), "key": (k * r, d), "value": (k * r, d), "output": (d, h * r)}
    for (name, size), matrix in zip(expected.items(), (query, key, value, output), strict=True):
        if tuple(matrix.shape) != size:
            raise ModelError(f"The {name} matrix has shape {tuple(matrix.shape)}; config.json says {size}.")
        if not torch.isfinite(matrix).all():
            raise ModelError(f"The {name} matrix holds NaN or infinite values.")
    return LayerHeads(query.view(h, r, d), key.view(k, r, d), value.view(k, r, d), output.view(d, h, r).transpose(0, 1))


def _reader(folder: Path, stack: ExitStack):
    """Return ``get(name) -> tensor`` over a folder's safetensors file or sharded files."""
    from safetensors import SafetensorError, safe_open

    paths = sorted(folder.glob("*.safetensors"))
    if not paths:
        raise ModelError(f"{folder.name} has no .safetensors file; pickled checkpoints are not opened.")
    where = {}
    for path in paths:
        try:
            file = stack.enter_context(safe_open(path, framework="pt"))
        except (SafetensorError, OSError) as error:
            raise ModelError(f"{path.name} is not a readable safetensors file ({error}).") from error
        where.update(dict.fromkeys(file.keys(), file))

    def get(name: str) -> torch.Tensor:
        if name not in where:
            raise ModelError(f"{folder.name} has no tensor {name}; a file may be missing.")
        return where[name].get_tensor(name)

    return get
