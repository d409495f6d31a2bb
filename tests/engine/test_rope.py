"""Laws against transformers and golden numbers, scores against the rotation written out, and bad input in one sentence each."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from engine.cli import main
from engine.errors import InputError
from engine.rope import RopeParams, divisors, example_lists, frequencies, rotor, rotor_numbers, score, shown_pairs
from engine.rope_laws import LAWS, correction_index, dynamic_base, ntk_base
from engine.rope_scores import (
    costs,
    rotation,
    score_by_distance,
    shift_errors,
    shift_matrix,
    sinusoidal,
    stale_cache,
    temperature,
    unseen_phases,
)
from pages.shared import data

LLAMA = RopeParams(d_head=128, base=1e4, original_context=4096, factor=4.0)
SHORT, LONG = (",".join(f"{1 + i / step:.6g}" for i in range(64)) for step in (70, 7))


def transformers_frequencies(kind: str, context: int, length=None, d_head=128, **rope):
    """Return what transformers computes for rope parameters given here by hand, as (inv_freq, attention factor)."""
    import transformers
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    rope = {"rope_type": kind, "rope_theta": 1e4, **rope}
    config = transformers.LlamaConfig(
        hidden_size=d_head, num_attention_heads=1, head_dim=d_head, max_position_embeddings=context, rope_parameters=rope
    )
    inv_freq, factor = ROPE_INIT_FUNCTIONS[kind](config, seq_len=length)
    return inv_freq.double().numpy(), float(factor)


TRAINED = {"factor": 4.0, "original_max_position_embeddings": 4096}
THEIRS = {
    "pi": ({}, ("linear", 4096), {"factor": 4.0}),
    "ntk": ({}, ("dynamic", 4096, 4 * 4096), {"factor": 1.0}),
    "dynamic": ({}, ("dynamic", 4096, 8192), {"factor": 4.0}),
    "dynamic at 16384": ({"length": 16384}, ("dynamic", 4096, 16384), {"factor": 4.0}),
    "dynamic within": ({"length": 100}, ("dynamic", 4096, 100), {"factor": 4.0}),
    "by_parts": ({}, ("yarn", 16384), {**TRAINED, "attention_factor": 1.0}),
    "yarn": ({}, ("yarn", 16384), TRAINED),
    "yarn other ramp": (
        {"beta_fast": 16.0, "beta_slow": 2.0, "truncate": False},
        ("yarn", 16384),
        {**TRAINED, "beta_fast": 16.0, "beta_slow": 2.0, "truncate": False},
    ),
    "longrope": (
        {"short_factor": SHORT, "long_factor": LONG},
        ("longrope", 16384, 8192),
        {**TRAINED, "short_factor": list(divisors("", SHORT)), "long_factor": list(divisors("", LONG))},
    ),
    "longrope within": (
        {"short_factor": SHORT, "long_factor": LONG, "length": 4096},
        ("longrope", 16384, 4096),
        {**TRAINED, "short_factor": list(divisors("", SHORT)), "long_factor": list(divisors("", LONG))},
    ),
    "llama3": ({}, ("llama3", 16384), {**TRAINED, "low_freq_factor": 1.0, "high_freq_factor": 4.0}),
}


@pytest.mark.parametrize("name", THEIRS)
def test_a_law_agrees_with_transformers(name):
    ours, where, rope = THEIRS[name]
    mine = frequencies(replace(LLAMA, scheme=name.split()[0], **ours))
    theirs, factor = transformers_frequencies(*where, **rope)
    np.testing.assert_allclose(mine.scaled_inv_freq, theirs, rtol=1e-6)
    assert mine.attention_factor == pytest.approx(factor, rel=1e-9)


def test_every_law_is_compared():
    assert {name.split()[0] for name in THEIRS} | {"none"} == set(LAWS)
    np.testing.assert_allclose(frequencies(replace(LLAMA, scheme="none")).scaled_inv_freq, 1e4 ** (-np.arange(64) / 64), rtol=1e-12)


def test_golden_bases_and_ramp():
    """Numbers computed once with numpy from the papers' formulas, independently of this code."""
    s = LLAMA.stretch()
    assert ntk_base(s, 4.0) == pytest.approx(40889.94, abs=0.01)
    assert dynamic_base(s) == pytest.approx(51293.79, abs=0.01)
    assert dynamic_base(replace(s, length=16384.0)) == pytest.approx(135401.97, abs=0.01)
    assert (correction_index(s, 32), correction_index(s, 1)) == (pytest.approx(20.944, abs=1e-3), pytest.approx(45.027, abs=1e-3))
    assert frequencies(LLAMA).unfinished == 18


def test_golden_frequencies():
    """As above; six digits are given."""
    yarn = frequencies(LLAMA)
    np.testing.assert_allclose(yarn.scaled_inv_freq[[0, 20, 32, 45, 63]], [1, 5.62341e-2, 6.53846e-3, 4.29403e-4, 2.88695e-5], rtol=5e-6)
    np.testing.assert_allclose(yarn.inv_freq[[0, 20, 32, 45, 63]], [1, 5.62341e-2, 1e-2, 1.53993e-3, 1.15478e-4], rtol=5e-6)
    llama = frequencies(replace(LLAMA, scheme="llama3", base=5e5, factor=8.0, original_context=8192))
    np.testing.assert_allclose(llama.scaled_inv_freq[[28, 30, 33, 36, 63]], [3.21145e-3, 1.37189e-3, 3.12694e-4, 7.78466e-5, 3.06893e-7], rtol=5e-6)
    kept, divided = np.isclose(llama.ratio, 1), np.isclose(llama.ratio, 1 / 8)
    assert (kept.sum(), (~kept & ~divided).sum(), divided.sum()) == (29, 6, 29)


@pytest.mark.parametrize(("factor", "scale"), [(2, 1.06931), (4, 1.13863), (8, 1.20794), (16, 1.27726), (32, 1.34657)])
def test_golden_attention_factors(factor, scale):
    assert frequencies(replace(LLAMA, factor=float(factor))).attention_factor == pytest.approx(scale, abs=1e-5)


@pytest.mark.parametrize(("factor", "scale"), [(4, 1.08012), (32, 1.19024)])
def test_golden_longrope_attention_factor(factor, scale):
    params = replace(LLAMA, scheme="longrope", factor=float(factor), long_factor=LONG)
    assert frequencies(params).attention_factor == pytest.approx(scale, abs=1e-5)


def test_the_ramp_of_the_paper():
    """gamma = (r - alpha) / (beta - alpha) in turns r, clipped; it is not the ramp of the code."""
    turns = replace(LLAMA, scheme="by_parts", ramp="turns")
    result, by_index = frequencies(turns), frequencies(replace(turns, ramp="index"))
    theta = 1e4 ** (-np.arange(64) / 64)
    gamma = np.clip((4096 * theta / (2 * math.pi) - 1) / 31, 0, 1)
    np.testing.assert_allclose(result.scaled_inv_freq, (1 - gamma) * theta / 4 + gamma * theta, rtol=1e-12)
    assert np.abs(result.ratio - by_index.ratio).max() > 0.1


def test_a_law_on_some_pairs_only():
    slow = np.arange(64) >= 64 - 18
    for pairs, changed in {"all": np.ones(64, bool), "slow": slow, "fast": ~slow, "none": np.zeros(64, bool)}.items():
        ratio = frequencies(replace(LLAMA, scheme="pi", pairs=pairs)).ratio
        np.testing.assert_allclose(ratio, np.where(changed, 0.25, 1))
    assert frequencies(replace(LLAMA, pairs="none")).attention_factor == 1


def test_the_score_is_the_rotation_written_out():
    generator = np.random.default_rng(1)
    q, k, theta = generator.standard_normal(8), generator.standard_normal(8), frequencies(RopeParams(d_head=8)).inv_freq
    rotation = lambda m: torch.block_diag(*(torch.tensor([[math.cos(m * t), -math.sin(m * t)], [math.sin(m * t), math.cos(m * t)]]) for t in theta))  # noqa: E731
    for query, key in ((5, 2), (9, 9), (3, 7)):
        expected = (rotation(query).double().numpy() @ q) @ (rotation(key).double().numpy() @ k)
        assert score(theta, q, k, query - key) == pytest.approx(expected, abs=1e-5)  # torch's matrices are float32


def test_the_rotor_is_rope_of_its_own_width():
    for d_head, shown in ((8, 8), (16, 16), (32, 8), (128, 8), (12, 12), (20, 4), (36, 6)):
        result = rotor(RopeParams(d_head=d_head))
        assert result.d == shown
        np.testing.assert_allclose(result.inv_freq, 1e4 ** (-2 * np.arange(shown // 2) / shown))
        assert len(shown_pairs(d_head)) == shown // 2


def test_the_example_lists_are_by_parts_beyond_and_nothing_within():
    for given in (RopeParams(), LLAMA):
        params = replace(given, scheme="longrope", **example_lists(given))
        beyond, within = frequencies(params), frequencies(replace(params, length=given.original_context))
        np.testing.assert_allclose(beyond.ratio, frequencies(replace(given, scheme="by_parts")).ratio, rtol=1e-5)
        np.testing.assert_allclose(within.ratio, 1)


def test_the_preset_holds_the_example_lists():
    link = next(p.link for p in data.lab("rope").presets if p.label.startswith("LongRoPE"))
    assert {name: link[name] for name in ("short_factor", "long_factor")} == example_lists(RopeParams())


def test_the_rotation_matrix_is_orthogonal_and_the_check_can_fail():
    found = rotation(RopeParams(position=40))
    blocks = [[[math.cos(a), -math.sin(a)], [math.sin(a), math.cos(a)]] for a in 40 * rotor(RopeParams()).inv_freq]
    np.testing.assert_allclose(found.matrix, torch.block_diag(*map(torch.tensor, blocks)).numpy(), atol=1e-6)
    assert max(found.orthogonal, found.hops) < 1e-13 < 0.1 < found.unrelated


def test_the_score_has_the_attention_factor_squared():
    params, plain = RopeParams(factor=8.0, position=40), RopeParams(factor=8.0, position=40, attention_factor=1.0)
    under, without = (rotor_numbers(p, rotor(p), frequencies(p))["score"] for p in (params, plain))
    assert under.value == pytest.approx(without.value * (0.1 * math.log(8) + 1) ** 2)
    assert under.chance == pytest.approx(math.sqrt(2))


def test_rotor_vectors():
    dragged = RopeParams(d_head=4, kind="dragged", q=(1.0, 0.0, 0.0, 2.0), k=(0.5, 0.5, 0.0, 1.0), position=0)
    result = rotor(dragged)
    assert rotor_numbers(dragged, result, frequencies(dragged))["plain_score"].value == pytest.approx(2.5)
    other = rotor(replace(dragged, q=(1.0,)))  # a list for another width is left aside
    assert (len(other.q), tuple(other.k)) == (4, (0.5, 0.5, 0.0, 1.0))


def test_precision_breaks_what_holds_in_exact_arithmetic():
    result = shift_errors(RopeParams(d_head=64))
    at = result.shifts.index
    assert 1e-13 < result.fp64[at(1000)] < 1e-11
    assert 1e-10 < result.fp64[at(1_000_000)] < 1e-8
    assert 0.01 < result.fp32[at(1_000_000)] < 1
    assert result.bf16[at(1000)] > result.spread / 2


def test_angles_that_training_never_saw():
    """The slow pairs, and only those, against a check by brute force."""
    params = RopeParams(reach=4, scheme="pi")
    result, law = unseen_phases(params), frequencies(params)
    unseen = (result.plain > 0).any(1)
    assert unseen.tolist() == (255 * law.inv_freq < 2 * math.pi).tolist()
    assert result.share("scaled") < result.share("plain")
    seen = np.exp(1j * np.arange(256)[:, None] * law.inv_freq)
    pair, column = 8, -1
    nearest = np.abs(np.angle(seen[:, pair].conj() * np.exp(1j * result.positions[column] * law.inv_freq[pair]))).min()
    assert result.plain[pair, column] == pytest.approx(nearest)


def test_score_against_distance():
    params = RopeParams(scheme="pi")
    result = score_by_distance(params)
    theta = frequencies(params).inv_freq
    np.testing.assert_allclose(result.plain, np.cos(result.delta[:, None] * theta).sum(1), atol=1e-12)
    np.testing.assert_allclose(result.scaled, np.cos(result.delta[:, None] * theta / 4).sum(1), atol=1e-12)


def test_the_temperature_sharpens():
    result = temperature(RopeParams(length=1024))
    assert result.plain_keys > result.trained_keys
    assert result.scaled_keys < result.plain_keys
    assert temperature(RopeParams(scheme="pi")).scaled_keys == pytest.approx(temperature(RopeParams(scheme="pi")).plain_keys)


def test_sinusoidal_positions_move_by_a_matrix():
    result = sinusoidal(RopeParams(d_head=64))
    assert result.error.max() < 1e-12
    assert result.wrong_step > 0.1
    M = shift_matrix(frequencies(RopeParams()).inv_freq, 3)
    np.testing.assert_allclose(M @ M.T, np.eye(32), atol=1e-12)


def test_the_stale_cache_against_drawn_vectors():
    params = RopeParams(d_head=16, length=512)
    result = stale_cache(params)
    assert result.stale[result.distance < 0].size == 0
    assert result.stale[np.argmin(result.distance)] == pytest.approx(0, abs=1e-12)  # the last key was rotated under today's base
    key, last, pairs = 300, 511, 8
    at = lambda length: frequencies(replace(params, scheme="dynamic", length=length)).scaled_inv_freq  # noqa: E731
    generator = np.random.default_rng(0)
    q, k = (generator.standard_normal((200_000, pairs)) + 1j * generator.standard_normal((200_000, pairs)) for _ in range(2))
    scores = [(q * k.conj() * np.exp(1j * (last * at(512) - key * theta))).real.sum(1) for theta in (at(512), at(key + 1))]
    measured = np.sqrt(((scores[1] - scores[0]) ** 2).mean() / (scores[0] ** 2).mean())
    assert np.interp(last - key, result.distance[::-1], result.stale[::-1]) == pytest.approx(measured, rel=0.05)


def test_costs_of_the_shipped_model():
    result = costs(4, 8, 4, 256, 32, 256)
    assert result.operations == (4 * 12 * 96, 256, 256)
    assert result.parameter_bytes == (0, 0, 4 * 256 * 256)
    assert result.table_bytes == (4 * 256 * 32, 4 * 256 * 256, 0)


def test_the_contract_for_scripts(capsys):
    command = "rope --scheme yarn --factor 4 --original-context 4096 --d-head 128 --base 10000 --json -"
    assert main(command.split()) == 0
    result = json.loads(capsys.readouterr().out)
    assert len(result["inv_freq"]) == len(result["scaled_inv_freq"]) == 64
    assert result["attention_factor"] == pytest.approx(1.13863, abs=1e-5)
    assert main(["rope", "--scheme", "longrope", "--d-head", "4", "--short-factor", "1,1", "--long-factor", "1,2", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["scaled_inv_freq"] == pytest.approx([1, 0.005])


BAD = [
    ({"scheme": "<b>"}, "accepted are none, pi"),
    ({"factor": 0.5}, "Factor is 0.5; accepted is 1 to 1024"),
    ({"factor": 1e9}, "accepted is 1 to 1024"),
    ({"factor": math.nan}, "Factor is nan"),
    ({"d_head": 7}, "an even number is needed"),
    ({"base": 1.0}, "above 1"),
    ({"base": -3.0}, "above 1"),
    ({"base": math.inf}, "above 1"),
    ({"original_context": 0}, "Original context is 0; accepted is 1"),
    ({"beta_fast": 1.0, "beta_slow": 1.0}, "beta_fast must be the larger"),
    ({"high_freq_factor": 1.0}, "must be above low_freq_factor"),
    ({"long_factor": "1,a"}, "a list of positive numbers"),
    ({"long_factor": "1,-2"}, "a list of positive numbers"),
    ({"long_factor": "1," * 200_000}, "a list of positive numbers"),
    ({"reach": 9}, "accepted is 1 to 8"),
    ({"position": -1}, "Position is -1"),
]


@pytest.mark.parametrize(("given", "said"), BAD, ids=range(len(BAD)))
def test_bad_input_is_one_sentence(given, said):
    with pytest.raises(InputError, match=said) as error:
        RopeParams(**given)
    assert len(str(error.value)) < 250


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"scheme": "longrope", "long_factor": "1,2,3"}, "3 numbers in long_factor; one positive number for each of 16 pairs"),
        ({"scheme": "longrope"}, "0 numbers in long_factor"),
        ({"scheme": "ntk", "d_head": 2}, "at least 4"),
        ({"scheme": "longrope", "original_context": 1, "d_head": 2, "long_factor": "2"}, "more than 1 token"),
    ],
)
def test_a_law_that_cannot_be_formed(given, said):
    with pytest.raises(InputError, match=said):
        frequencies(RopeParams(**given))


@pytest.mark.parametrize("scheme", [name for name in LAWS if name != "longrope"])
@pytest.mark.parametrize(
    "given", [{"d_head": 4}, {"d_head": 4096}, {"original_context": 1}, {"factor": 1024.0, "length": 10**8}, {"base": 1.0001}, {"base": 1e12}]
)
def test_the_corners_give_finite_numbers(scheme, given):
    result = frequencies(RopeParams(scheme=scheme, **given))
    assert np.isfinite(result.scaled_inv_freq).all()
    assert (result.scaled_inv_freq > 0).all()
