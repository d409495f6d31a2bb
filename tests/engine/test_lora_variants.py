"""Variants against peft's DoRA and bitsandbytes' NF4 levels; the first step; spectra of updates."""

from dataclasses import replace

import numpy as np
import plotly.graph_objects as go
import pytest
import torch
from peft import AdaLoraConfig, LoraConfig, get_peft_model

from engine.figures import lora as figures
from engine.lora import LoraParams, train
from engine.lora_spectra import alignment, gaussian_spectra, update_spectra
from engine.lora_variants import VARIANTS, first_step, variant, variants
from engine.nf4 import levels, nf4
from engine.teacher import teacher_of
from tests.engine.lora_peft import adalora_fit, fit

SMALL = LoraParams(d_in=24, d_out=16, max_rank=8, teacher_rank=4, rank=4, steps=25, n_seeds=2, batch=8)
BITSANDBYTES = [  # the table that bitsandbytes holds as constants
    *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334),
    *(-0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224),
    *(0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
]


def test_dora_is_that_of_peft():
    teacher = teacher_of(SMALL)
    W = torch.tensor(teacher.W).float()
    group = variant("dora", SMALL, W)
    for s in range(SMALL.n_seeds):
        base = torch.nn.Sequential(torch.nn.Linear(24, 16, bias=False))
        base[0].weight.data = W.clone()
        model = get_peft_model(base, LoraConfig(r=4, lora_alpha=SMALL.alpha, use_dora=True, target_modules=["0"]))
        model.base_model.model[0].lora_A["default"].weight.data = group.update.A[s].detach().clone()
        expected = fit(model, [p for p in model.parameters() if p.requires_grad], SMALL, s)
        found = [losses[0][s] for _, losses in train(SMALL, teacher, [variant("dora", SMALL, W)]) if losses]
        assert found == pytest.approx(expected, rel=2e-4, abs=1e-6)


def test_adalora_is_that_of_peft():
    """The same numbers, penalty and cuts, step by step: peft's own allocator decides what is cut."""
    params = replace(SMALL, steps=40)
    teacher = teacher_of(params)
    group = variant("adalora", params, torch.tensor(teacher.W).float())
    start = {name: getattr(group.update, name).detach().clone() for name in "AEB"}
    found = [losses[0] for _, losses in train(params, teacher, [group]) if losses]
    for s in range(params.n_seeds):
        base = torch.nn.Sequential(torch.nn.Linear(24, 16, bias=False))
        base[0].weight.data = torch.tensor(teacher.W).float()
        config = AdaLoraConfig(
            init_r=6, target_r=4, lora_alpha=params.alpha, target_modules=["0"], tinit=4, tfinal=12, deltaT=10, total_step=40, orth_reg_weight=0.5
        )
        model = get_peft_model(base, config)
        layer = model.base_model.model[0]
        own = {"A": layer.lora_A["default"], "E": layer.lora_E["default"], "B": layer.lora_B["default"]}
        for name, p in own.items():
            p.data = start[name][s].reshape(p.shape).clone()
        assert [losses[s] for losses in found] == pytest.approx(adalora_fit(model, own, params, s), rel=2e-4, abs=1e-6)
        assert ((own["E"].view(-1) != 0) == (group.update.E[s] != 0)).all()
    assert ((group.update.E != 0).sum(1) == params.rank).all()
    assert torch.linalg.matrix_rank(group.whole().detach()).tolist() == [params.rank] * params.n_seeds


def test_levels_are_those_of_bitsandbytes():
    assert levels().numpy() == pytest.approx(np.array(BITSANDBYTES), abs=1e-6)


def test_nf4_takes_the_nearest_level_of_each_block():
    W = torch.randn(5, 40, generator=torch.Generator().manual_seed(0))
    W[0, :3] = torch.tensor([0.0, 9.0, -9.0])
    found, flat = nf4(W).flatten(), W.flatten()
    for start in range(0, 200, 64):
        block, scale = flat[start : start + 64], flat[start : start + 64].abs().max()
        nearest = (block[:, None] / scale - levels()[None]).abs().min(1).values
        assert ((found[start : start + 64] - block).abs() / scale).numpy() == pytest.approx(nearest.numpy(), abs=1e-6)
    assert nf4(torch.zeros(3, 3)).abs().sum() == 0


def test_every_variant_starts_where_it_should():
    teacher = teacher_of(SMALL)
    W = torch.tensor(teacher.W).float()
    for name in VARIANTS:
        start, moved = variant(name, SMALL, W).whole().detach(), None
        expected = -(W - nf4(W)) if name == "nf4" else torch.zeros_like(W)
        assert torch.allclose(start, expected.expand_as(start), atol=1e-5), name
        group = variant(name, SMALL, W)
        for _ in train(SMALL, teacher, [group]):
            moved = group.whole().detach()
        assert (moved - start).abs().max() == 0 if name == "zeros" else (moved - start).abs().max() > 0.01


def test_variants_do_not_disturb_each_other_and_mind_their_floors():
    found = variants(SMALL)
    assert found.names == tuple(VARIANTS)
    alone = [losses[0] for losses, _ in train(SMALL, teacher_of(SMALL), [variant("plain", SMALL, torch.tensor(teacher_of(SMALL).W))])]
    assert found.loss[0] == pytest.approx(np.stack(alone).mean(1), rel=1e-5)
    low_rank = [i for i, name in enumerate(found.names) if name not in ("dora", "nf4", "pissa")]
    assert (found.last[low_rank] >= found.floor - 1e-6).all()
    assert found.last[found.names.index("nf4")].min() >= found.nf4_floor - 1e-6
    assert found.loss[found.names.index("nf4"), 0] == pytest.approx(found.nf4_before, rel=1e-5)
    assert "orthogonal" not in variants(replace(SMALL, rank=3, steps=2)).names


def test_the_first_step_is_torchs_own():
    found = first_step(SMALL)
    teacher, group = teacher_of(SMALL), variant("plain", SMALL, torch.tensor(teacher_of(SMALL).W))
    training = train(SMALL, teacher, [group])
    next(training), next(training)
    B = group.update.B.detach()
    assert B.abs().mean() == pytest.approx(SMALL.learning_rate, rel=1e-3)  # AdamW's first step is the rate times the sign
    i = found.ranks.tolist().index(4)
    assert found.size[0, i] == pytest.approx(group.whole().detach().norm(dim=(1, 2)).numpy(), rel=1e-5)
    assert found.ratio("standard") * 8**0.5 == pytest.approx(found.ratio("rslora"), rel=1e-4)


def test_spectra_and_alignment_against_numpy():
    rng = np.random.default_rng(0)
    W, D = rng.standard_normal((30, 20)), rng.standard_normal((30, 20))
    U, _, Vh = np.linalg.svd(W)
    expected = np.square(U[:, :5].T @ D @ Vh[:5].T).sum() / np.square(D).sum()
    assert alignment(torch.tensor(W), torch.tensor(D), 5) == pytest.approx(expected, rel=1e-9)
    assert alignment(torch.tensor(W.T), torch.tensor(D.T), 5) == pytest.approx(expected, rel=1e-9)
    (found,) = update_spectra({"model.layers.3.self_attn.q_proj": (torch.tensor(W), torch.tensor(D))})
    assert found.name == "3.q"
    assert found.singular_values == pytest.approx(np.linalg.svd(D, compute_uv=False))
    assert found.effective_rank == pytest.approx(found.effective_rank_chance, rel=0.1)  # a Gaussian update is chance itself
    assert gaussian_spectra(20, 30).shape == (4, 20)


def test_plotly_accepts_the_pictures():
    for fig in (figures.variant_bars(variants(SMALL)), figures.first_steps(first_step(SMALL))):
        go.Figure(fig.to_dict())
