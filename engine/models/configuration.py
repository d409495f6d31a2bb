"""From the contents of a config.json to a ``Shape``: plain JSON, read without transformers; what is not understood is refused.

A setting that this module does not know is harmless only if its name does not speak of attention: of those it accepts
None, False and what is empty, and refuses everything else by name.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from engine.errors import ModelError
from engine.models.families import FAMILIES, Family, Rotation, Shape
from engine.models.frequencies import inverse_frequencies

ABOUT_ATTENTION = (
    "num_attention_heads n_head num_key_value_heads head_dim max_position_embeddings n_positions attention_dropout attention_probs_dropout_prob "
    "attn_pdrop rms_norm_eps layer_norm_eps layer_norm_epsilon rope_theta rope_parameters partial_rotary_factor attention_bias "
    "attn_implementation _attn_implementation _attn_implementation_autoset _attn_implementation_internal"
)
SPEAKING = "attn attention rope rotary head qk kv latent lora_rank window layer_type sink alibi softcap multiplier scal position norm"
KNOWN, SPEAKS_OF_ATTENTION = frozenset(ABOUT_ATTENTION.split()), tuple(SPEAKING.split())
OTHER_BLOCKS = ("mamba", "ssm", "linear_attn", "linear_num", "layers_block_type", "hybrid", "attn_layer_period", "conv_", "recurrent", "block_types")
LAYER_TYPES = ("full_attention", "sliding_attention")
MOST = {"num_hidden_layers": 1000, "num_attention_heads": 4096}
WITH_TOKENS = ("ForCausalLM", "LMHeadModel", "ForMaskedLM", "ForPreTraining")


@dataclass(frozen=True)
class Settings:
    """A config.json seen through its family: aliases and what the family means where nothing is said."""

    config: Mapping
    family: Family

    def get(self, name: str, default=None):
        """Return a setting under its own or the family's name, an explicit null included, else the family's default."""
        for key in (self.family.keys.get(name, name), name):
            if key in self.config:
                return self.config[key]
        return self.family.defaults.get(self.family.keys.get(name, name), default)

    def positive(self, name: str, default: int | None = None) -> int:
        """Return a whole number of at least 1; raise ModelError for anything else."""
        value = self.get(name)
        value = default if value is None else value
        most = MOST.get(name, 10**8)
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
            raise ModelError(f"config.json has {self.family.keys.get(name, name)} = {str(value)[:40]}; a whole number from 1 to {most} is needed.")
        return value

    def number(self, name: str, default: float | None = None) -> float | None:
        """Return a positive number, or None if the setting is null; raise ModelError for anything else."""
        value = self.get(name, default)
        if value is None or (isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < 1e30):
            return None if value is None else float(value)
        raise ModelError(f"config.json has {name} = {str(value)[:40]}; a positive number or null is needed.")


def shape_of(config: Mapping) -> Shape:
    """Read the shape from the contents of a config.json; raise ModelError naming what is missing or not understood."""
    name = config.get("model_type")
    refuse_other_architectures(config)
    if name not in FAMILIES:
        raise ModelError(f"The model type {str(name)[:60]!r} is not understood; understood: {', '.join(FAMILIES)}.")
    settings = Settings(config, FAMILIES[name])
    refuse_unknown_settings(settings, name)
    family = settings.family
    n_layers, n_heads, d_model = (settings.positive(key) for key in ("num_hidden_layers", "num_attention_heads", "hidden_size"))
    context = settings.positive("max_position_embeddings")
    n_kv_heads, d_head = _heads(settings, name, n_heads, d_model)
    types = _layer_types(settings, n_layers)
    return Shape(
        *(name, n_layers, n_heads, n_kv_heads, d_model, d_head, context, settings.positive("vocab_size")),
        causal=family.causal,
        query_size=settings.number("query_pre_attn_scalar") if "query_pre_attn_scalar" in family.knows else None,
        softcap=settings.number("attn_logit_softcapping") if "attn_logit_softcapping" in family.knows else None,
        windows=_windows(settings, types, n_layers),
        rotations=_rotations(settings, types, n_layers, d_head, context),
        learned_positions=not family.rotary,
        qk_norm=family.qk_norms is not None,
        norm_eps=settings.number(family.eps, 1e-12 if name == "bert" else 1e-6) or 1e-6,
        biases={"none": "", "qkv": "QKV", "all": "QKVO"}.get(family.biases, "QKVO" if settings.get("attention_bias") else ""),
        tied=bool(settings.get("tie_word_embeddings")),
        has_unembedding=family.unembedding is not None and _has_token_output(config),
        embedding_scale=d_model**0.5 if family.embedding_scaled else 1.0,
    )


def refuse_other_architectures(config: Mapping) -> None:
    """Raise ModelError for what is a different kind of model, whatever it calls itself."""
    name = str(config.get("model_type"))[:60]
    latent = next((key for key in ("kv_lora_rank", "q_lora_rank") if config.get(key)), None)
    if latent:
        raise ModelError(f"{name} compresses keys and values (multi-head latent attention, {latent} = {str(config[latent])[:20]}): not supported.")
    block = next((key for key in config if key.startswith(OTHER_BLOCKS) and config[key]), None)
    if block:
        raise ModelError(f"{name} has blocks that are not attention ({block[:40]}): not supported.")
    if isinstance(config.get("text_config"), Mapping):
        raise ModelError(f"{name} is a model of several parts (text_config); only text models that are saved on their own are supported.")
    if config.get("quantization_config"):
        raise ModelError(f"{name} has quantised weights (quantization_config); use the checkpoint in 16 or 32 bits.")


def refuse_unknown_settings(settings: Settings, name: str) -> None:
    """Raise ModelError for a setting that may change the attention and is not understood for this family."""
    for key, value in settings.config.items():
        if key in KNOWN or key in settings.family.knows or not value:
            continue
        if any(part in key for part in SPEAKS_OF_ATTENTION):
            raise ModelError(f"config.json has {key[:60]} = {str(value)[:40]}, which is not understood for {name}.")
    for key, needed in {"is_causal": settings.family.causal, **settings.family.requires}.items():
        if settings.config.get(key, needed) not in (needed, None):
            raise ModelError(f"config.json has {key} = {str(settings.config[key])[:40]}; for {name} only {needed} is supported.")
    if settings.family.biases in ("none", "qkv") and settings.config.get("attention_bias"):
        raise ModelError(f"config.json has attention_bias = {settings.config['attention_bias']}, which is not understood for {name}.")


def _heads(settings: Settings, name: str, n_heads: int, d_model: int) -> tuple[int, int]:
    """Return (n_kv_heads, d_head); raise ModelError if heads cannot be divided as config.json says."""
    n_kv_heads = settings.positive("num_key_value_heads", n_heads)
    if n_heads % n_kv_heads:
        raise ModelError(f"{n_heads} query heads cannot be shared evenly by {n_kv_heads} key-value heads.")
    if settings.get("head_dim") is None and d_model % n_heads:
        raise ModelError(f"A residual stream of {d_model} cannot be divided evenly into {n_heads} heads.")
    d_head = settings.positive("head_dim", d_model // n_heads)
    if not settings.family.grouped and (n_kv_heads, d_head * n_heads) != (n_heads, d_model):
        raise ModelError(f"In {name} every head has its own keys and d_head = d_model / n_heads; config.json says otherwise.")
    return n_kv_heads, d_head


def _layer_types(settings: Settings, n_layers: int) -> list[str]:
    """Return full_attention or sliding_attention for every layer."""
    if settings.family.windows == "all":
        return [LAYER_TYPES[settings.get("sliding_window") is not None]] * n_layers
    if settings.family.windows == "none":
        return [LAYER_TYPES[0]] * n_layers
    types = settings.get("layer_types")
    if types is None:
        return [LAYER_TYPES[_slides(settings, layer)] for layer in range(n_layers)]
    if not isinstance(types, list) or len(types) != n_layers:
        raise ModelError(f"config.json has layer_types that are not a list of {n_layers} names, one per layer.")
    odd = next((kind for kind in types if kind not in LAYER_TYPES), None)
    if odd is not None:
        raise ModelError(f"config.json has a layer of type {str(odd)[:40]!r}; understood: {', '.join(LAYER_TYPES)}.")
    return types


def _slides(settings: Settings, layer: int) -> bool:
    """Whether a layer has a window where config.json names no layer types: Qwen from a layer on, Gemma but every n-th."""
    if "use_sliding_window" in settings.family.knows:
        on = settings.get("use_sliding_window") and settings.get("sliding_window") is not None
        return bool(on) and layer >= (settings.get("max_window_layers") or 0)
    period = 2
    if "sliding_window_pattern" in settings.family.knows:
        period = settings.positive("sliding_window_pattern", settings.get("_sliding_window_pattern") or 6)
    return bool((layer + 1) % period)


def _windows(settings: Settings, types: list[str], n_layers: int) -> tuple[int | None, ...]:
    if LAYER_TYPES[1] not in types:
        return (None,) * n_layers
    if "use_sliding_window" in settings.family.knows and not settings.get("use_sliding_window"):
        raise ModelError("config.json names sliding layers in layer_types and turns them off in use_sliding_window; only one can hold.")
    width = settings.positive("sliding_window")
    return tuple(width if kind == LAYER_TYPES[1] else None for kind in types)


def _rotations(settings: Settings, types: list[str], n_layers: int, d_head: int, context: int) -> tuple[Rotation | None, ...]:
    """Return every layer's rotation, one object for all layers of a type."""
    if not settings.family.rotary:
        return (None,) * n_layers
    by_type = {}
    for kind in set(types):
        inv_freq, attention_factor = inverse_frequencies(_rope(settings, kind), d_head, context)
        if 2 * len(inv_freq) > d_head:
            raise ModelError(f"A head of {d_head} dimensions cannot be rotated in pairs; an even number is needed.")
        by_type[kind] = Rotation(2 * len(inv_freq), inv_freq, False, attention_factor)
    return tuple(by_type[kind] for kind in types)


def _rope(settings: Settings, kind: str) -> dict:
    """Return the rope settings of a layer type, from ``rope_parameters`` (flat or by layer type) or the older names."""
    local = "rope_local_base_freq" in settings.family.knows and kind == LAYER_TYPES[1]
    said = settings.config.get("rope_parameters") or {}
    old = None if local else settings.config.get("rope_scaling")
    if isinstance(said, Mapping) and any(key in said for key in LAYER_TYPES):
        said = said.get(kind) or {}
    rope = old or said
    if not isinstance(rope, Mapping):
        raise ModelError(f"config.json has rotation settings {str(rope)[:40]!r}; an object is needed.")
    base = settings.get("rope_local_base_freq", 1e4) if local else settings.get("rope_theta")
    default = 1e6 if "rope_local_base_freq" in settings.family.knows else 1e4
    rope = {"rope_theta": default if base is None else base, "partial_rotary_factor": settings.get("partial_rotary_factor", 1.0), **rope}
    if rope["partial_rotary_factor"] not in (1, None) and not settings.family.partial_rotary:
        raise ModelError(f"config.json has partial_rotary_factor = {str(rope['partial_rotary_factor'])[:40]}, which this family does not apply.")
    if settings.get("original_max_position_embeddings") and "original_max_position_embeddings" in settings.family.knows:
        rope["original_max_position_embeddings"] = settings.get("original_max_position_embeddings")
    if settings.family.layout == "concatenated" and rope.get("rope_type", rope.get("type")) in ("su", "yarn"):
        rope = {**rope, "rope_type": "longrope"}  # Phi-3's older names of LongRoPE
    return rope


def rope_of(config: Mapping) -> tuple[dict, int, int]:
    """Return (rope settings, d_head, context) of a model's config.json, its layers of full attention; raise ModelError if it has none."""
    shape = shape_of(config)
    if shape.learned_positions or not shape.rotations:
        raise ModelError(f"{shape.family} does not rotate queries and keys, so it has no rope settings.")
    return _rope(Settings(config, FAMILIES[shape.family]), LAYER_TYPES[0]), shape.d_head, shape.context


def _has_token_output(config: Mapping) -> bool:
    """Whether the checkpoint predicts tokens; one that does not name its architecture is taken to."""
    named = config.get("architectures") or []
    return not named or any(str(name).endswith(WITH_TOKENS) for name in named)
