"""The teacher sweep against peft, autograd and the SVD; what a bad request says."""

from dataclasses import replace

import numpy as np
import plotly.graph_objects as go
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine.adapters import scaling_of, start_factors
from engine.errors import Abandoned, InputError
from engine.figures import lora as figures
from engine.lora import LoraParams, Members, check_size, full_members, low_rank_members, member_losses, numbers_at, report, sweep, table, train
from engine.lora_params import parse_ranks
from engine.models.adapters import LowRank
from engine.teacher import by_chance, cut_of_M, floors, pissa_floors, teacher_of
from tests.engine.lora_peft import peft_curve, torch_curve

SMALL = LoraParams(d_in=24, d_out=16, max_rank=8, teacher_rank=4, rank=4, steps=30, n_seeds=2, batch=8)


@pytest.fixture(scope="module")
def result():
    return sweep(SMALL)


@pytest.mark.parametrize("start", ["zero_b", "gaussian", "pissa", "orthogonal"])
@pytest.mark.parametrize("rule", ["standard", "rslora"])
def test_the_same_losses_as_peft_alone(start, rule):
    params = replace(SMALL, start=start, rule=rule, inputs="coloured")
    found = sweep(params)
    for i, rank in enumerate(found.ranks):
        for s in range(params.n_seeds):
            assert found.batch_loss[i, s] == pytest.approx(peft_curve(params, int(rank), s), rel=2e-4, abs=1e-6)


def test_full_fine_tuning_is_torch_on_the_whole_weight(result):
    for s in range(SMALL.n_seeds):
        assert result.full_batch_loss[s] == pytest.approx(torch_curve(SMALL, s), rel=2e-4, abs=1e-6)


def test_padding_stays_zero():
    teacher = teacher_of(SMALL)
    group = low_rank_members(SMALL, SMALL.ranks, teacher.W)
    for _ in train(SMALL, teacher, [group]):
        pass
    for m, rank in enumerate(r for r in SMALL.ranks for _ in range(SMALL.n_seeds)):
        assert group.update.A[m, :rank].abs().min() > 0
        assert group.update.A[m, rank:].abs().sum() == 0
        assert group.update.B[m, :, rank:].abs().sum() == 0


def test_gradients_are_those_of_each_member_alone():
    torch.manual_seed(0)
    A, B = torch.randn(3, 2, 5).requires_grad_(), torch.randn(3, 4, 2).requires_grad_()
    X, Y, scaling = torch.randn(3, 7, 5), torch.randn(3, 7, 4), torch.tensor([1.0, 0.5, 2.0])
    member_losses(Members(LowRank(A, B, scaling), torch.arange(3)), X, Y).sum().backward()
    for m in range(3):
        E = X[m] @ (scaling[m] * B[m] @ A[m]).detach().T - Y[m]
        G = 2 / E.numel() * E.T @ X[m]  # the gradient of the whole update
        assert torch.allclose(B.grad[m], scaling[m] * G @ A[m].T, rtol=1e-4, atol=1e-5)
        assert torch.allclose(A.grad[m], scaling[m] * B[m].T @ G, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("inputs", ["white", "coloured"])
@pytest.mark.parametrize("task", ["flat", "falling", "tail"])
def test_the_floor_is_the_tail_that_the_inputs_see(task, inputs):
    params = replace(SMALL, task=task, inputs=inputs)
    teacher = teacher_of(params)
    U, s, Vh = np.linalg.svd(teacher.M @ np.diag(teacher.deviation))
    assert teacher.loss(np.zeros_like(teacher.M)) == pytest.approx(1)
    for rank, floor, cut in zip((0, 1, 4, 16), floors(teacher, (0, 1, 4, 16)), cut_of_M(teacher, (0, 1, 4, 16)), strict=True):
        best = (U[:, :rank] * s[:rank]) @ Vh[:rank] / teacher.deviation
        assert floor == pytest.approx(teacher.loss(best), abs=1e-12)
        assert floor <= cut + 1e-12
        rng = np.random.default_rng(rank)
        for _ in range(20 if rank else 0):  # nothing near it does better
            left, right = np.linalg.svd(best + 0.05 * rng.standard_normal(best.shape), full_matrices=False)[0::2]
            near = (left[:, :rank] * np.linalg.svd(best + 0.01, compute_uv=False)[:rank]) @ right[:rank]
            assert teacher.loss(near) >= floor


def test_the_loss_is_what_many_inputs_give():
    teacher = teacher_of(replace(SMALL, inputs="coloured"))
    rng = np.random.default_rng(0)
    D, X = 0.1 * rng.standard_normal(teacher.M.shape), rng.standard_normal((40_000, 24)) * teacher.deviation
    assert np.square(X @ (D - teacher.M).T).mean() == pytest.approx(float(teacher.loss(D)), rel=0.02)


def test_no_student_passes_below_its_floor(result):
    assert (result.loss >= result.floor[:, None, None] - 1e-6).all()
    assert (result.floor <= result.by_chance).all()
    assert result.loss.shape == (4, 2, 31)
    assert result.loss[..., 0] == pytest.approx(1, abs=1e-5)


def test_chance_is_a_random_row_space_at_its_best():
    teacher = teacher_of(SMALL)
    assert by_chance(teacher, (4,), 0)[0] == pytest.approx(1 - 4 / 24, abs=0.15)
    assert by_chance(teacher, (24 - 8,), 0)[0] > 0


def test_long_training_reaches_the_floor():
    found = sweep(replace(SMALL, steps=600, learning_rate=0.02, n_seeds=1))
    assert found.final() == pytest.approx(found.floor, abs=0.02)
    assert found.full_loss[:, -1].max() < 0.01


def test_same_link_same_numbers_and_seeds_do_not_depend_on_their_number(result):
    again = sweep(replace(SMALL, n_seeds=3))
    assert sweep(SMALL).loss.tobytes() == result.loss.tobytes()
    assert again.loss[:, :2] == pytest.approx(result.loss, rel=1e-5, abs=1e-7)


def test_a_start_of_zeros_never_moves():
    found = sweep(replace(SMALL, start="zeros"))
    assert found.loss == pytest.approx(1, abs=1e-6)
    assert found.update_size == pytest.approx(0)


def test_what_diverges_is_named_and_the_others_go_on():
    teacher = teacher_of(SMALL)
    group = low_rank_members(SMALL, SMALL.ranks, teacher.W)
    with torch.no_grad():
        group.update.B[0] = 1e30  # the first member alone
    *_, (losses, _) = train(SMALL, teacher, [group, full_members(SMALL)])
    assert not losses[0][0] < 10
    assert (losses[0][1:] < 1.1).all()
    found = sweep(replace(SMALL, learning_rate=50.0, steps=20))
    assert (0, 0) in found.diverged
    assert np.isnan(found.full_loss[0, -1])
    assert all(np.isfinite(row[1]) for row in table(found)[1] if row[-1] == 0)


def test_parts_are_offered_on_the_way_and_a_visitor_who_leaves_stops_it():
    seen = []

    def on_step(done, total, message):
        if done == 20:
            raise Abandoned

    on_step.keep = lambda so_far: seen.append(so_far)
    with pytest.raises(Abandoned):
        sweep(SMALL, on_step)
    assert [part.steps_done for part in seen] == list(range(20))
    assert seen[-1].loss == pytest.approx(sweep(SMALL).loss[..., :20], nan_ok=True)


def test_alpha_rules_and_starts():
    assert scaling_of("standard", 16, 8) == 2
    assert scaling_of("rslora", 16, 4) == 8
    W = torch.randn(6, 5, dtype=torch.float64)
    A, B = start_factors("pissa", W, 2, 4.0, (0,))
    U, S, Vh = np.linalg.svd(W.numpy())
    assert (4 * B @ A).numpy() == pytest.approx((U[:, :2] * S[:2]) @ Vh[:2], abs=1e-5)
    A, B = start_factors("orthogonal", W, 4, 4.0, (0,))
    assert (B @ A).abs().max() < 1e-6
    assert min(A.abs().max(), B.abs().max()) > 0.01


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"rank": 0}, "The rank is 0; accepted are 1 to"),
        ({"rank": 65}, "1 to min\\(d_in, d_out\\) = 64"),
        ({"max_rank": 70}, "highest rank"),
        ({"teacher_rank": 0}, "teacher's rank"),
        ({"task": "steep"}, "accepted are flat"),
        ({"learning_rate": float("nan")}, "learning rate"),
        ({"start": "orthogonal", "rank": 3}, "even rank"),
        ({"fable_ranks": "3"}, "no rank of this run"),
        ({"places": ""}, "accepted are qv"),
        ({"n_seeds": 0}, "seeds"),
    ],
)
def test_bad_parameters_get_a_sentence(changes, said):
    with pytest.raises(InputError, match=said):
        LoraParams(**changes)


def test_a_sweep_that_is_too_large_says_what_fits():
    large = LoraParams(d_in=512, d_out=512, steps=5000, batch=256, n_seeds=8)
    with pytest.raises(InputError, match=r"(\d+) steps would fit"):
        sweep(large)
    check_size(replace(large, steps=10))


@given(st.text(max_size=30) | st.text("1248 ,36", max_size=9))
def test_any_text_of_ranks_is_read_or_refused(text):
    accepted = {word.strip() for word in text.split(",") if word.strip()}
    if accepted and accepted <= {"1", "2", "4", "8", "16", "32", "64"}:
        assert parse_ranks(text) == tuple(sorted(map(int, accepted)))
    else:
        with pytest.raises(InputError, match="accepted are 1, 2, 4"):
            parse_ranks(text)


def test_the_command_line_has_what_it_promises():
    found = report(SMALL)
    header, rows = table(found)
    assert header[0] == "rank"
    assert [row[0] for row in rows] == [1, 2, 4, 8, "full"]
    assert found.trainable_parameters.tolist() == [40, 80, 160, 320]
    assert numbers_at(found, 4)[0].chance == pytest.approx(100 * found.by_chance[2])


def test_plotly_accepts_the_pictures(result):
    shown = [figures.loss_by_rank(result, 4), figures.curves(result), figures.update_spectrum(result), figures.update_energy(result)]
    for fig in shown:
        go.Figure(fig.to_dict())  # raises for a property or value that plotly does not know
    assert figures.loss_by_rank(sweep(replace(SMALL, steps=5)), 8).layout.yaxis.range == shown[0].layout.yaxis.range


def test_the_floor_of_a_single_rank_is_a_line_too():
    drawn = {trace.name: trace for trace in figures.loss_by_rank(sweep(replace(SMALL, steps=5, max_rank=1)), 1).data}
    assert len(drawn["floor"].x) == len(drawn["floor"].y) == 2


def test_pissas_floor_is_what_its_adapter_can_reach():
    """From PiSSA's start the best rank r is the truncation of M and what was taken out of W, weighed by the inputs."""
    params = LoraParams(d_in=24, d_out=16, max_rank=8, teacher_rank=4, start="pissa", inputs="coloured")
    teacher = teacher_of(params)
    for rank, floor in zip((1, 4, 8), pissa_floors(teacher, (1, 4, 8)), strict=True):
        (plain,) = [low_rank_members(replace(params, n_seeds=1), [rank], teacher.W)]
        needed = teacher.M + plain.offset.update()[0].double().numpy()
        U, s, Vh = np.linalg.svd(needed * teacher.deviation, full_matrices=False)
        best = (U[:, :rank] * s[:rank]) @ Vh[:rank] / teacher.deviation
        assert floor == pytest.approx(float(np.square((needed - best) * teacher.deviation).sum() / len(needed)), rel=1e-5)
        assert floor > floors(teacher, (rank,))[0] - 1e-9
