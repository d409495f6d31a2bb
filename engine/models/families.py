"""How each model family stores the heads of a layer: one table, keyed by ``model_type``.

A row names parameters, so it reads a live model's state as well as a safetensors file.
"""

from dataclasses import dataclass

import numpy as np

from engine.errors import ModelError


@dataclass(frozen=True)
class Family:
    """Where a family keeps the attention of layer ``{layer}``: separate query, key, value and output matrices."""

    attention: str
    query: str = "q_proj.weight"
    key: str = "k_proj.weight"
    value: str = "v_proj.weight"
    output: str = "o_proj.weight"
    norm: str = "model.layers.{layer}.input_layernorm.weight"
    embedding: str = "model.embed_tokens.weight"
    unembedding: str = "lm_head.weight"
    causal: bool = True


FAMILIES = {"llama": Family("model.layers.{layer}.self_attn")}


@dataclass(frozen=True)
class Shape:
    """The sizes of a model that its attention heads depend on."""

    family: str
    n_layers: int
    n_heads: int
    n_kv_heads: int
    d_model: int
    d_head: int
    context: int
    vocab_size: int
    tied: bool = False
    rope_theta: float = 10000.0

    @property
    def group_size(self) -> int:
        """Query heads that share one key-value head."""
        return self.n_heads // self.n_kv_heads


def shape_of(config: dict) -> Shape:
    """Read the shape from the contents of a config.json; raise ModelError naming what is missing or not understood."""
    family = config.get("model_type")
    if family not in FAMILIES:
        raise ModelError(f"The model type {str(family)[:60]!r} is not understood; understood: {', '.join(FAMILIES)}.")
    n_layers, n_heads, d_model = (_positive(config, name) for name in ("num_hidden_layers", "num_attention_heads", "hidden_size"))
    n_kv_heads = _positive(config, "num_key_value_heads", n_heads)
    if n_heads % n_kv_heads:
        raise ModelError(f"{n_heads} query heads cannot be shared evenly by {n_kv_heads} key-value heads.")
    d_head = _positive(config, "head_dim", d_model // n_heads)
    context, vocab = _positive(config, "max_position_embeddings"), _positive(config, "vocab_size")
    rope = config.get("rope_parameters") or config
    theta = float(rope.get("rope_theta", 10000.0))
    return Shape(family, n_layers, n_heads, n_kv_heads, d_model, d_head, context, vocab, bool(config.get("tie_word_embeddings")), theta)


@dataclass(frozen=True)
class Rotation:
    """How a layer rotates queries and keys: the first ``n_rotary`` numbers of a head, pair i by position * inv_freq[i].

    ``interleaved``: pairs are (2i, 2i + 1), else (i, i + n_rotary / 2). cos and sin are multiplied by ``attention_factor``.
    """

    n_rotary: int
    inv_freq: np.ndarray
    interleaved: bool = False
    attention_factor: float = 1.0


def rotation_of(shape: Shape, layer: int) -> Rotation | None:
    """Return the rotation of a layer, None where the family has none."""
    return Rotation(shape.d_head, shape.rope_theta ** (-np.arange(0, shape.d_head, 2) / shape.d_head))


def _positive(config: dict, name: str, default: int | None = None) -> int:
    value = config.get(name)
    value = default if value is None else value
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ModelError(f"config.json has {name} = {str(value)[:40]}; a whole number of at least 1 is needed.")
    return value
