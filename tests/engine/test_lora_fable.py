"""Adapters on Fable against peft: the same losses, files that peft loads, merging, and what is refused."""

import json
from dataclasses import replace

import numpy as np
import plotly.graph_objects as go
import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM

from engine.errors import Abandoned, InputError, ModelError
from engine.figures import lora_fable as figures
from engine.lora_fable import FULL, Recipe, batch_of, fresh_updates, read_text, train, written
from engine.lora_live import fable_run, fits, recorded_sweep, too_many
from engine.lora_merge import SHIPPED, costs, merge, shipped_adapter
from engine.lora_params import LoraParams
from engine.models.adapters import SETS, places_of, with_updates
from engine.models.loading import open_model
from engine.models.peft_files import CONFIG, WEIGHTS, read_adapter, write_adapter
from tests.conftest import FABLE

TINY = Recipe("qv", steps=3, rows=1, context=32, measure_every=3, windows=2)
LIVE = LoraParams(fable_ranks="2", fable_steps=5)


def fresh_fable():
    return AutoModelForCausalLM.from_pretrained(FABLE, dtype=torch.float32)


def test_members_together_are_peft_alone():
    members = [(2, 0), (4, 1)]
    found = train(TINY, members)
    starts, text = fresh_updates(TINY, members, open_model("fable")), read_text(TINY)
    for m, (rank, seed) in enumerate(members):
        config = LoraConfig(r=rank, lora_alpha=TINY.alpha, target_modules=["q_proj", "v_proj"])
        model = get_peft_model(fresh_fable(), config)
        for name, start in starts.items():
            layer = model.base_model.model.get_submodule(name)
            layer.lora_A["default"].weight.data = start.A[m, :rank].detach().clone()
        optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], weight_decay=0.0)
        for step in range(TINY.steps):
            optimizer.param_groups[0]["lr"] = TINY.rate * (1 - step / TINY.steps)
            ids = batch_of(text, TINY, seed, step)
            optimizer.zero_grad()
            model(input_ids=ids, labels=ids).loss.backward()
            optimizer.step()
        with torch.no_grad():
            expected = [float(model(input_ids=ids, labels=ids).loss) for ids in (text.verse, text.prose)]
        assert [found.verse[-1, m], found.prose[-1, m]] == pytest.approx(expected, abs=2e-4)


def test_full_fine_tuning_is_torchs():
    found, text, model = train(TINY, [(FULL, 0)]), read_text(TINY), fresh_fable().requires_grad_(False)
    leaves = [layer.weight.requires_grad_() for layer in places_of(model, SETS["qv"]).values()]
    optimizer = torch.optim.AdamW(leaves, weight_decay=0.0)
    for step in range(TINY.steps):
        optimizer.param_groups[0]["lr"] = TINY.full_rate * (1 - step / TINY.steps)
        ids = batch_of(text, TINY, 0, step)
        optimizer.zero_grad()
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
    with torch.no_grad():
        assert found.verse[-1, 0] == pytest.approx(float(model(input_ids=text.verse, labels=text.verse).loss), abs=2e-4)


def test_the_shared_model_is_not_touched():
    model = open_model("fable")
    before = {name: t.clone() for name, t in model.named_parameters()}
    hooks = [len(m._forward_hooks) for m in model.modules()]
    train(replace(TINY, steps=1), [(2, 0)])
    assert all(torch.equal(t, before[name]) for name, t in model.named_parameters())
    assert [len(m._forward_hooks) for m in model.modules()] == hooks
    assert not any(t.requires_grad for t in model.parameters())


def test_text_held_out_is_held_out():
    text = read_text(TINY)
    learnt = text.learnt.tobytes()
    assert all(row[1:].numpy().tobytes() not in learnt for row in text.verse)
    assert (text.verse[:, 0] == 0).all()


def test_a_live_run_offers_parts_and_ends_with_an_adapter_that_peft_loads(tmp_path):
    seen, on_step = [], lambda *_: None
    on_step.keep = seen.append
    found = fable_run(LIVE, on_step)
    assert [len(part.steps) for part in seen] == [1, 2, 3, 4, 5, 6]
    write_adapter(found.adapter, tmp_path)
    model, text = PeftModel.from_pretrained(fresh_fable(), tmp_path), read_text(Recipe("qv"))
    with torch.no_grad():
        loss = float(model(input_ids=text.verse, labels=text.verse).loss)
    assert found.verse[0, 0, -1] == pytest.approx(loss, abs=2e-4)
    assert found.verse[0, 0, -1] < found.verse[0, 0, 0]
    assert "s here and now" in fits(LIVE, 0.1)
    shown = figures.loss_by_rank(recorded_sweep(LIVE), found), figures.curves(recorded_sweep(LIVE), "prose", found)
    for fig in shown:
        go.Figure(fig.to_dict())


def test_more_adapters_than_the_operator_allows_are_refused_before_they_start(monkeypatch):
    monkeypatch.setenv("BARE_WEIGHTS_SWEEP", "4")
    asked = replace(LIVE, fable_ranks="1,8,64", fable_seeds=2)
    assert too_many(LIVE) == ""
    assert too_many(asked) == "6 adapters are more than the 4 that are trained at once here; 1 of each rank would fit."
    with pytest.raises(InputError, match="6 adapters"):
        fable_run(asked)


def test_a_visitor_who_leaves_stops_it():
    def leave(done, total, message):
        if done == 1:
            raise Abandoned

    with pytest.raises(Abandoned):
        fable_run(LIVE, leave)


def test_the_recorded_sweep_is_what_the_shipped_adapter_still_does():
    recorded, adapter = recorded_sweep(LoraParams()), shipped_adapter()
    recipe = Recipe(**recorded.recipe)
    model, text = PeftModel.from_pretrained(fresh_fable(), SHIPPED), read_text(recipe)
    with torch.no_grad():
        now = [float(model(input_ids=ids, labels=ids).loss) for ids in (text.verse, text.prose)]
    i = recorded.ranks.tolist().index(adapter.rank)
    assert [recorded.verse[i, 0, -1], recorded.prose[i, 0, -1]] == pytest.approx(now, abs=0.02)  # recorded with bfloat16 products
    assert recorded.ranks.tolist() == [1, 2, 4, 8, 16, 32, 64]
    assert recorded.verse.shape[1] == recorded.full_verse.shape[0] == 3
    assert recorded.before == written({}, 1)[0]
    go.Figure(figures.module_map(recorded.spectra, "alignment", "x").to_dict())


def test_merging_against_peft():
    found = merge(LoraParams())
    model = PeftModel.from_pretrained(fresh_fable(), SHIPPED)
    apart = {name: m.get_delta_weight("default") for name, m in model.base_model.model.named_modules() if hasattr(m, "get_delta_weight")}
    assert len(apart) == len(found.spectra) == 28
    for spectrum, delta in zip(found.spectra, (apart[name] for name in sorted(apart)), strict=True):
        assert spectrum.singular_values == pytest.approx(np.linalg.svd(delta.numpy(), compute_uv=False)[: found.rank], rel=1e-3)
    assert (found.merged_rank == found.rank).all()
    assert 0 < found.fp32 < 1e-5 < found.fp16 < 1e-2
    assert found.unmerged < 1e-6
    assert found.parameters == sum(p.numel() for name, p in model.named_parameters() if "lora_" in name)
    for fig in (figures.module_spectra(found.spectra), figures.cost_bars(costs(LoraParams()))):
        go.Figure(fig.to_dict())


def test_real_configurations_count_as_peft_does():
    found = costs(LoraParams(rank=8))
    one = found.names.index("One 4096 x 4096 layer")
    assert (found.lora[one], found.full[one], found.ratio[one]) == (65_536, 16_777_216, 256)
    fable = get_peft_model(fresh_fable(), LoraConfig(r=8, target_modules="all-linear"))
    assert found.lora[0] == fable.get_nb_trainable_parameters()[0]


def copied(tmp_path, **changes):
    adapter = shipped_adapter()
    write_adapter(adapter, tmp_path)
    config = json.loads((tmp_path / "adapter_config.json").read_text())
    (tmp_path / "adapter_config.json").write_text(json.dumps(config | changes))
    return LoraParams(adapter=str(tmp_path))


def test_an_adapter_goes_through_its_files(tmp_path):
    params = copied(tmp_path)
    assert merge(params).fp32 == merge(LoraParams()).fp32
    again = read_adapter(tmp_path)
    assert (again.rank, again.scaling) == (8, 2.0)


def test_adapters_that_are_refused(tmp_path, monkeypatch):
    with pytest.raises(ModelError, match="no folder with an adapter_config"):
        merge(LoraParams(adapter=str(tmp_path / "nowhere")))
    with pytest.raises(ModelError, match="DoRA"):
        merge(copied(tmp_path, use_dora=True))
    with pytest.raises(ModelError, match="IA3"):
        merge(copied(tmp_path, peft_type="IA3"))
    with pytest.raises(ModelError, match="rank_pattern"):
        merge(copied(tmp_path, rank_pattern={"q_proj": 4}))
    params = copied(tmp_path)
    (tmp_path / "adapter_model.safetensors").write_bytes(b"not safetensors")
    with pytest.raises(ModelError, match="cannot be read"):
        merge(params)
    (tmp_path / "adapter_model.safetensors").rename(tmp_path / "adapter_model.bin")
    with pytest.raises(ModelError, match="a pickle, which can run code"):
        merge(params)
    monkeypatch.setenv("BARE_WEIGHTS_HOSTED", "1")
    with pytest.raises(ModelError, match="opens no folders"):
        merge(params)


@pytest.mark.parametrize("name", ["model.layers.9.self_attn.q_proj", "model.layers.0.self_attn.k_proj"])
def test_an_adapter_for_another_base(tmp_path, name):
    adapter = shipped_adapter()
    write_adapter(replace(adapter, modules={name: adapter.modules["model.layers.0.self_attn.q_proj"]}), tmp_path)
    with pytest.raises(ModelError, match="another base"):
        merge(LoraParams(adapter=str(tmp_path)))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda config, tensors: config.update(r=7), "its configuration says r = 7"),
        (lambda config, tensors: config.update(target_modules=["gate_proj"]), "names only gate_proj"),
        (lambda config, tensors: next(iter(tensors.values())).fill_(float("nan")), "not finite"),
    ],
    ids=["rank", "modules", "nan"],
)
def test_an_adapter_that_contradicts_itself(tmp_path, change, said):
    from safetensors.torch import load_file, save_file

    config, tensors = json.loads((SHIPPED / CONFIG).read_text()), load_file(SHIPPED / WEIGHTS)
    change(config, tensors)
    (tmp_path / CONFIG).write_text(json.dumps(config))
    save_file(tensors, tmp_path / WEIGHTS)
    with pytest.raises(ModelError, match=said):
        merge(LoraParams(adapter=str(tmp_path)))


def test_modules_that_are_not_there():
    with pytest.raises(InputError, match="No module is chosen"):
        places_of(open_model("fable"), ())
    with pytest.raises(InputError, match="not one of the modules"):
        places_of(open_model("fable"), ("query",))


def test_a_view_without_updates_is_the_model():
    model, ids = open_model("fable"), torch.arange(1, 20)[None]
    with torch.no_grad():
        assert torch.equal(with_updates(model, {})(input_ids=ids).logits, model(input_ids=ids).logits)
