"""One token in a real layer, its Jacobian, a neuron and an edit: against transformers' own modules, hooks and autograd."""

import numpy as np
import pytest
import torch

from engine.errors import InputError, ModelError
from engine.ffn_jacobian import jacobian, rows
from engine.ffn_ledger import ledger
from engine.ffn_neuron import _strongest, edit, neuron
from engine.ffn_params import FfnParams
from engine.ffn_regions import linear
from engine.ffn_token import held_out_inputs, text_ids, token_input
from engine.models import feedforward
from engine.models.behaviour import token_losses
from engine.models.feedforward import d_ff_of, feed_forward, layer_input, make_watchable
from engine.models.loading import open_model, tokenize
from tests.conftest import FABLE
from tests.engine.models.tiny import CASES, IDS

LAYERS = pytest.mark.parametrize("layer", [0, 3])


@pytest.fixture(scope="module")
def fresh():
    """Fable as transformers loads it, without any hook of ours."""
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(FABLE, dtype=torch.float32).eval().requires_grad_(False)


def ids_of(params: FfnParams) -> torch.Tensor:
    return torch.tensor([tokenize(params.model, params.prompt, 128)[0]])


@pytest.mark.parametrize("case", [c for c in CASES if c.config != "BertConfig"], ids=lambda c: c.name)
@torch.no_grad()
def test_every_family_is_a_sum_over_its_neurons(case):
    model = make_watchable(case.build())
    shape = feedforward.shape_of(model.config.to_dict())
    for layer in range(2):
        x = layer_input(model, [IDS], layer)
        own = feedforward.layer_module(model, shape, layer)(x)
        ffn = feed_forward(model, layer)
        total = ffn.activations(x) @ ffn.W_down.T + (0 if ffn.b_down is None else ffn.b_down)
        assert torch.allclose(total, own, atol=1e-5 * float(own.abs().max()))
        expected = torch.autograd.functional.jacobian(feedforward.layer_module(model, shape, layer), x[0, 3]).double()
        assert torch.allclose(ffn.double().W_down @ rows(ffn.double(), x[0, 3].double()), expected, atol=2e-5 * float(expected.abs().max()))


@LAYERS
def test_the_ledger_against_the_models_own_layer(layer, fresh):
    params, seen = FfnParams(layer=layer, token=9), {}
    block = fresh.model.layers[layer].mlp
    hooks = [
        block.register_forward_hook(lambda m, x, y: seen.update(out=y[0, 9])),
        block.down_proj.register_forward_pre_hook(lambda m, x: seen.update(a=x[0][0, 9])),
    ]
    with torch.no_grad():
        fresh(input_ids=ids_of(params))
    for hook in hooks:
        hook.remove()
    found, W = ledger(params), block.down_proj.weight.double()
    assert found.activations == pytest.approx(seen["a"].double().numpy(), abs=2e-5 * float(seen["a"].abs().max()))
    assert found.mismatch < 1e-5
    writes = (seen["a"].double().abs() * W.norm(dim=0)).numpy()
    assert found.writes == pytest.approx(writes, abs=1e-4 * writes.max())
    k = found.neurons_90
    kept = torch.from_numpy(found.order[:k].copy())
    left = (seen["out"].double() - W[:, kept] @ seen["a"].double()[kept]).norm() / seen["out"].double().norm()
    assert found.remaining[k] == pytest.approx(float(left), abs=1e-5)
    assert found.remaining[k] <= 0.1 < found.remaining[k - 1]
    assert (found.remaining[0], found.remaining[-1]) == (pytest.approx(1), pytest.approx(0, abs=1e-12))
    assert found.negative == pytest.approx(float((found.gate < 0).mean()))


@LAYERS
def test_the_jacobian_is_autograds(layer, fresh):
    params = FfnParams(layer=layer, token=9)
    _, x, _, _ = token_input(params)
    block = fresh.model.layers[layer].mlp
    expected = torch.autograd.functional.jacobian(block, x.float())
    values = np.linalg.svd(expected.double().numpy(), compute_uv=False)
    found = jacobian(params)
    assert found.singular_values == pytest.approx(values, abs=2e-5 * values[0])
    assert 1 <= found.effective_width <= found.d_ff
    assert 1 <= found.effective_rank <= 256


def losses_with(model, layer: int, change) -> tuple[torch.Tensor, float]:
    """Run a model of our own with an ordinary hook: next-token probabilities at token 6, and the loss on held-out prose."""
    hook = model.model.layers[layer].mlp.down_proj.register_forward_pre_hook(lambda m, args: (change(args[0].clone()),))
    try:
        with torch.no_grad():
            probabilities = model(input_ids=ids_of(FfnParams())).logits[0, 6].double().softmax(-1)
        return probabilities, float(token_losses(model, text_ids("fable"), 128, bos=0, max_windows=4).mean())
    finally:
        hook.remove()


def test_a_muted_neuron_is_a_zeroed_column(fresh):
    found = edit(FfnParams(layer=3, neuron=384))

    def mute(a):
        a[..., 384] = 0
        return a

    before, loss = losses_with(fresh, 3, lambda a: a)
    after, edited = losses_with(fresh, 3, mute)
    assert (found.loss, found.edited_loss) == (pytest.approx(loss, abs=1e-5), pytest.approx(edited, abs=1e-5))
    assert np.sort(found.before)[-1] == pytest.approx(float(before.max()), abs=1e-5)
    divergence = float(torch.nn.functional.kl_div(after.log(), before, reduction="sum"))
    assert found.divergence == pytest.approx(divergence, abs=1e-5)
    assert found.loss != found.edited_loss


def test_keeping_all_changes_nothing_and_keeping_none_removes_the_layer(fresh):
    whole, none = (edit(FfnParams(layer=2, edit="keep", keep=k)) for k in (704, 0))
    assert whole.edited_loss == pytest.approx(whole.loss, abs=1e-6)
    assert none.edited_loss == pytest.approx(losses_with(fresh, 2, torch.zeros_like)[1], abs=1e-5)
    some = edit(FfnParams(layer=2, edit="keep", keep=64))
    assert some.loss < some.edited_loss < some.random_losses.min()


def test_an_edit_leaves_the_shared_model_alone():
    model, ids = open_model("fable"), ids_of(FfnParams())
    with torch.no_grad():
        before = model(input_ids=ids).logits
        edit(FfnParams(edit="keep", keep=3))
        assert torch.equal(model(input_ids=ids).logits, before)


def test_a_neurons_words_are_its_direct_effect_on_the_logits(fresh):
    found = neuron(FfnParams(layer=3, neuron=384))
    value = fresh.model.layers[3].mlp.down_proj.weight[:, 384]
    change = fresh.lm_head.weight @ (fresh.model.norm.weight * value)
    assert [v for _, v in found.promoted] == pytest.approx(change.sort(descending=True).values[:10].tolist(), abs=1e-5)
    assert [v for _, v in found.held_back] == pytest.approx(change.sort().values[:10].tolist(), abs=1e-5)


def test_the_text_that_excites_a_neuron_most():
    params = FfnParams(layer=3, neuron=384)
    a = feed_forward(open_model("fable"), 3).activations(held_out_inputs(params).flatten(0, 1))[:, 384]
    values, places = _strongest(params)
    assert np.abs(values[384]) == pytest.approx(a.abs().sort(descending=True).values[:8].numpy(), rel=1e-4)
    assert a[places[384]].numpy() == pytest.approx(values[384], rel=1e-4)


def test_a_layer_without_its_nonlinearity(fresh):
    found, block = linear(FfnParams(layer=1)), fresh.model.layers[1].mlp
    product = (block.down_proj.weight.double() @ block.up_proj.weight.double()).numpy()
    assert found.product_values == pytest.approx(np.linalg.svd(product, compute_uv=False), rel=1e-9, abs=1e-9)
    assert found.rank == np.linalg.matrix_rank(product)
    assert (found.before_rank, found.after_rank) == (256, 704)
    assert found.recovered_error < 1e-11


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"token": 99}, "Token 99 is beyond the prompt, which has tokens 0 to"),
        ({"layer": 9}, "layers 0 to 3"),
        ({"prompt": " "}, "prompt is empty"),
    ],
)
def test_what_the_prompt_or_the_model_lacks(change, said):
    for function in (ledger, jacobian, edit):
        with pytest.raises(InputError, match=said):
            function(FfnParams(**change))


def test_a_neuron_that_the_layer_lacks():
    for change in ({"neuron": 704}, {"keep": 705}):
        with pytest.raises(InputError, match="neurons 0 to 703"):
            edit(FfnParams(**change))


@pytest.mark.parametrize(("kind", "said"), [("bert", "encoder"), ("mixtral", "'mixtral' is not understood")])
def test_encoders_and_mixtures_are_refused_by_name(kind, said, tmp_path):
    from transformers import BertConfig, MixtralConfig

    {"bert": BertConfig, "mixtral": MixtralConfig}[kind](num_hidden_layers=2).save_pretrained(tmp_path)
    with pytest.raises(ModelError, match=said):
        d_ff_of(str(tmp_path))
    with pytest.raises(ModelError, match=said):
        ledger(FfnParams(model=str(tmp_path)))
