"""config.json to Shape: today's and older spellings, what a family leaves unsaid, and refusals by name."""

import json

import pytest

from engine.errors import ModelError
from engine.models.configuration import shape_of
from engine.models.families import FAMILIES, Rotation, Shape, rotation_of
from tests.engine.models.tiny import CASES

LLAMA = {
    "model_type": "llama",
    "hidden_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "vocab_size": 40,
    "rms_norm_eps": 1e-5,
}
QWEN = {**LLAMA, "model_type": "qwen2", "use_sliding_window": True, "sliding_window": 8, "max_window_layers": 2}
GEMMA3 = {**LLAMA, "model_type": "gemma3_text", "num_hidden_layers": 12, "head_dim": 10, "sliding_window": 8}


def classes() -> dict:
    import transformers

    found = {getattr(transformers, case.config) for case in CASES}
    return {found_class.model_type: found_class for found_class in found}


@pytest.mark.parametrize("family", FAMILIES)
def test_what_a_family_leaves_unsaid_is_what_transformers_means(family):
    """The shape of a whole default config equals that of one which says only the sizes."""
    default = json.loads(classes()[family]().to_json_string())
    sizes = ("n_embd", "n_head", "n_layer", "n_positions", *LLAMA)
    said = {key: default[key] for key in (*sizes, "layer_norm_eps", "model_type", "original_max_position_embeddings") if key in default}
    assert shape_of(said) == shape_of(default)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_is_proven_by_a_tiny_model(family):
    assert family in classes()


def test_older_spellings_of_the_rotation():
    old = {**LLAMA, "rope_theta": 500.0, "rope_scaling": {"type": "linear", "factor": 2.0}}
    new = {**LLAMA, "rope_parameters": {"rope_type": "linear", "rope_theta": 500.0, "factor": 2.0}}
    assert shape_of(old) == shape_of(new)
    neox = {**LLAMA, "model_type": "gpt_neox", "num_key_value_heads": None}
    old = {**neox, "rotary_pct": 0.34, "rotary_emb_base": 77}
    new = {**neox, "rope_parameters": {"rope_type": "default", "rope_theta": 77, "partial_rotary_factor": 0.34}}
    assert shape_of(old) == shape_of(new)
    assert rotation_of(shape_of(old), 0) == Rotation(2, (1.0,))
    phi = {**LLAMA, "model_type": "phi3", "original_max_position_embeddings": 16}
    rope = {"short_factor": [1.0, 2.0, 3.0], "long_factor": [4.0] * 3}
    assert shape_of({**phi, "rope_scaling": {"type": "su", **rope}}) == shape_of({**phi, "rope_scaling": {"type": "longrope", **rope}})


def test_gemma3_local_and_global_rotations_in_both_spellings():
    old = {
        **GEMMA3,
        "rope_theta": 1e6,
        "rope_local_base_freq": 1e4,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0},
        "sliding_window_pattern": 3,
    }
    types = (["sliding_attention"] * 2 + ["full_attention"]) * 4
    full = {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0}
    nested = {"sliding_attention": {"rope_type": "default", "rope_theta": 1e4}, "full_attention": full}
    shape = shape_of(old)
    assert shape == shape_of({**GEMMA3, "layer_types": types, "rope_parameters": nested})
    assert shape.windows == (8, 8, None) * 4
    assert rotation_of(shape, 0).inv_freq[1] == pytest.approx(1e4**-0.2)
    assert rotation_of(shape, 2).inv_freq[1] == pytest.approx(1e6**-0.2 / 8)


def test_windows_by_family():
    assert shape_of(QWEN).windows == (None, None, 8)
    assert shape_of({**QWEN, "use_sliding_window": False}).windows == (None,) * 3
    assert shape_of({**LLAMA, "model_type": "mistral"}).windows == (4096,) * 3
    assert shape_of({**LLAMA, "model_type": "mistral", "sliding_window": None}).windows == (None,) * 3
    assert shape_of({**GEMMA3, "model_type": "gemma2"}).windows == (8, None) * 6
    assert shape_of({**GEMMA3}).windows == ((8,) * 5 + (None,)) * 2


def test_a_shape_can_be_made_from_its_sizes_alone():
    shape = Shape("llama", 1, 4, 2, 24, 6, 32, 40)
    assert (shape.group_size, shape.query_scale, rotation_of(shape, 0)) == (2, pytest.approx(6**-0.5), None)


def test_token_output_is_read_from_the_architecture():
    assert shape_of(LLAMA).has_unembedding
    assert shape_of({**LLAMA, "architectures": ["LlamaForCausalLM"]}).has_unembedding
    assert not shape_of({**LLAMA, "architectures": ["LlamaModel"]}).has_unembedding
    assert not shape_of({**LLAMA, "architectures": ["LlamaForSequenceClassification"]}).has_unembedding


def test_settings_of_published_checkpoints_that_change_nothing():
    harmless = {
        "use_mrope": False,
        "rope_scaling": None,
        "rope_interleaved": False,
        "pretraining_tp": 1,
        "transformers.js_config": {"dtype": "q4"},
        "is_llama_config": True,
        "auto_map": {"AutoConfig": "configuration.py"},
        "task_specific_params": {"text-generation": {"max_length": 50}},
        "pruned_heads": {},
        "attention_dropout": 0.1,
        "_attn_implementation": "eager",
    }
    assert shape_of({**LLAMA, **harmless}) == shape_of(LLAMA)


# As the hub serves them, by repositories that quote them; sizes and what is about attention, not every word.
PUBLISHED = {
    "gemma-3-270m": {
        **{"_sliding_window_pattern": 6, "architectures": ["Gemma3ForCausalLM"], "attention_bias": False, "attention_dropout": 0.0},
        **{"attn_logit_softcapping": None, "final_logit_softcapping": None, "head_dim": 256, "hidden_size": 640, "sliding_window": 512},
        **{"layer_types": (["sliding_attention"] * 5 + ["full_attention"]) * 3, "max_position_embeddings": 32768, "model_type": "gemma3_text"},
        **{"num_attention_heads": 4, "num_hidden_layers": 18, "num_key_value_heads": 1, "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06},
        **{"rope_local_base_freq": 10000.0, "rope_scaling": None, "rope_theta": 1000000.0, "vocab_size": 262144},
    },
    "gemma-2-9b": {
        **{"architectures": ["Gemma2ForCausalLM"], "attention_bias": False, "attn_logit_softcapping": 50.0, "cache_implementation": "hybrid"},
        **{"final_logit_softcapping": 30.0, "head_dim": 256, "hidden_size": 3584, "max_position_embeddings": 8192, "model_type": "gemma2"},
        **{"num_attention_heads": 16, "num_hidden_layers": 42, "num_key_value_heads": 8, "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06},
        **{"rope_theta": 10000.0, "sliding_window": 4096, "sliding_window_size": 4096, "vocab_size": 256000},
    },
    "Phi-4-mini": {
        **{"architectures": ["Phi3ForCausalLM"], "attention_bias": False, "auto_map": {"AutoConfig": "configuration_phi3.Phi3Config"}},
        **{"full_attn_mod": 1, "hidden_size": 3072, "interpolate_factor": 1, "lm_head_bias": False, "max_position_embeddings": 131072},
        **{"mlp_bias": False, "model_type": "phi3", "num_attention_heads": 24, "num_hidden_layers": 32, "num_key_value_heads": 8},
        **{"original_max_position_embeddings": 4096, "partial_rotary_factor": 0.75, "rms_norm_eps": 1e-05, "sliding_window": 262144},
        **{"rope_scaling": {"type": "longrope", "short_factor": [1] * 48, "long_factor": [2] * 48}, "rope_theta": 1e4, "vocab_size": 200064},
    },
    "bert-base": {
        **{"_attn_implementation_autoset": True, "architectures": ["BertForMaskedLM"], "attention_probs_dropout_prob": 0.1},
        **{"hidden_size": 768, "layer_norm_eps": 1e-12, "max_position_embeddings": 512, "model_type": "bert", "num_attention_heads": 12},
        **{"num_hidden_layers": 12, "position_embedding_type": "absolute", "type_vocab_size": 2, "vocab_size": 30522},
    },
}


@pytest.mark.parametrize(
    ("name", "d_head", "n_rotary", "tied", "tokens"),
    [
        ("gemma-3-270m", 256, 256, True, True),
        ("gemma-2-9b", 256, 256, True, True),
        ("Phi-4-mini", 128, 96, False, True),
        ("bert-base", 64, None, True, False),
    ],
)
def test_published_configurations_are_understood(name, d_head, n_rotary, tied, tokens):
    shape = shape_of(PUBLISHED[name])
    rotation = rotation_of(shape, 0)
    assert (shape.d_head, rotation and rotation.n_rotary, shape.tied, shape.has_unembedding) == (d_head, n_rotary, tied, tokens)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model_type": "falcon"}, r"The model type 'falcon' is not understood; understood: llama, mistral, qwen2"),
        ({"model_type": None}, "The model type 'None' is not understood"),
        (
            {"model_type": "deepseek_v3", "kv_lora_rank": 512},
            r"deepseek_v3 compresses keys and values \(multi-head latent attention, kv_lora_rank = 512\)",
        ),
        ({"model_type": "jamba", "mamba_d_state": 16}, r"jamba has blocks that are not attention \(mamba_d_state\)"),
        ({"model_type": "qwen3_next", "linear_num_key_heads": 16}, r"blocks that are not attention \(linear_num_key_heads\)"),
        ({"model_type": "gemma3", "text_config": {}}, "is a model of several parts"),
        ({"quantization_config": {"quant_method": "gptq"}}, "llama has quantised weights"),
        ({"attention_multiplier": 0.5}, "attention_multiplier = 0.5, which is not understood for llama"),
        ({"attn_logit_softcapping": 50.0}, "attn_logit_softcapping = 50.0, which is not understood for llama"),
        ({"sliding_window": 128}, "sliding_window = 128, which is not understood for llama"),
        ({"use_qk_norm": True}, "use_qk_norm = True, which is not understood for llama"),
        ({"no_rope_layers": [1, 0]}, "no_rope_layers"),
        ({"model_type": "gemma3_text", "attn_logit_softcapping": 5.0}, "attn_logit_softcapping = 5.0, which is not understood for gemma3_text"),
        ({"model_type": "gemma3_text", "use_bidirectional_attention": True}, "use_bidirectional_attention = True"),
        ({"model_type": "mistral", "attention_bias": True}, "attention_bias = True, which is not understood for mistral"),
        ({"model_type": "bert", "num_key_value_heads": None, "is_decoder": True}, "is_decoder = True; for bert only False"),
        ({"model_type": "bert", "num_key_value_heads": None, "position_embedding_type": "relative_key"}, "for bert only absolute"),
        ({"model_type": "gpt2", "num_key_value_heads": None, "scale_attn_weights": False}, "scale_attn_weights = False; for gpt2 only True"),
        ({"model_type": "gpt2", "num_key_value_heads": None, "scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx = True"),
        ({"model_type": "gpt_neox"}, "In gpt_neox every head has its own keys"),
        ({"num_key_value_heads": 3}, "4 query heads cannot be shared evenly by 3 key-value heads"),
        ({"num_attention_heads": 5, "num_key_value_heads": 5}, "A residual stream of 24 cannot be divided evenly into 5 heads"),
        ({"hidden_size": None}, "hidden_size = None; a whole number"),
        ({"num_attention_heads": True}, "num_attention_heads = True"),
        ({"num_hidden_layers": 10**9}, "a whole number from 1 to 1000"),
        ({"vocab_size": "40"}, "vocab_size = 40; a whole number"),
        ({"head_dim": 5}, "A head of 5 dimensions cannot be rotated in pairs"),
        ({"rope_parameters": 7}, "rotation settings '7'; an object is needed"),
        ({"model_type": "qwen2", "layer_types": ["full_attention"]}, "not a list of 3 names"),
        ({"model_type": "qwen2", "layer_types": ["full_attention", "linear_attention", "full_attention"]}, "a layer of type 'linear_attention'"),
        (
            {"model_type": "qwen2", "layer_types": ["sliding_attention"] * 3, "use_sliding_window": True, "sliding_window": None},
            "sliding_window = None",
        ),
        ({"model_type": "qwen2", "layer_types": ["sliding_attention"] * 3, "use_sliding_window": False, "sliding_window": 8}, "turns them off"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor = 0.5, which this family does not apply"),
        ({"rope_parameters": {"rope_theta": 1e4, "partial_rotary_factor": 0.5}}, "partial_rotary_factor = 0.5, which"),
        ({"is_causal": False}, "is_causal = False; for llama only True"),
        ({"model_type": "phi3", "full_attn_mod": 2}, "full_attn_mod = 2; for phi3 only 1"),
        ({"rms_norm_eps": "small"}, "rms_norm_eps = small; a positive number"),
    ],
)
def test_refused_in_one_sentence(change, said):
    with pytest.raises(ModelError, match=said) as refused:
        shape_of({**LLAMA, **change})
    assert str(refused.value).count("\n") == 0
    assert len(str(refused.value)) < 250
