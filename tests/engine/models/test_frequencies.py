"""Rotation frequencies from config.json, against transformers' own and against golden numbers of independent origin."""

import math

import numpy as np
import pytest

from engine.errors import ModelError
from engine.models.frequencies import LAWS, inverse_frequencies

D_HEAD, CONTEXT = 64, 16384
TRAINED = {"original_max_position_embeddings": 4096}
LLAMA3 = {"rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
FACTORS = [1.0 + i / 7 for i in range(D_HEAD // 2)]
SETTINGS = {
    "default": {"rope_type": "default", "rope_theta": 1e4},
    "partial": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.3},
    "linear": {"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0},
    "dynamic": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 4.0},
    "llama3": {**LLAMA3, **TRAINED},
    "yarn": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, **TRAINED},
    "yarn exact ramp": {"rope_type": "yarn", "rope_theta": 1e6, "factor": 16.0, "truncate": False, "beta_fast": 16.0, "beta_slow": 2.0, **TRAINED},
    "yarn two scales": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 40.0, "mscale": 1.0, "mscale_all_dim": 0.7, **TRAINED},
    "yarn explicit": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "attention_factor": 1.5, **TRAINED},
    "longrope": {"rope_type": "longrope", "rope_theta": 1e4, "short_factor": FACTORS, "long_factor": FACTORS[::-1], **TRAINED},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_agrees_with_transformers(name):
    import transformers
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    rope = SETTINGS[name]
    config = transformers.LlamaConfig(hidden_size=4 * D_HEAD, num_attention_heads=4, max_position_embeddings=CONTEXT, rope_parameters=dict(rope))
    plain = transformers.models.llama.modeling_llama.LlamaRotaryEmbedding.compute_default_rope_parameters
    theirs, their_factor = ROPE_INIT_FUNCTIONS.get(rope["rope_type"], plain)(config)
    mine, factor = inverse_frequencies(rope, D_HEAD, CONTEXT)
    if name == "partial":
        assert len(mine) == math.ceil(int(0.3 * D_HEAD) / 2)
        mine = mine[: len(theirs)]
        theirs = 1e4 ** (-np.arange(0, int(0.3 * D_HEAD), 2) / int(0.3 * D_HEAD))
    np.testing.assert_allclose(mine, theirs, rtol=2e-6)
    assert factor == pytest.approx(their_factor, rel=1e-9)


def test_golden_yarn():
    theta, factor = inverse_frequencies(SETTINGS["yarn"], 128, CONTEXT)
    np.testing.assert_allclose(
        np.array(theta)[[0, 20, 32, 45, 63]], [1, 5.62341e-2, 6.53846e-3, 4.29403e-4, 2.88695e-5], rtol=5e-6
    )  # golden numbers have six digits
    assert factor == pytest.approx(1.13863, abs=1e-5)


def test_golden_llama3():
    theta, _ = inverse_frequencies({**LLAMA3, "original_max_position_embeddings": 8192}, 128, 131072)
    np.testing.assert_allclose(
        np.array(theta)[[28, 30, 33, 36, 63]], [3.21145e-3, 1.37189e-3, 3.12694e-4, 7.78466e-5, 3.06893e-7], rtol=5e-6
    )  # golden numbers have six digits


def test_golden_longrope_factor():
    rope = {"rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0] * 64, **TRAINED}
    assert inverse_frequencies(rope, 128, 4 * 4096)[1] == pytest.approx(1.08012, abs=1e-5)
    assert inverse_frequencies(rope, 128, 32 * 4096)[1] == pytest.approx(1.19024, abs=1e-5)


@pytest.mark.parametrize(
    ("rope", "said"),
    [
        ({"rope_type": "mrope", "rope_theta": 1e4}, r"law 'mrope' is not understood; understood laws: default"),
        ({"rope_theta": 1e4, "mrope_section": [2, 2]}, "setting 'mrope_section' is not understood"),
        ({"rope_type": "linear", "rope_theta": 1e4}, "factor = None; a positive number"),
        ({"rope_theta": -3}, "rope_theta = -3; a positive number"),
        ({"rope_theta": True}, "rope_theta = True"),
        ({"rope_theta": 1e4, "partial_rotary_factor": 1.5}, r"a factor in \(0, 1\]"),
        ({"rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0]}, "a list of 4 positive numbers"),
    ],
)
def test_what_is_not_understood_is_refused(rope, said):
    with pytest.raises(ModelError, match=said):
        inverse_frequencies(rope, 8, 32)


def test_every_law_is_compared_with_transformers():
    assert {rope["rope_type"] for rope in SETTINGS.values()} == set(LAWS)
