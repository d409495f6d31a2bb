"""How each model family stores and uses the heads of a layer: one table, keyed by ``model_type``.

A row names parameters, so it reads a live model's state as well as a safetensors file. What a row does not say, config.json
says; what neither says is refused (``engine.models.configuration``).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class Family:
    """One family: names of modules within a block, how q, k and v share a matrix, and what its config.json may leave unsaid.

    ``layout``: separate (three matrices), concatenated ([q; k; v] along the output), interleaved ([q0; k0; v0; q1; ...]).
    ``biases``: none, all, qkv, or config (all if ``attention_bias``). ``windows``: none, all, or types (by ``layer_types``).
    """

    prefix: str = "model."
    block: str = "layers.{layer}."
    attention: str = "self_attn"
    qkv: tuple[str, ...] = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
    layout: str = "separate"
    output: str = "self_attn.o_proj"
    down: str = "mlp.down_proj"  # the feed-forward layer's way back into the residual stream
    transposed: bool = False  # weights stored (in, out)
    norm: str | None = "input_layernorm"
    norm_shift: bool = False  # LayerNorm: a bias beside the gain
    norm_offset: float = 0.0  # the gain is this + the stored weight
    qk_norms: tuple[str, str] | None = None
    biases: str = "config"
    windows: str = "none"
    rotary: bool = True
    partial_rotary: bool = False  # the model rotates part of a head if config.json says so; the others ignore that
    grouped: bool = True  # several query heads may share a key-value head, and d_head is free
    causal: bool = True
    embedding: str = "embed_tokens"
    embedding_scaled: bool = False  # the model multiplies embeddings by sqrt(d_model)
    unembedding: str | None = "lm_head"
    eps: str = "rms_norm_eps"
    keys: Mapping[str, str] = field(default_factory=dict)  # our name of a setting -> config.json's
    defaults: Mapping = field(default_factory=dict)  # what the family means where config.json says nothing
    requires: Mapping = field(default_factory=dict)  # settings understood with this value only
    knows: tuple[str, ...] = ()  # settings about attention that this module takes into account


LLAMA = Family(defaults={"tie_word_embeddings": False}, knows=("rope_scaling",))
QWEN2 = replace(
    LLAMA,
    biases="qkv",
    windows="types",
    defaults={"tie_word_embeddings": False, "sliding_window": 4096, "max_window_layers": 28},
    knows=("rope_scaling", "use_sliding_window", "sliding_window", "max_window_layers", "layer_types"),
)
GEMMA = Family(norm_offset=1.0, embedding_scaled=True, defaults={"head_dim": 256, "tie_word_embeddings": True}, knows=("rope_scaling",))
GEMMA2 = replace(
    GEMMA,
    windows="types",
    defaults={**GEMMA.defaults, "num_key_value_heads": 4, "query_pre_attn_scalar": 256, "attn_logit_softcapping": 50.0, "sliding_window": 4096},
    knows=(
        "rope_scaling",
        "query_pre_attn_scalar",
        "attn_logit_softcapping",
        "final_logit_softcapping",
        "sliding_window",
        "sliding_window_size",
        "layer_types",
    ),
)

FAMILIES = {
    "llama": LLAMA,
    "mistral": replace(
        LLAMA,
        biases="none",
        windows="all",
        defaults={"tie_word_embeddings": False, "num_key_value_heads": 8, "sliding_window": 4096},
        knows=("rope_scaling", "sliding_window"),
    ),
    "qwen2": QWEN2,
    "qwen3": replace(QWEN2, biases="config", qk_norms=("self_attn.q_norm", "self_attn.k_norm"), defaults={**QWEN2.defaults, "head_dim": 128}),
    "gemma": GEMMA,
    "gemma2": GEMMA2,
    "gemma3_text": replace(
        GEMMA2,
        qk_norms=("self_attn.q_norm", "self_attn.k_norm"),
        knows=(
            *(name for name in GEMMA2.knows if name != "attn_logit_softcapping"),  # transformers reads it here and does not apply it
            *("rope_local_base_freq", "sliding_window_pattern", "_sliding_window_pattern"),
        ),
    ),
    "phi3": Family(
        qkv=("self_attn.qkv_proj",),
        layout="concatenated",
        biases="none",
        windows="all",
        partial_rotary=True,
        defaults={"tie_word_embeddings": False, "sliding_window": None, "original_max_position_embeddings": 4096},
        requires={"full_attn_mod": 1},
        knows=("rope_scaling", "sliding_window", "original_max_position_embeddings", "full_attn_mod"),
    ),
    "gpt2": Family(
        prefix="transformer.",
        block="h.{layer}.",
        attention="attn",
        qkv=("attn.c_attn",),
        layout="concatenated",
        output="attn.c_proj",
        down="mlp.c_proj",
        transposed=True,
        norm="ln_1",
        norm_shift=True,
        biases="all",
        rotary=False,
        grouped=False,
        embedding="wte",
        eps="layer_norm_epsilon",
        keys={"hidden_size": "n_embd", "max_position_embeddings": "n_positions", "num_attention_heads": "n_head", "num_hidden_layers": "n_layer"},
        defaults={"tie_word_embeddings": True, "layer_norm_epsilon": 1e-5},
        requires={"scale_attn_weights": True},
        knows=("scale_attn_weights", "reorder_and_upcast_attn"),
    ),
    "gpt_neox": Family(
        prefix="gpt_neox.",
        attention="attention",
        qkv=("attention.query_key_value",),
        layout="interleaved",
        output="attention.dense",
        down="mlp.dense_4h_to_h",
        norm_shift=True,
        partial_rotary=True,
        grouped=False,
        embedding="embed_in",
        unembedding="embed_out",
        eps="layer_norm_eps",
        keys={"rope_theta": "rotary_emb_base", "partial_rotary_factor": "rotary_pct"},
        defaults={"tie_word_embeddings": False, "attention_bias": True, "rotary_pct": 0.25},
        knows=("rope_scaling", "rotary_emb_base", "rotary_pct"),
    ),
    "bert": Family(
        prefix="bert.",
        block="encoder.layer.{layer}.",
        attention="attention.self",
        qkv=("attention.self.query", "attention.self.key", "attention.self.value"),
        output="attention.output.dense",
        down="output.dense",
        norm=None,  # its norms end a sublayer: the residual stream itself is normalised, so there is no gain to fold
        biases="all",
        rotary=False,
        grouped=False,
        causal=False,
        embedding="embeddings.word_embeddings",
        unembedding=None,  # its decoder sits behind a dense layer and GELU: no direction of the stream reads as tokens
        eps="layer_norm_eps",
        defaults={"tie_word_embeddings": True},
        requires={"is_decoder": False, "position_embedding_type": "absolute"},
        knows=("position_embedding_type",),
    ),
}


@dataclass(frozen=True)
class Rotation:
    """The rotation of q and k at position m: pair i of the first ``n_rotary`` dimensions turns by m * inv_freq[i].

    ``inv_freq`` (n_rotary / 2,), radians per token. Pairs are (i, i + n_rotary / 2), or (2i, 2i + 1) if ``interleaved``.
    cos and sin are multiplied by ``attention_factor``, so scores of the rotated part are multiplied by its square.
    """

    n_rotary: int
    inv_freq: tuple[float, ...]
    interleaved: bool = False
    attention_factor: float = 1.0


@dataclass(frozen=True)
class Shape:
    """The sizes of a model that its attention heads depend on, and how it turns q and k into weights.

    Scores are ``query_scale * q.k``, squashed to ``softcap * tanh(score / softcap)`` if there is a softcap; in layer l
    token i sees tokens j <= i if ``causal`` and i - j < ``windows[l]`` if that is not None. ``biases``: which of Q, K, V, O
    have one. q and k pass an RMS norm (``norm_eps``) per head if ``qk_norm``, then ``rotations[l]``.
    """

    family: str
    n_layers: int
    n_heads: int
    n_kv_heads: int
    d_model: int
    d_head: int
    context: int
    vocab_size: int
    causal: bool = True
    query_size: float | None = None  # what scores are divided by the root of; None: d_head
    softcap: float | None = None
    windows: tuple[int | None, ...] = ()
    rotations: tuple[Rotation | None, ...] = ()
    learned_positions: bool = False
    qk_norm: bool = False
    norm_eps: float = 1e-6
    biases: str = ""
    tied: bool = False
    has_unembedding: bool = True
    embedding_scale: float = 1.0

    @property
    def group_size(self) -> int:
        """Query heads that share one key-value head."""
        return self.n_heads // self.n_kv_heads

    @property
    def query_scale(self) -> float:
        """What q.k is multiplied by: 1 / sqrt(d_head) unless config.json says otherwise."""
        return float(self.query_size or self.d_head) ** -0.5


def rotation_of(shape: Shape, layer: int) -> Rotation | None:
    """Return how layer ``layer`` rotates q and k, valid up to the trained length, or None if it does not rotate them."""
    return shape.rotations[layer] if shape.rotations else None


def window_of(shape: Shape, layer: int) -> int | None:
    """Return how many tokens, itself included, a token of layer ``layer`` sees, or None if it sees all (before it)."""
    return shape.windows[layer] if shape.windows else None
