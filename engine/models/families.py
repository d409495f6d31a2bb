"""How each model family stores the heads of a layer: one table, keyed by ``model_type``.

A row names parameters, so it reads a live model's state as well as a safetensors file.
"""

from dataclasses import dataclass

from engine.errors import ModelError


@dataclass(frozen=True)
class Family:
    """Where a family keeps the attention of layer ``{layer}``: separate query, key, value and output matrices."""

    attention: str
    query: str = "q_proj.weight"
    key: str = "k_proj.weight"
    value: str = "v_proj.weight"
    output: str = "o_proj.weight"
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
    return Shape(family, n_layers, n_heads, n_kv_heads, d_model, d_head, context, vocab)


def _positive(config: dict, name: str, default: int | None = None) -> int:
    value = config.get(name)
    value = default if value is None else value
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ModelError(f"config.json has {name} = {str(value)[:40]}; a whole number of at least 1 is needed.")
    return value
