"""Rope settings as JSON: what is written loads in transformers and turns a model alike; what is read is refused in one sentence."""

import json

import numpy as np
import pytest
import torch

from engine.errors import LabError
from engine.models.rope_config import difference, export, of_model, read_pasted
from engine.rope import RopeParams, frequencies
from engine.rope_laws import LAWS
from tests.conftest import FABLE

LISTS = {"short_factor": ",".join(["1.5"] * 16), "long_factor": ",".join(f"{1 + i / 5}" for i in range(16))}
ASKED = [{"scheme": scheme, **LISTS} for scheme in LAWS]
ASKED += [{"scheme": "yarn", "ramp": "turns"}, {"scheme": "pi", "pairs": "slow"}, {"scheme": "dynamic", "length": 200}, {"attention_factor": 1.4}]
IDS = [" ".join(str(v) for k, v in given.items() if k not in LISTS) for given in ASKED]


@pytest.mark.parametrize("given", ASKED, ids=IDS)
def test_what_is_written_loads_and_turns_alike(given, tmp_path):
    """transformers reads the exported settings from a config.json beside Fable's weights; its rotary module gives our frequencies."""
    from transformers import AutoModelForCausalLM

    params = RopeParams(**given)
    for file in ("model.safetensors", "generation_config.json"):
        (tmp_path / file).symlink_to(FABLE / file)
    config = json.loads((FABLE / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | export(params)))
    rotary = AutoModelForCausalLM.from_pretrained(tmp_path).model.rotary_emb
    positions = torch.arange(params.used_length)[None]
    rotary(torch.zeros(1, 1), positions)  # dynamic and longrope look at the length only now
    law = frequencies(params)
    np.testing.assert_allclose(rotary.inv_freq.double().numpy(), law.scaled_inv_freq, rtol=1e-6)
    assert float(rotary.attention_scaling) == pytest.approx(law.attention_factor, rel=1e-9)


@pytest.mark.parametrize("given", ASKED, ids=IDS)
def test_the_difference_is_that_of_float32(given):
    found = difference(RopeParams(**given))
    assert 0 < found.inv_freq < 1e-6
    assert found.attention_factor < 1e-9


@pytest.mark.parametrize("given", [g for g in ASKED if not {"ramp", "pairs"} & set(g)], ids=lambda g: g.get("scheme", "yarn"))
def test_what_is_written_can_be_read_again(given):
    params = RopeParams(**given)
    again = read_pasted(RopeParams(length=params.length), json.dumps(export(params)["rope_parameters"]))
    np.testing.assert_allclose(frequencies(again).scaled_inv_freq, frequencies(params).scaled_inv_freq, rtol=1e-9)
    assert frequencies(again).attention_factor == pytest.approx(frequencies(params).attention_factor)


def test_both_generations_say_the_same():
    new = '{"rope_parameters": {"rope_type": "yarn", "rope_theta": 500000.0, "factor": 2.0}, "max_position_embeddings": 8192, "head_dim": 64}'
    old = '{"rope_scaling": {"type": "yarn", "factor": 2.0}, "rope_theta": 500000.0, "max_position_embeddings": 8192, "head_dim": 64}'
    a, b = (read_pasted(RopeParams(), text) for text in (new, old))
    assert a == b
    assert (a.scheme, a.factor, a.base, a.original_context, a.d_head) == ("yarn", 2.0, 5e5, 8192, 64)


def test_settings_of_whole_configs():
    config = json.loads((FABLE / "config.json").read_text())
    for found in (read_pasted(RopeParams(scheme="pi", d_head=64), json.dumps(config)), of_model(RopeParams(scheme="pi", d_head=64))):
        assert (found.scheme, found.d_head, found.original_context, found.base) == ("none", 32, 256, 1e4)


def test_two_scales_become_one_factor():
    text = '{"rope_type": "yarn", "factor": 40.0, "original_max_position_embeddings": 4096, "mscale": 1.0, "mscale_all_dim": 0.7}'
    expected = (0.1 * np.log(40) + 1) / (0.07 * np.log(40) + 1)
    assert frequencies(read_pasted(RopeParams(), text)).attention_factor == pytest.approx(expected)


BAD = [
    ("not json", "not JSON"),
    ("", "not JSON"),
    ("[" * 15_000, "not JSON"),
    ("[1, 2]", "not an object"),
    ('{"rope_type": "linear", "factor": NaN}', "hold NaN"),
    ('{"rope_type": "linear", "factor": Infinity}', "hold Infinity"),
    ('{"rope_type": "linear", "factor": 1e999}', "a positive number is needed"),
    ('{"rope_type": "linear", "factor": 0.5}', "Factor is 0.5"),
    ('{"rope_type": "linear"}', "factor = None"),
    ('{"rope_type": "mrope"}', "'mrope' is not understood"),
    ('{"rope_type": ["yarn"]}', "not understood"),
    ('{"rope_type": "default", "surprise": 3}', "setting 'surprise' is not understood"),
    ('{"rope_type": "longrope", "factor": 2.0, "short_factor": [1, 2], "long_factor": [1, 2]}', "list of 16 positive numbers"),
    ('{"rope_type": "yarn", "factor": 2.0, "beta_fast": 1, "beta_slow": 2}', "beta_fast must be the larger"),
    ('{"rope_type": "default", "rope_theta": 1}', "base above 1"),
    ('{"rope_type": "default", "original_max_position_embeddings": "x"}', "a whole number above 0"),
    ("x" * 50_000, "at most 20000"),
]


@pytest.mark.parametrize(("text", "said"), BAD, ids=range(len(BAD)))
def test_pasted_text_that_is_no_rope_is_one_sentence(text, said):
    with pytest.raises(LabError, match=said) as error:
        read_pasted(RopeParams(), text)
    assert len(str(error.value)) < 250
