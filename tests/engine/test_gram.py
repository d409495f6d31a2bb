"""Spectra of head products: every singular value to twelve digits where double precision allows, whatever the factors."""

from itertools import pairwise

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from engine import gram
from engine.device import compute_device
from engine.gram import grouped_spectra, top_directions
from engine.scalars import scalars_of

EPS = np.finfo(float).eps
M, R, N = 9, 4, 7


@pytest.fixture(autouse=True, scope="module", params=[False, True], ids=["torch", "numpy"])
def numpy_alone(request):
    """Run every test with the Grams of either library: which of them a process uses depends on its environment."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("engine.device.NUMPY_ALONE", request.param)
        yield


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def gaussian(*shape, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=generator(seed))


def orthonormal(m: int, r: int, seed: int = 0) -> torch.Tensor:
    return torch.linalg.qr(gaussian(m, r, seed=seed)).Q


def conditioned(kappa: float, order: str, m: int = M, r: int = R, n: int = N) -> tuple[torch.Tensor, torch.Tensor]:
    """Return factors with singular values 1 .. 1/kappa that meet in the same order (aligned), in reverse (opposed), or in A alone (one)."""
    s = torch.logspace(0, -np.log10(kappa), r, dtype=torch.float64)
    middle = orthonormal(r, r, seed=3)
    right = {"aligned": s, "opposed": s.flip(0), "one": torch.ones(r, dtype=torch.float64)}[order]
    return orthonormal(m, r, 1) * s @ middle, middle.T * right @ orthonormal(n, r, 2).T


def with_columns(change) -> tuple[torch.Tensor, torch.Tensor]:
    A, B = gaussian(M, R, seed=4), gaussian(R, N, seed=5)
    change(A, B)
    return A, B


HARD = {
    "plain": lambda: with_columns(lambda A, B: None),
    "zero columns": lambda: with_columns(lambda A, B: A[:, 1:3].zero_()),
    "zero rows": lambda: with_columns(lambda A, B: B[1].zero_()),
    "duplicated columns": lambda: with_columns(lambda A, B: A[:, 1].copy_(A[:, 0])),
    "duplicated rows": lambda: with_columns(lambda A, B: B[3].copy_(B[2])),
    "all zeros": lambda: (torch.zeros(M, R, dtype=torch.float64), gaussian(R, N)),
    "both zero": lambda: (torch.zeros(M, R, dtype=torch.float64), torch.zeros(R, N, dtype=torch.float64)),
    "rank 1": lambda: (gaussian(M, 1) @ gaussian(1, R, seed=1), gaussian(R, N, seed=2)),
    "an outlier": lambda: with_columns(lambda A, B: A[0].mul_(1e5)),
    "one huge column": lambda: with_columns(lambda A, B: A[:, 2].mul_(1e9)),
    "huge": lambda: tuple(X * 1e140 for X in conditioned(1e3, "one")),
    "overflowing squares": lambda: (gaussian(M, R) * 1e200, gaussian(R, N, seed=1) * 1e-150),
    "vanishing": lambda: (gaussian(M, R) * 1e-200, gaussian(R, N, seed=1) * 1e-90),
    **{
        f"{order} {kappa:g}": lambda o=order, k=kappa: conditioned(k, o)
        for order in ("aligned", "opposed", "one")
        for kappa in (30, 1e3, 1e5, 1e6, 1e12)
    },
}


def true_spectrum(A: torch.Tensor, B: torch.Tensor) -> np.ndarray:
    """Return the r largest singular values of A B in 60 digits, rounded to double."""
    with mpmath.workdps(60):
        product = mpmath.matrix(A.double().tolist()) * mpmath.matrix(B.double().tolist())
        size = max(abs(x) for x in product) or mpmath.mpf(1)
        values = mpmath.svd_r(product / size, compute_uv=False)
        return np.array([float(values[i] * size) for i in range(min(A.shape[-1], len(values)))])


def norm(X: torch.Tensor) -> float:
    largest = X.abs().max().double()
    return float(torch.linalg.matrix_norm(X.double() / largest) * largest) if largest > 0 else 0.0


def assert_as_good_as_double(values, truth, A, B) -> None:
    """Within 1e-9 relative where eps |A| |B| / sigma < 1e-10; within a few r eps |A| |B| elsewhere."""
    values, size = np.asarray(values), norm(A) * norm(B)
    clear = truth > 1e10 * EPS * size
    assert np.isfinite(values).all()
    assert (np.diff(values) <= 0).all()
    assert values[clear] == pytest.approx(truth[clear], rel=1e-9)
    assert (np.abs(values - truth)[~clear] <= 4 * len(truth) * EPS * size).all()


@pytest.mark.parametrize("case", HARD)
def test_hard_factors_against_sixty_digits(case):
    A, B = HARD[case]()
    (found,) = grouped_spectra([(A[None], B[None])])
    assert_as_good_as_double(found.singular_values[0], true_spectrum(A, B), A, B)
    assert float(found.scale[0]) == pytest.approx(norm(A) * norm(B), rel=1e-12)


@pytest.mark.parametrize("case", HARD)
def test_every_number_is_defined(case):
    A, B = HARD[case]()
    (found,) = grouped_spectra([(A[None], B[None])])
    numbers = vars(scalars_of(found.singular_values.numpy(), found.scale.numpy()))
    assert all(np.isfinite(v).all() for v in numbers.values()), numbers
    assert (norm(A) * norm(B) == 0) == all((v == 0).all() for v in numbers.values())


def test_numerical_ranks_are_those_of_the_construction():
    rank = {
        "plain": 4,
        "zero columns": 2,
        "zero rows": 3,
        "duplicated columns": 3,
        "rank 1": 1,
        "all zeros": 0,
        "aligned 1e+06": 4,
        "opposed 1e+12": 4,
        "aligned 1e+12": 2,
    }
    for case, expected in rank.items():
        A, B = HARD[case]()
        (found,) = grouped_spectra([(A[None], B[None])])
        assert scalars_of(found.singular_values.numpy(), found.scale.numpy()).numerical_rank[0] == expected, case


def test_golden_numbers_and_condition():
    numbers = scalars_of(np.array([4.0, 2.0, 1.0, 1.0]), np.array(8.0))
    golden = {"stable_rank": 1.375, "participation_ratio": 1.76642, "effective_rank": 2.27632, "roy_vetterli_rank": 3.36359, "top_share": 0.72727}
    assert {name: round(float(getattr(numbers, name)), 5) for name in golden} == golden
    assert (float(numbers.condition_number), int(numbers.numerical_rank), int(numbers.directions_90), int(numbers.directions_99)) == (4.0, 4, 2, 4)


@given(st.integers(0, 10**6), st.integers(1, 6), st.sampled_from([1e-30, 1e-3, 1.0, 1e20]), st.integers(1, 9))
def test_any_small_integers_against_the_whole_product(seed, r, unit, n):
    rng = np.random.default_rng(seed)
    A, B = (torch.from_numpy(rng.integers(-2, 3, size).astype(float) * unit) for size in ((8, r), (r, n)))
    (found,) = grouped_spectra([(A[None], B[None])])
    whole = np.linalg.svd((A @ B).numpy(), compute_uv=False)
    truth = np.pad(whole, (0, r))[:r]
    values = found.singular_values[0].numpy()
    assert values == pytest.approx(truth, rel=1e-9, abs=50 * EPS * norm(A) * norm(B))
    numbers = scalars_of(values, found.scale[0].numpy())
    order = [getattr(numbers, n) for n in ("stable_rank", "participation_ratio", "effective_rank", "roy_vetterli_rank")] + [float(r)]
    assert all(a <= b * (1 + 1e-9) for a, b in pairwise(order))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("group", [1, 3, 6])
def test_grouped_heads_in_any_precision_against_the_whole_product(dtype, group):
    A = (gaussian(40, 6, 8) * 0.1).to(dtype).transpose(0, 1)  # heads inside a wider matrix, as W_O has them
    B = (gaussian(6 // group, 8, 30, seed=1) * 0.1).to(dtype)
    Q = (gaussian(6, 8, 40, seed=2) * 0.1).to(dtype).mT
    for left, found in zip((A, Q), grouped_spectra([(A, B), (Q, B)]), strict=True):
        for h in range(6):
            a, b = left[h].double(), B[h // group].double()
            expected = np.linalg.svd((a @ b).numpy(), compute_uv=False)[:8]
            assert found.singular_values[h].numpy() == pytest.approx(expected, rel=1e-11)
            assert float(found.scale[h]) == pytest.approx(float(a.norm() * b.norm()), rel=1e-12)
        assert not found.exact.any()


def test_one_bad_head_leaves_its_neighbours_on_the_fast_route():
    A, B = gaussian(8, 20, 5), gaussian(4, 5, 20, seed=1)
    A[2, :, 1], B[3, 0] = 0, B[3, 1]
    (found,) = grouped_spectra([(A, B)])
    assert found.exact.tolist() == [False, False, True, False, False, False, True, True]
    whole = torch.linalg.svdvals(A @ B.repeat_interleave(2, 0))[:, :5]
    assert torch.allclose(found.singular_values, whole, rtol=1e-10, atol=1e-13)


def test_heads_wider_than_the_residual_stream_have_zeros_at_the_end():
    A, B = gaussian(1, 3, 5), gaussian(1, 5, 3, seed=1)
    (found,) = grouped_spectra([(A, B)])
    assert found.singular_values[0, :3].numpy() == pytest.approx(np.linalg.svd((A @ B)[0].numpy(), compute_uv=False), rel=1e-12)
    assert found.singular_values[0, 3:].tolist() == [0, 0]


SWEEP = [(order, kappa, r) for order in ("aligned", "opposed", "one") for kappa in np.logspace(0.5, 6, 12) for r in (3, 16, 64)]


def _errors(order: str, kappa: float, r: int) -> tuple[float, bool]:
    """Return the largest relative error where 1e-9 is owed, and whether the head took the exact route."""
    A, B = conditioned(kappa, order, 96, r, 80)
    (found,) = grouped_spectra([(A[None], B[None])])
    truth = torch.linalg.svdvals(torch.linalg.qr(A).R @ torch.linalg.qr(B.T).R.T)
    clear = truth > 1e10 * EPS * norm(A) * norm(B)
    error = ((found.singular_values[0] - truth).abs() / truth)[clear]
    return float(error.max()) if len(error) else 0.0, bool(found.exact[0])


def test_the_guard_lets_no_error_above_1e_9_pass():
    outcomes = [_errors(*case) for case in SWEEP]
    assert max(error for error, _ in outcomes) < 1e-9
    routes = [exact for _, exact in outcomes]
    assert 10 < sum(routes) < len(routes) - 10  # both routes were tried


def test_without_the_guard_errors_would_pass(monkeypatch):
    monkeypatch.setattr(gram, "TRUSTED", np.inf)
    assert max(_errors(*case)[0] for case in SWEEP) > 1e-8


def trained_looking(d: int, r: int, heads: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return float16 factors as training leaves them: decaying spectra in their own bases, a few loud residual dimensions."""
    decay = (torch.arange(1, r + 1) ** -0.7).double()
    loud = torch.ones(d, dtype=torch.float64)
    loud[:3] = 20
    A = torch.stack([loud[:, None] * orthonormal(d, r, 10 * h) * decay @ orthonormal(r, r, 10 * h + 1) for h in range(heads)])
    B = torch.stack([orthonormal(r, r, 10 * h + 2) * decay @ orthonormal(d, r, 10 * h + 3).T for h in range(heads)])
    return A.half(), B.half()


@pytest.mark.parametrize(("d", "r"), [(768, 64), (640, 256), (256, 32)])
def test_real_looking_heads_rarely_need_the_exact_route(d, r):
    gaussians = gaussian(2, d, r).float(), gaussian(2, r, d, seed=1).float()
    for found in grouped_spectra([trained_looking(d, r, 2), gaussians]):
        assert found.exact.float().mean() <= 0.05


def test_rescaling_and_rotating_inside_a_head_changes_nothing():
    A, B = gaussian(5, 30, 6), gaussian(5, 6, 30, seed=1)
    turn = torch.stack([orthonormal(6, 6, seed) for seed in range(5)])
    stretch = torch.logspace(-3, 3, 5, dtype=torch.float64)[:, None, None]
    before, after = grouped_spectra([(A, B), (A @ turn * stretch, turn.mT @ B / stretch)])
    assert torch.allclose(before.singular_values, after.singular_values, rtol=1e-11)
    assert torch.allclose(before.scale, after.scale, rtol=1e-12)


def test_top_directions_are_orthonormal_and_rebuild_the_product():
    for A, B in (HARD["plain"](), HARD["rank 1"](), HARD["opposed 1e+06"](), (gaussian(60, 40), gaussian(40, 50, seed=1))):
        U, sigma, V = top_directions(A, B, 40)
        k = len(sigma)
        assert k == min(gram.MAX_DIRECTIONS, A.shape[1])
        for X in (U, V):
            assert torch.allclose(X.T @ X, torch.eye(k, dtype=X.dtype), atol=1e-13)
        size = norm(A) * norm(B)
        assert (A @ (B @ V) - U * sigma).abs().max() < 20 * EPS * size
        assert sigma.numpy() == pytest.approx(true_or_numpy(A, B)[:k], abs=50 * EPS * size)


def true_or_numpy(A, B) -> np.ndarray:
    return np.linalg.svd((A @ B).numpy(), compute_uv=False)


@pytest.mark.skipif(compute_device("auto").name == "cpu", reason="no GPU here")
def test_the_gpu_agrees_with_the_cpu():
    device = compute_device("auto").name
    pairs = [(gaussian(8, 96, 16).float(), gaussian(4, 16, 96, seed=1).float()), (trained_looking(256, 32, 8))]
    pairs += [tuple(X[None] for X in HARD[case]()) for case in HARD]
    for A, B in pairs:
        (cpu,), (gpu,) = grouped_spectra([(A, B)]), grouped_spectra([(A.to(device), B.to(device))])
        size = cpu.scale[:, None]
        assert ((cpu.singular_values - gpu.singular_values.cpu()).abs() <= 1e-9 * cpu.singular_values + 50 * EPS * size).all()


@pytest.mark.parametrize("budget", [1, gram.BUFFER_BYTES])
def test_grams_of_every_layout_and_precision(monkeypatch, budget):
    monkeypatch.setattr(gram, "BUFFER_BYTES", budget)
    stored = gaussian(30, 5, 8)
    layouts = [stored, stored.mT.contiguous().mT, stored.transpose(0, 1).contiguous().transpose(0, 1), stored[:, 1:, 2:]]
    for X in [*layouts, *(X.float() for X in layouts), *(X.bfloat16() for X in layouts)]:
        expected = np.einsum("nmi,nmj->nij", X.double().numpy(), X.double().numpy())
        assert gram.gram(X).numpy() == pytest.approx(expected, rel=1e-13, abs=1e-13)
