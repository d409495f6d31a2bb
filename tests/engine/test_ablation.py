"""Ablation on Fable and on tiny models: against copied models, one head at a time, and sentences for what cannot be done."""

import copy
import threading

import numpy as np
import pytest
import torch

from engine import ablation, continuation, relations
from engine.changes import ONE, Subject, heads_of
from engine.errors import Abandoned, InputError, ModelError
from engine.head_map import head_score
from engine.heads import parse_heads, write_heads
from engine.linalg import truncating_factors
from engine.models.behaviour import copying_accuracy, token_losses
from engine.models.loading import open_model, open_tokenizer
from engine.params import restrict
from engine.progress import silent
from engine.spectra import SpectraParams
from tests.engine.models.tiny import case


def without(heads):
    """Return a copy of Fable with zeros where W_O reads the heads."""
    model = copy.deepcopy(open_model("fable"))
    for layer, head in heads:
        model.model.layers[layer].self_attn.o_proj.weight[:, head * 32 : (head + 1) * 32] = 0
    return model


def test_effect_is_that_of_a_copied_model():
    params = SpectraParams(off="1.4,2.5")
    found, subject = ablation.effect(params), Subject(params, silent)
    text = subject.windows(ONE)[0]
    for name, model in (("before", open_model("fable")), ("after", without([(1, 4), (2, 5)]))):
        loss = token_losses(model, text[:, 1:].flatten().tolist(), found.context).mean()
        copying = np.mean([copying_accuracy(model, found.repeat_length, 4, seed) for seed in range(found.n_seeds)])
        assert getattr(found, f"loss_{name}") == pytest.approx(loss, rel=1e-5)
        assert getattr(found, f"copying_{name}") == pytest.approx(copying, abs=2e-3)  # two of 980 predictions may tie
    assert found.loss_change == pytest.approx(found.loss_after - found.loss_before)
    assert found.n_tokens == text[:, 1:].numel()
    assert found.copying_chance == 1 / 1024


def test_nothing_off_changes_nothing():
    found = ablation.effect(SpectraParams())
    assert (found.loss_change, found.loss_before, found.copying_before) == (0, found.loss_after, found.copying_after)
    kept = ablation.effect(SpectraParams(off="2.5", removal="keep_ov", keep=32))
    assert (kept.loss_after, kept.copying_after) == (found.loss_before, found.copying_before)


@pytest.mark.parametrize(("removal", "keep"), [("zero", 0), ("mean", 0), ("keep_ov", 2), ("keep_qk", 2)])
def test_sweep_is_one_at_a_time(small_model, removal, keep):
    params = SpectraParams(model=small_model, removal=removal, keep=keep)
    swept, subject = ablation.sweep(params), Subject(params, silent)
    for layer, head in np.ndindex(swept.copying.shape):
        losses, copying = subject.measure([(), subject.changes([(layer, head)])], ablation.MANY)
        assert swept.loss_change[layer, head] == pytest.approx(losses[1].mean() - losses[0].mean(), abs=2e-5)
        assert swept.copying[layer, head] == pytest.approx(copying[1].mean(), abs=0.01)


def test_fewer_directions_copy_less_until_all_are_kept():
    found, intact = ablation.keep_curve(SpectraParams()), ablation.effect(SpectraParams())
    assert found.heads == ablation.lesions(SpectraParams()).induction
    assert (found.k[0], found.k[-1]) == (0, 32)
    assert found.copying[0] < 0.1 < 0.9 < found.copying[-1]
    assert found.copying[-1] == pytest.approx(intact.copying_before, abs=0.02)
    tried = dict(zip(found.k.tolist(), found.copying.tolist(), strict=True))
    assert all((share >= 0.9 * found.copying[-1]) for k, share in tried.items() if k >= found.directions_90)
    assert max(share for k, share in tried.items() if k < found.directions_90) < found.copying[-1]


def test_what_is_left_without_heads_found_by_their_scores():
    """Two previous-token heads stand in for each other: one alone is hardly missed, without both copying is gone."""
    found = ablation.lesions(SpectraParams())
    assert found.without_strongest_previous == pytest.approx(ablation.effect(SpectraParams(off=write_heads(found.previous[:1]))).copying_after)
    assert found.without_strongest_previous > 0.9 * found.copying_before
    assert ablation.effect(SpectraParams(off=write_heads(found.previous[:2]))).copying_after < 0.05
    assert found.without_induction < 0.05
    assert found.numbers()["without_induction"].value == pytest.approx(100 * found.without_induction / found.copying_before)


def test_truncating_factors_give_every_truncation():
    generator = torch.Generator().manual_seed(0)
    A, B = (torch.randn(size, generator=generator, dtype=torch.float64) for size in ((9, 5), (5, 7)))
    A[:, 4] = A[:, 3]  # a lower rank than wide
    left, right = truncating_factors(A, B)
    U, s, Vh = torch.linalg.svd(A @ B, full_matrices=False)
    for k in range(6):
        assert A @ left[:, :k] @ right[:k] @ B == pytest.approx((U[:, :k] * s[:k]) @ Vh[:k], abs=1e-12)


def test_continuation_is_the_models_own_draw():
    params = SpectraParams(prompt="the fox sang and", off="1.4,1.5")
    found = continuation.continuation(params)
    assert found == continuation.continuation(params)
    ids = open_tokenizer("fable")(params.prompt)["input_ids"]
    for text, model in ((found.before, open_model("fable")), (found.after, without([(1, 4), (1, 5)]))):
        rng, tokens = np.random.default_rng(found.seed), list(ids)
        for _ in range(found.n_tokens):  # no cache, one member
            logits = model(input_ids=torch.tensor([tokens])).logits[0, -1].double().numpy()
            tokens.append(int((logits / found.temperature + rng.gumbel(size=1024)).argmax()))
        assert open_tokenizer("fable").decode(tokens[len(ids) :], skip_special_tokens=True) == text
    assert found.before != found.after
    same = continuation.continuation(SpectraParams(prompt=params.prompt))
    assert (same.parted, same.after) == (None, found.before)


def test_sessions_with_different_heads_off_do_not_meet():
    asked = [SpectraParams(), SpectraParams(off="1.4,1.5"), SpectraParams(off="2.6", removal="keep_ov", keep=4)]
    alone, found = [ablation.effect(p) for p in asked], {}
    threads = [threading.Thread(target=lambda i=i, p=p: found.__setitem__(i, ablation.effect(p))) for i, p in enumerate(asked)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i, result in enumerate(alone):
        assert found[i].copying_after == pytest.approx(result.copying_after, abs=2e-3)
        assert found[i].loss_after == pytest.approx(result.loss_after, rel=1e-5)


def test_rank_correlation_is_that_of_pandas():
    import pandas

    rng = np.random.default_rng(3)
    for n in (5, 32, 200):
        x, y = rng.integers(0, 9, n), rng.normal(size=n)  # with ties, and without
        expected = pandas.DataFrame({"x": x, "y": y}).corr(method="spearman").loc["x", "y"]
        assert relations.rank_correlation(x, y, draws=10).rho == pytest.approx(expected, abs=1e-12)
    line = relations.rank_correlation(np.arange(32), np.exp(np.arange(32) / 4))
    assert (line.rho, line.p) == (pytest.approx(1), pytest.approx(1 / 5001))
    assert line.band == pytest.approx((-0.295, 0.295), abs=0.02)  # normal, variance 1 / (n - 1)


def test_sharp_spectra_do_not_mark_the_copiers_of_fable():
    """The source expects effective rank to fall with copying. Over Fable's heads it rises with prefix matching."""
    rank, induction = (head_score(name, SpectraParams()) for name in ("effective_rank", "prefix_matching"))
    found = relations.rank_correlation(rank.values, induction.values)
    assert found.rho > found.band[1]
    assert "higher" in found.in_words(rank.name, induction.name)
    copiers = induction.values > ablation.STRONG
    assert rank.values[copiers].min() > rank.values[~copiers].mean()


@pytest.mark.parametrize("text", ["2", "2.5;2.6", "a.b", "-1.2", "2.5,,2.6", "2.5.6", "99999.1", "٢.٥", "2.5," * 2000])
def test_text_that_names_no_heads_is_said(text):
    with pytest.raises(InputError, match=r"is no head|at most 1024"):
        parse_heads(text)


def test_sets_of_heads_have_one_text():
    assert SpectraParams(off=" 2.6, 0.1,2.6").off == "0.1,2.6" == write_heads(parse_heads("2.06,0.1"))
    assert heads_of(SpectraParams(off="10.0,2.6")) == ((2, 6), (10, 0))
    assert restrict(ablation.sweep, SpectraParams(off="2.6", prompt="x")) == SpectraParams()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"off": "9.9"}, "Head 9.9: this model has layers 0 to 3"),
        ({"keep": 33}, "has 32"),
        ({"keep": -1}, "from 0"),
        ({"removal": "x"}, "accepted are zero"),
    ],
)
def test_what_the_model_does_not_have_is_said(change, said):
    with pytest.raises(InputError, match=said):
        ablation.effect(SpectraParams(**change))


def test_families_that_cannot_say_so(tmp_path):
    case("bert").build().save_pretrained(tmp_path / "bert")
    case("qwen3").build().save_pretrained(tmp_path / "qwen3")
    with pytest.raises(ModelError, match="is an encoder"):
        ablation.effect(SpectraParams(model=str(tmp_path / "bert")))
    with pytest.raises(ModelError, match="W_QK cannot be truncated; W_OV can"):
        ablation.effect(SpectraParams(model=str(tmp_path / "qwen3"), removal="keep_qk"))
    with pytest.raises(ModelError, match=r"no tokenizer\.json"):
        ablation.effect(SpectraParams(model=str(tmp_path / "qwen3")))


def test_no_induction_head_is_said(small_model):
    with pytest.raises(ModelError, match=r"no head with prefix matching above 0\.4"):
        ablation.keep_curve(SpectraParams(model=small_model))


def test_a_sweep_can_be_abandoned():
    def leave(done, total, message):
        raise Abandoned

    with pytest.raises(Abandoned):
        ablation.sweep(SpectraParams(), leave)
    assert ablation.effect(SpectraParams()).loss_change == 0
