"""The norms lab against torch's modules, autograd and transformers, and what it refuses."""

import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.cli import main
from engine.depth import depth_study, drawn
from engine.errors import InputError, ModelError
from engine.models.loading import open_model
from engine.models.streams import Replacement, folded, mean_direction, norm_inputs, stream_norms, with_norms
from engine.norm_batches import batch_noise, company, images
from engine.norm_geometry import geometry, jacobians
from engine.norm_stream import fold, stream, swap
from engine.normalisation import evaluate, jacobian, jacobian_singular_values, normalise, running_statistics, standardise
from engine.norms import NormsParams, block, block_numbers, report, seen_in_training, torch_module

EPSILONS = (0.0, 1e-12, 1e-5, 1e-2, 1.0)
FUNCTIONS = {"layer": torch.nn.functional.layer_norm, "rms": torch.nn.functional.rms_norm}


def normal(*size, seed=0) -> torch.Tensor:
    """Return seeded Gaussian numbers in double precision."""
    return torch.randn(*size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("norm", ["batch", "layer", "rms"])
@pytest.mark.parametrize("values", ["gaussian", "shifted", "heavy", "real"])
@pytest.mark.parametrize("outlier", [0.0, 100.0])
def test_every_norm_is_torchs_to_rounding(norm, values, outlier):
    result = block(NormsParams(norm=norm, values=values, outlier=outlier))
    assert result.torch_difference < 1e-13
    x, d = torch.tensor(result.before), result.before.shape[-1]
    if norm == "batch":
        theirs = torch.nn.BatchNorm1d(d, affine=False, dtype=torch.float64)(x.flatten(0, 1)).view_as(x)
    else:
        theirs = FUNCTIONS[norm](x, (d,), eps=1e-5)
    assert np.abs(result.after - theirs.numpy()).max() < 1e-13
    assert result.set_shape == {"batch": (d,), "layer": (4, 4), "rms": (4, 4)}[norm]


def test_epsilon_0_where_torchs_own_batch_norm_refuses_it():
    with pytest.raises(ValueError, match="eps must be positive"):
        torch.nn.BatchNorm1d(4, eps=0.0)(torch.randn(3, 4))
    for norm in ("batch", "layer", "rms"):
        assert block(NormsParams(norm=norm, eps=0.0)).torch_difference < 1e-13
    assert max(row[-1] for row in images(NormsParams(eps=0.0)).rows) < 1e-14


def test_images_are_torchs_to_rounding_with_the_shapes_of_exercise_4():
    rows = {name: (size, difference) for name, _, size, difference in images(NormsParams()).rows}
    assert {name: size for name, (size, _) in rows.items()} == {
        "BatchNorm2d": (8,),
        "LayerNorm": (4,),
        "InstanceNorm2d": (4, 8),
        "GroupNorm": (4, 2),
    }
    assert max(difference for _, difference in rows.values()) < 1e-14


def test_running_statistics_and_evaluation_are_torchs():
    batches, theirs = 3 + 2 * normal(20, 5, 7), torch.nn.BatchNorm1d(7, affine=False, dtype=torch.float64)
    mean, variance = running_statistics(batches)
    for step, batch in enumerate(batches):
        theirs(batch)
        assert torch.allclose(mean[step], theirs.running_mean, rtol=1e-13)
        assert torch.allclose(variance[step], theirs.running_var, rtol=1e-13)
    assert torch.allclose(evaluate(batches[0], mean[-1], variance[-1], 1e-5), theirs.eval()(batches[0]), rtol=1e-12)


def test_noise_falls_as_the_square_root_of_the_batch():
    noise = batch_noise(NormsParams())
    assert noise.train[5:] == pytest.approx(noise.expected[5:], rel=0.15)
    assert (noise.evaluation == 0).all()
    assert (noise.layer == 0).all()
    noise = batch_noise(NormsParams(values="shifted"))
    assert noise.apart[0] > 1.5 * noise.floor
    assert noise.apart[-10:].mean() == pytest.approx(noise.floor, rel=0.15)


def test_noise_follows_the_values():
    noise = {values: batch_noise(NormsParams(values=values)) for values in ("gaussian", "shifted", "heavy", "real")}
    assert noise["heavy"].train[-1] > 1.5 * noise["gaussian"].train[-1]
    assert noise["shifted"].train == pytest.approx(noise["gaussian"].train, rel=1e-3)  # a shift of a feature is taken away
    assert noise["shifted"].apart[0] > 3 * noise["gaussian"].apart[0]
    assert noise["real"].apart[0] > 2 * noise["real"].floor
    loud = batch_noise(NormsParams(outlier=100.0, features=256))
    assert np.abs(loud.train - noise["gaussian"].train).max() > 0.01
    assert batch_noise(NormsParams(values="constant", eps=0.0)).layer is None


@pytest.mark.parametrize("values", ["gaussian", "shifted", "heavy", "constant", "real"])
def test_evaluation_is_torchs_and_takes_a_batch_of_one(values):
    params = NormsParams(norm="batch", values=values, running=True, batch=1, tokens=1)
    result = block(params)
    assert result.torch_difference < 1e-12
    assert result.lost == 0
    assert np.abs(result.after).max() > 0.01
    J = torch.autograd.functional.jacobian(lambda v: torch_module("batch", v, 1e-5, seen_in_training(params, 1)), torch.tensor(result.before))
    assert torch.linalg.matrix_rank(J.reshape(result.before.size, -1)) == result.before.size


def test_only_batch_norm_in_training_depends_on_company():
    found = company(NormsParams())
    for _, changes in found.rows:
        assert changes["batch"] > 0.01
        assert (changes["layer"], changes["rms"], changes["evaluation"]) == (0, 0, 0)


def test_a_batch_of_two_has_two_answers_and_a_batch_of_one_is_refused():
    params = NormsParams(norm="batch", batch=2, tokens=1)
    assert block_numbers(params, block(params))["answers"].value == 2
    with pytest.raises(InputError, match="torch refuses"):
        block(NormsParams(norm="batch", batch=1, tokens=1))
    with pytest.raises(ValueError, match="more than 1 value per channel"):
        torch.nn.BatchNorm1d(4)(torch.randn(1, 4))


def test_a_loud_entry_turns_the_others_down():
    params = NormsParams(norm="rms", features=256, outlier=100.0)
    result = block(params)
    by_hand = result.before[0, 2] / math.sqrt(np.square(result.before[0, 2]).mean() + 1e-5)
    others = np.delete(by_hand, result.at[2])
    assert block_numbers(params, result)["others"].value == pytest.approx(math.sqrt(np.square(others).mean()))


@given(st.integers(1, 24), st.sampled_from(EPSILONS), st.sampled_from([True, False]), st.integers(0, 1000), st.sampled_from([1e-3, 1.0, 1e3]))
def test_jacobians_are_autograds(d, eps, centred, seed, scale):
    x = scale * normal(d, seed=seed)
    if d == 1 and centred and eps == 0:
        return
    theirs = torch.autograd.functional.jacobian(lambda v: FUNCTIONS["layer" if centred else "rms"](v, (d,), eps=eps), x)
    J, s = jacobian(x, eps, centred), standardise(x, (-1,), eps, centred)[2]
    assert float((J - theirs).abs().max() * s) < 1e-11
    sigma = torch.linalg.svdvals(theirs).sort(descending=True).values
    closed = jacobian_singular_values(x, eps, centred).sort(descending=True).values
    assert float((sigma - closed).abs().max() * s) < 1e-11


def test_ranks_row_sums_and_the_sources_claim():
    for values in ("gaussian", "heavy", "real"):
        found = jacobians(NormsParams(values=values))
        d, layer, rms = found.layer.d, found.layer, found.rms
        assert (layer.rank, layer.rank_at_0, rms.rank, rms.rank_at_0) == (d - 1, d - 2, d, d - 1)
        assert np.abs(layer.row_sums).max() < 1e-12 < np.abs(rms.row_sums).max()
        assert layer.matrix.min() < -1e-3
        assert max(layer.autograd, rms.autograd) < 1e-12 < 1e-3 < layer.unscaled
        assert layer.last[4:] == pytest.approx(layer.formula[4:], rel=1e-3)
        small = found.steps < 0.01
        slope = np.polyfit(np.log(found.steps[small]), np.log(layer.error[small]), 1)[0]
        assert slope == pytest.approx(1, abs=0.05)


def test_geometry_circle_sphere_two_points_and_the_angle():
    result = geometry(NormsParams(eps=0.0, features=256))
    assert result.radius == pytest.approx(math.sqrt(3))
    assert result.layer_3.sum(1) == pytest.approx(np.zeros(len(result.layer_3)), abs=1e-9)
    assert result.limit_2.tolist() == [[-1, 1], [1, -1]]
    blurred = geometry(NormsParams(eps=1.0))
    assert blurred.limit_2.tolist() == result.limit_2.tolist()
    assert np.abs(blurred.layer_2).max() < 1
    cosine = lambda m: np.degrees(np.arccos(1 / math.sqrt(1 + m**2)))  # noqa: E731
    assert result.angle[10:] == pytest.approx([cosine(m) for m in result.means[10:]], abs=1)
    with pytest.raises(InputError, match="at least 2 features"):
        geometry(NormsParams(features=1))


@pytest.mark.parametrize("features", [1, 2, 16])
@pytest.mark.parametrize("eps", [1e-5, 1.0])
@pytest.mark.parametrize("norm", ["layer", "rms"])
def test_directions_lost_have_one_definition(norm, features, eps):
    params = NormsParams(norm=norm, features=features, eps=eps)
    found = getattr(jacobians(params), norm)
    theirs = torch.autograd.functional.jacobian(lambda v: FUNCTIONS[norm](v, (features,), eps=eps), torch.tensor(block(params).before[0, 2]))
    assert block(params).lost == found.lost == int((torch.linalg.svdvals(theirs) * found.scale < 0.01).sum())


def test_an_undefined_norm_is_named_and_the_other_still_shown():
    found = jacobians(NormsParams(values="constant", eps=0.0))
    assert found.layer is None
    assert found.refused.startswith("LayerNorm")
    assert found.rms.rank == 15
    assert found.rms.autograd < 1e-12


def test_a_set_of_one_has_no_other_entries():
    for features, there in ((1, False), (2, True)):
        params = NormsParams(features=features)
        assert ("others" in block_numbers(params, block(params))) is there


BAD = [
    ({"values": "constant", "eps": 0.0}, "0 / 0"),
    ({"features": 1, "eps": 0.0}, "0 / 0"),
    ({"batch": 0}, "accepted are 1 to 256"),
    ({"features": 5000}, "accepted are 1 to 4096"),
    ({"batch": 256, "tokens": 256, "features": 4096}, "too large"),
    ({"outlier": math.nan}, "outlier is nan"),
    ({"eps": math.inf}, "eps is inf"),
    ({"eps": -1.0}, "negative"),
    ({"norm": "<b>"}, "accepted are batch, layer, rms"),
]


@pytest.mark.parametrize(("changes", "said"), BAD, ids=range(len(BAD)))
def test_bad_input_is_one_sentence(changes, said):
    with pytest.raises(InputError, match=said) as stopped:
        block(NormsParams(**changes))
    assert len(str(stopped.value).splitlines()) == 1


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_nan_and_infinity_are_refused(bad):
    x = normal(2, 3, 4)
    x[0, 0, 0] = bad
    with pytest.raises(InputError, match="1 of 24 entries"):
        normalise("layer", x, 1e-5)


def test_one_and_two_features():
    assert (block(NormsParams(features=1)).after == 0).all()
    two = block(NormsParams(features=2, eps=0.0))
    assert np.abs(two.after) == pytest.approx(np.ones_like(two.after))
    assert "two answers" in two.notes[0]


def test_the_contract_for_scripts(capsys):
    assert main(["norms", "--features", "12", "--seed", "3", "--eps", "0.001", "--json", "-"]) == 0
    result = json.loads(capsys.readouterr().out)
    x = torch.tensor(result["inputs"], dtype=torch.float64)
    assert x.shape == (4, 4, 12)
    for norm, function in FUNCTIONS.items():
        assert torch.allclose(torch.tensor(result[norm], dtype=torch.float64), function(x, (12,), eps=1e-3))
        J = torch.autograd.functional.jacobian(lambda v, f=function: f(v, (12,), eps=1e-3), x[0, 2])
        assert result[f"{norm}_singular_values"] == pytest.approx(torch.linalg.svdvals(J).tolist(), abs=1e-12)
        assert result[f"{norm}_row_sums"] == pytest.approx(J.sum(-1).tolist(), abs=1e-12)
    assert np.array(result["batch"]).mean((0, 1)) == pytest.approx(np.zeros(12), abs=1e-12)
    assert report(NormsParams(batch=1, tokens=1)).batch is None


# A real model


def test_what_reaches_the_norms_is_what_transformers_says(small_model):
    model = open_model(small_model)
    ids = [[3, 7, 11, 20]]
    theirs = model(input_ids=torch.tensor(ids), output_hidden_states=True).hidden_states
    seen = norm_inputs(model, ids)
    assert [name for name in seen if "input" in name] == [f"model.layers.{layer}.input_layernorm" for layer in range(3)]
    for layer in range(3):
        assert torch.equal(seen[f"model.layers.{layer}.input_layernorm"], theirs[layer])
    last = seen["model.norm"]
    assert torch.allclose(model.model.norm(last), theirs[-1])
    assert not model.model.norm._forward_pre_hooks


def test_replacing_every_norm_by_itself_changes_nothing_and_by_layer_norm_is_torchs(small_model):
    model, ids = open_model(small_model), torch.tensor([[3, 7, 11, 20]])
    before = model(input_ids=ids).logits
    same = with_norms(model, lambda norm: Replacement(norm, None))
    assert torch.allclose(same(input_ids=ids).logits, before, atol=1e-5)
    norm = stream_norms(model)[1]
    x = normal(5, 24).float()
    ours = Replacement(norm, mean_direction(norm))(x)
    assert torch.allclose(ours, torch.nn.functional.layer_norm(x, (24,), norm.gain, eps=norm.eps), atol=1e-5)
    assert torch.equal(model(input_ids=ids).logits, before)


def test_folding_keeps_the_function_and_changes_the_spectra(small_model):
    model, ids = open_model(small_model), torch.tensor([[3, 7, 11, 20]])
    other, count = folded(model)
    assert count == 3
    assert torch.allclose(other(input_ids=ids).logits, model(input_ids=ids).logits, atol=1e-4)
    assert not torch.equal(other.model.layers[0].self_attn.q_proj.weight, model.model.layers[0].self_attn.q_proj.weight)
    result = fold(NormsParams(model=small_model, prompt="w1 w2 w3"))
    assert result.difference < 1e-5 * result.largest
    assert np.abs(result.after / result.before - 1).max() > 0.001


def gpt2():
    """Return a tiny GPT-2 with uneven gains and shifts."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=40, n_embd=16, n_layer=2, n_head=2, n_positions=32)).eval().requires_grad_(False)
    for block_ in model.transformer.h:
        block_.ln_1.weight.uniform_(0.5, 1.5)
        block_.ln_1.bias.uniform_(-0.5, 0.5)
    return model


def gemma():
    """Return a tiny Gemma, whose stored norm weight is gain - 1."""
    from transformers import GemmaConfig, GemmaForCausalLM

    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8}
    model = GemmaForCausalLM(GemmaConfig(vocab_size=40, **sizes)).eval().requires_grad_(False)
    for layer in model.model.layers:
        layer.input_layernorm.weight.uniform_(-0.5, 0.5)
    return model


@pytest.mark.parametrize("make", [gpt2, gemma])
def test_other_families_fold_and_replace_too(make):
    model, ids = make(), torch.tensor([[3, 7, 11, 20]])
    before = model(input_ids=ids).logits
    assert stream_norms(model)[0].centred is (make is gpt2)
    for other in (folded(model)[0], with_norms(model, lambda norm: Replacement(norm, mean_direction(norm) if norm.centred else None))):
        assert torch.allclose(other(input_ids=ids).logits, before, atol=1e-5)


def test_an_encoder_is_refused_with_a_reason():
    from transformers import BertConfig, BertModel

    model = BertModel(BertConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, vocab_size=40))
    with pytest.raises(ModelError, match="no norm before attention"):
        folded(model)


def test_fables_stream_and_losses():
    found = stream(NormsParams())
    assert len(found.names) == 9
    assert found.angle == pytest.approx(np.degrees(np.arcsin(found.mean_share)), abs=0.3)
    assert found.rms[-1] > 50 * found.rms[0]
    losses = swap(NormsParams())
    kept, other = losses.losses["RMSNorm, same gain"], losses.losses["LayerNorm, same gain"]
    assert losses.trained == "RMSNorm, same gain"
    assert kept < other < kept + 0.2
    assert losses.losses["RMSNorm, no gain"] > kept + 1


# Stacks


def network(params: NormsParams, seed: int) -> torch.nn.Module:
    """Return one stack of the study as torch modules, its weights copied."""
    W, b, *_ = (part[seed].cpu() for part in drawn(params))

    class Block(torch.nn.Module):
        def __init__(self, layer):
            super().__init__()
            self.linear = torch.nn.Linear(params.width, params.width, dtype=torch.float64)
            self.linear.weight.data, self.linear.bias.data = W[layer].clone(), b[layer].clone()

        def forward(self, x):
            norm = lambda z: FUNCTIONS[params.norm](z, (params.width,), eps=params.eps)  # noqa: E731
            f = self.linear(norm(x) if params.place == "pre" else x)
            f = torch.relu(f) if params.stack == "relu" else f
            f = x + f if params.residual else f
            return norm(f) if params.place == "post" else f

    return torch.nn.Sequential(*(Block(layer) for layer in range(params.depth)))


@pytest.mark.parametrize("norm", ["layer", "rms"])
@pytest.mark.parametrize("place", ["none", "post", "pre"])
@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize(("stack", "init"), [("relu", "torch"), ("linear", "orthogonal"), ("relu", "he")])
def test_a_stack_is_what_torch_and_autograd_make_of_it(norm, place, residual, stack, init):
    params = NormsParams(norm=norm, place=place, residual=residual, stack=stack, init=init, depth=6, width=12, seeds=3, seed=5)
    result = depth_study(params)
    _, _, x, delta, v = (part.cpu() for part in drawn(params))
    for i in range(3):
        net, inputs = network(params, i), x[i].clone().requires_grad_()
        out = net(inputs)
        (out @ v[i]).backward()
        assert result.signal[i, -1] == pytest.approx(float(out.detach().norm()) / math.sqrt(12))
        assert result.gradient[i, 0] == pytest.approx(float(inputs.grad.norm()))
        with torch.no_grad():
            apart = net(x[i] + delta[i]) - net(x[i])
        assert result.difference[i, -1] == pytest.approx(float(apart.norm() / delta[i].norm()), rel=1e-9)
        weights = [math.hypot(float(b.linear.weight.grad.norm()), float(b.linear.bias.grad.norm())) for b in net]
        assert result.weight_gradient[i] == pytest.approx(weights)
        J = torch.autograd.functional.jacobian(net, x[i])
        assert result.singular_values[i, -1] == pytest.approx(torch.linalg.svdvals(J).numpy(), rel=1e-9, abs=1e-12)
        torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        clipped = [math.hypot(float(b.linear.weight.grad.norm()), float(b.linear.bias.grad.norm())) for b in net]
        assert result.clipped[i] == pytest.approx(clipped, rel=1e-5)


def test_a_network_alone_is_the_same_as_among_others():
    together = depth_study(NormsParams(seeds=4, depth=20, width=16))
    for seed in range(4):
        alone = depth_study(NormsParams(seeds=1, seed=seed, depth=20, width=16))
        for name in ("signal", "difference", "gradient", "weight_gradient"):
            assert getattr(alone, name)[0] == pytest.approx(getattr(together, name)[seed], rel=1e-12)


def test_initialisations_are_as_torch_draws_them():
    for init, theirs in (("torch", None), ("xavier", torch.nn.init.xavier_normal_), ("he", torch.nn.init.kaiming_normal_)):
        W, b, *_ = drawn(NormsParams(init=init, depth=20, width=64, seeds=1))
        layer = torch.nn.Linear(64, 64)
        if theirs:
            theirs(layer.weight.data)
        assert float(W.std()) == pytest.approx(float(layer.weight.detach().std()), rel=0.03)
        assert float(b.std()) == pytest.approx(float(layer.bias.detach().std()) if theirs is None else 0, rel=0.3)
    W = drawn(NormsParams(init="orthogonal", stack="linear", depth=2, width=64, seeds=1))[0]
    assert torch.allclose(W @ W.mT, torch.eye(64, dtype=torch.float64), atol=1e-12)


def test_a_hundred_layers():
    relu = depth_study(NormsParams(seeds=2))
    assert np.log10(relu.difference[:, -1]).max() < -35
    assert relu.signal[:, -1].min() > 0.01
    linear = depth_study(NormsParams(stack="linear", init="orthogonal", seeds=2))
    assert linear.singular_values == pytest.approx(np.ones_like(linear.singular_values), abs=1e-10)
    rectified = depth_study(NormsParams(init="orthogonal", seeds=2))
    assert rectified.effective_rank[:, -1].max() < 4


def test_too_large_a_study_is_refused():
    with pytest.raises(InputError, match="too many to wait for"):
        depth_study(NormsParams(depth=200, width=128, seeds=32))
