"""The attention weights of one layer at a time, straight from safetensors: the model itself is never built."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields

import torch

from engine.errors import InputError, ModelError
from engine.models.catalog import checkpoint_folder, config_path
from engine.models.configuration import shape_of
from engine.models.families import FAMILIES, Shape
from engine.models.files import Get, open_tensors, read_json
from engine.progress import OnStep, silent


@dataclass(frozen=True)
class LayerHeads:
    """The heads of one layer: W_Q (n_heads, d_head, d_model), W_K and W_V (n_kv_heads, d_head, d_model), W_O (n_heads, d_model, d_head).

    Query head h reads key-value head h // group_size. With x (tokens, d_model) the input of the attention,
    q = W_Q x + b_Q, k = W_K x + b_K, v = W_V x + b_V and the output is sum_h W_O (A_h v) + b_O. Biases: b_Q (n_heads, d_head),
    b_K and b_V (n_kv_heads, d_head), b_O (d_model,). ``gain`` and ``shift`` (d_model,): x = gain * normalised(residual) + shift.
    ``q_gain``, ``k_gain`` (d_head,): gains of the RMS norms that q and k pass before the rotation. None: there is none.
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
    return shape_of(read_json(config_path(model)))


def read_layers(model: str, layers: Iterable[int] | None = None, on_step: OnStep = silent) -> Iterator[LayerHeads]:
    """Yield the heads of the layers asked for (default: all, in order), as stored; memory is that of one layer.

    ``on_step`` hears of a download, if the model is on the hub and not here yet.
    Raises InputError for a layer that the model does not have; ModelError if a tensor is missing, has another shape than
    config.json says, or holds NaN or infinite values (naming the tensor and the layer).
    """
    shape = model_shape(model)
    asked = list(range(shape.n_layers) if layers is None else layers)
    for layer in asked:
        if not 0 <= layer < shape.n_layers:
            raise InputError(f"Layer {layer}: this model has layers 0 to {shape.n_layers - 1}.")
    folder, prefix = checkpoint_folder(model, on_step), FAMILIES[shape.family].prefix
    for layer in asked:
        with open_tensors(folder, prefix) as get:  # anew for each layer: a file that stays mapped keeps all that was read
            heads = layer_heads(shape, get, layer)
        check_finite(heads, layer)
        yield heads
        del heads


def read_embeddings(model: str) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return W_E (vocab, d_model) as stored and W_U (vocab, d_model), W_E itself if tied, or None if there is no unembedding.

    The model multiplies W_E by ``Shape.embedding_scale``, and applies its last norm before W_U.
    """
    shape = model_shape(model)
    family = FAMILIES[shape.family]
    with open_tensors(checkpoint_folder(model), family.prefix) as get:
        W_E = _matrix(get, family.embedding + ".weight", (shape.vocab_size, shape.d_model))
        if not shape.has_unembedding or shape.tied:
            return W_E, W_E if shape.has_unembedding else None
        return W_E, _matrix(get, family.unembedding + ".weight", (shape.vocab_size, shape.d_model))


def layer_heads(shape: Shape, get: Get, layer: int) -> LayerHeads:
    """Cut a layer's matrices into heads, without copies; raise ModelError if one is missing or not as config.json says."""
    family = FAMILIES[shape.family]
    d, r, h = shape.d_model, shape.d_head, shape.n_heads
    at = lambda name: family.block.format(layer=layer) + name  # noqa: E731
    W_Q, W_K, W_V = _split_qkv(shape, get, at, "weight", d)
    if family.transposed:
        W_O = _matrix(get, at(family.output + ".weight"), (h * r, d)).view(h, r, d).mT
    else:
        W_O = _matrix(get, at(family.output + ".weight"), (d, h * r)).view(d, h, r).transpose(0, 1)
    biases = dict.fromkeys("QKVO")
    if "Q" in shape.biases:
        biases |= dict(zip("QKV", _split_qkv(shape, get, at, "bias"), strict=True))
    if "O" in shape.biases:
        biases["O"] = _matrix(get, at(family.output + ".bias"), (d,))
    return LayerHeads(W_Q, W_K, W_V, W_O, **{f"b_{name}": bias for name, bias in biases.items()}, **_norms(shape, get, at))


def check_finite(heads: LayerHeads, layer: int) -> None:
    """Raise ModelError naming the first matrix of a layer that holds NaN or infinite values."""
    for field in fields(heads):
        tensor = getattr(heads, field.name)
        if tensor is not None and not torch.isfinite(tensor).all():
            raise ModelError(f"{field.name} of layer {layer} holds NaN or infinite values; the checkpoint is damaged.")


def _split_qkv(shape: Shape, get: Get, at, what: str, *inputs: int) -> tuple[torch.Tensor, ...]:
    """Return q, k, v as (heads, d_head, *inputs) views of the stored matrices, or of their biases if there are no inputs."""
    family, r = FAMILIES[shape.family], shape.d_head
    counts = (shape.n_heads, shape.n_kv_heads, shape.n_kv_heads)
    names = [at(f"{name}.{what}") for name in family.qkv]
    if family.layout == "separate":
        return tuple(_matrix(get, name, (n * r, *inputs)).unflatten(0, (n, r)) for name, n in zip(names, counts, strict=True))
    size = (sum(counts) * r, *inputs)
    fused = _matrix(get, names[0], size[::-1] if family.transposed else size)
    fused = fused.mT if family.transposed and inputs else fused
    if family.layout == "interleaved":
        return fused.unflatten(0, (shape.n_heads, 3, r)).unbind(1)
    return tuple(part.unflatten(0, (-1, r)) for part in fused.split([n * r for n in counts]))


def _norms(shape: Shape, get: Get, at) -> dict[str, torch.Tensor]:
    """Return the gains and the shift of the norms around q and k; an offset is added in float32, as the model does."""
    family = FAMILIES[shape.family]
    names = {"gain": family.norm, **dict(zip(("q_gain", "k_gain"), family.qk_norms or (), strict=False))}
    found = {}
    for name, norm in names.items():
        if norm:
            stored = _matrix(get, at(norm + ".weight"), (shape.d_model if name == "gain" else shape.d_head,))
            found[name] = stored.to(torch.promote_types(stored.dtype, torch.float32)) + family.norm_offset if family.norm_offset else stored
    if family.norm_shift:
        found["shift"] = _matrix(get, at(family.norm + ".bias"), (shape.d_model,))
    return found


def _matrix(get: Get, name: str, size: tuple[int, ...]) -> torch.Tensor:
    """Return a tensor of the size that config.json says; raise ModelError if it is missing or of another size."""
    tensor = get(name)
    if tensor is None:
        raise ModelError(f"The checkpoint has no tensor {name}; a file may be missing, or config.json describes another model.")
    if tuple(tensor.shape) != size:
        raise ModelError(f"{name} has shape {tuple(tensor.shape)}; config.json says {size}.")
    return tensor
