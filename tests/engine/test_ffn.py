"""The feed-forward lab against torch's own modules and optimiser, against transformers, autograd and brute force."""

import json

import numpy as np
import pytest
import torch

from engine import ffn, ffn_fit
from engine.cli import main
from engine.errors import InputError
from engine.ffn_fit import Network, drawn_points, fit, grid, initial, train, units_of
from engine.ffn_params import ACTIVATIONS, FfnParams
from engine.ffn_pieces import visible_pieces
from engine.ffn_regions import count_regions, cut, most_regions, recovered_error, regions
from engine.params import restrict

NAMES = tuple(ACTIVATIONS)


FUNCTIONS = {"relu": torch.relu, "gelu": torch.nn.functional.gelu, "geglu": torch.nn.functional.gelu, "swiglu": torch.nn.functional.silu}


class Alone(torch.nn.Module):
    """One small network as torch would write it: two or three Linear modules and a functional activation."""

    def __init__(self, network: Network, cutoff: float):
        super().__init__()
        self.function, self.cutoff = FUNCTIONS[network.activation], cutoff
        self.gate, self.down = torch.nn.Linear(1, network.units).double(), torch.nn.Linear(network.units, 1).double()
        self.up = torch.nn.Linear(1, network.units).double() if network.activation in ("geglu", "swiglu") else None
        w, b, v, d, c = initial(network)
        with torch.no_grad():
            self.gate.weight.copy_(w[:, None])
            self.gate.bias.copy_(b)
            self.down.weight.copy_(c[None])
            self.down.bias.zero_()
            if self.up is not None:
                self.up.weight.copy_(v[:, None])
                self.up.bias.copy_(d)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = self.function(self.gate(x[:, None]) - self.cutoff)
        return self.down(a if self.up is None else a * self.up(x[:, None]))[:, 0]


def trained_alone(network: Network, params: FfnParams, steps: int) -> Alone:
    """Train one network with autograd and torch.optim.Adam, the rate falling from 0.03 in a line."""
    model, x = Alone(network, params.cutoff), torch.from_numpy(grid(65))
    t = torch.from_numpy(ffn_fit.target_values(params, grid(65)))
    optimiser = torch.optim.Adam(model.parameters(), lr=0.03)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: 1 - step / steps)
    for _ in range(steps):
        optimiser.zero_grad()
        ((model(x) - t) ** 2).mean().backward()
        optimiser.step()
        schedule.step()
    return model


@pytest.mark.parametrize("cutoff", [0.0, 0.7])
def test_the_batch_is_what_torch_trains_one_at_a_time(cutoff):
    params = FfnParams(target="sine", cutoff=cutoff)
    networks = [Network(name, units_of(name, width), seed) for name in NAMES for width, seed in ((5, 0), (10, 3))]
    together = train(networks, params, 150)
    for i, network in enumerate(networks):
        alone = trained_alone(network, params, 150)
        own = ffn_fit._curves(network, cutoff, i, together, grid())[-1]
        assert own == pytest.approx(alone(torch.from_numpy(grid())).detach().numpy(), abs=1e-8)


@pytest.mark.parametrize("name", NAMES)
def test_slopes_are_autograds(name):
    z = torch.linspace(-6, 6, 101, dtype=torch.float64, requires_grad=True)  # an even count would put a point on ReLU's kink
    z = (z + 0.013).detach().requires_grad_()
    (expected,) = torch.autograd.grad(ACTIVATIONS[name].value(z).sum(), z)
    assert ACTIVATIONS[name].slope(z.detach()).numpy() == pytest.approx(expected.numpy(), abs=1e-12)


def test_all_four_have_as_many_parameters_as_torch_counts():
    for width in (5, 10, 80):
        counts = {name: sum(p.numel() for p in Alone(Network(name, units_of(name, width), 0), 0.0).parameters()) for name in NAMES}
        assert set(counts.values()) == {3 * width + 1}


@pytest.fixture(scope="module")
def fitted():
    return fit(FfnParams(target="sine", width=20))


def test_units_add_up_to_the_curve_and_pieces_are_what_a_fine_grid_sees(fitted):
    for one in fitted.fits.values():
        for snapshot in (0, 7, -1):
            assert one.contributions(snapshot).sum(0) + one.bias[snapshot] == pytest.approx(one.curves[snapshot], abs=1e-9)
    relu = fitted.fits["relu"]
    for snapshot in (0, -1):
        w, b, _, _, c = relu.weights[snapshot]
        fine = np.linspace(-2, 2, 400_001)
        y = (c[:, None] * np.maximum(w[:, None] * fine + b[:, None], 0)).sum(0)
        slopes = np.diff(y) / 1e-5
        runs = np.split(slopes, np.flatnonzero(np.abs(np.diff(slopes)) > 1e-5) + 1)
        seen = [run.mean() for run in runs if len(run) >= 4000]
        count, last = 1, seen[0]
        for slope in seen[1:]:
            count, last = (count + 1, slope) if abs(slope - last) >= 0.1 else (count, last)
        assert relu.pieces(snapshot) == count


def test_a_zigzag_nobody_can_see_is_no_piece():
    places = np.array([0.5, 0.501, 0.502, 0.503])
    assert visible_pieces(places, np.array([50.0, -50.0, 50.0, -50.0])) == 1
    assert visible_pieces(places, np.array([50.0, -50.0, 50.0, -48.0])) == 2
    assert visible_pieces(np.array([0.0, np.nan, 3.0]), np.array([2.0, 5.0, 5.0])) == 2  # |x|; the others lie outside, or nowhere
    assert visible_pieces(np.array([-1.0, 1.0]), np.array([0.01, 1.0])) == 2


def test_errors_are_root_mean_squares_beside_the_best_constant(fitted):
    gelu = fitted.fits["gelu"]
    assert gelu.errors[-1] < 0.1 < fitted.constant_error
    assert fitted.constant_error == pytest.approx(np.sin(3 * np.linspace(-2, 2, 1025)).std(), rel=1e-9)
    coarse = np.sqrt(((gelu.curves[-1] - fitted.target) ** 2).mean())
    assert gelu.errors[-1] == pytest.approx(coarse, rel=0.1)


def test_a_cutoff_moves_every_switch():
    before, after = (fit(FfnParams(width=5, cutoff=c)).fits["relu"] for c in (0.0, 1.0))
    assert after.switches(0) == pytest.approx(before.switches(0) + 1 / before.weights[0, 0])


def test_only_what_is_used_can_influence_a_fit():
    assert restrict(fit, FfnParams(layer=1, batch=3, steps=50, activation="gelu")) == FfnParams()


def test_progress_may_stop_a_training():
    class Stopped(Exception):
        pass

    def on_step(done, total, message):
        if done >= 100:
            raise Stopped

    with pytest.raises(Stopped):
        fit(FfnParams(), on_step)


@pytest.mark.parametrize(
    ("drawing", "said"),
    [
        ((-2, 0, 0, 1, 2, 0), "3 points; 4 to 33"),
        ((-2, 0, 0, 1, 0, 2, 2, 0), "two values at x = 0"),
        ((-2, 0, 1, 1, 0, 2, 2, 0), "goes back from x = 1"),
        ((-2, 0, 0, 1, 2), "even count"),
        ((-2, 0, 0, 1, 1, 2, 2, 9), "outside -2 to 2"),
        ((-2, 0, 0, 1, 1, float("nan"), 2, 0), "outside -2 to 2"),
    ],
)
def test_a_drawing_that_is_no_function_is_refused(drawing, said):
    with pytest.raises(InputError, match=said):
        drawn_points(drawing)
    with pytest.raises(InputError, match=said):
        fit(FfnParams(target="drawn", drawing=drawing))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"width": 7}, "multiples of 5"),
        ({"width": 500}, "width is 500"),
        ({"activation": "tanh"}, "accepted are relu"),
        ({"steps": 33}, "multiples of 50"),
        ({"ratio": 99.0}, "ratio is 99"),
        ({"ratio": float("nan")}, "ratio is nan"),
        ({"lines": 0}, "lines is 0"),
        ({"target": "<b>"}, "accepted are abs"),
    ],
)
def test_values_outside_the_limits_are_refused(change, said):
    with pytest.raises(InputError, match=said):
        FfnParams(**change)


def patterns_near_crossings(weights, offsets) -> int:
    """Count patterns of switches by brute force: every region of lines that cross touches a crossing, so look around each."""
    angles = np.linspace(0, 2 * np.pi, 721)[:-1] + 1e-4
    around = np.stack([np.cos(angles), np.sin(angles)], 1)
    found = set()
    for i in range(len(weights)):
        for j in range(i):
            point = np.linalg.solve(weights[[i, j]], -offsets[[i, j]])
            for radius in (1e-7, 1e-5):
                found |= {tuple(row) for row in ((point + radius * around) @ weights.T + offsets > 0)}
    return len(found)


@pytest.mark.parametrize("biases", [True, False])
@pytest.mark.parametrize("lines", [2, 3, 5, 8])
def test_regions_against_brute_force_and_the_bound(lines, biases):
    for seed in range(3):
        found = regions(FfnParams(lines=lines, biases=biases, seed=seed))
        assert found.regions == patterns_near_crossings(found.weights, found.offsets) == found.bound
        assert len(cut(found.weights, found.offsets, 1e6)) == found.regions  # a square that holds all crossings


def test_special_positions_have_fewer_regions():
    parallel = np.array([[1.0, 0], [2, 0], [3, 0]]), np.array([1.0, 5, -4])
    same = np.array([[1.0, 2], [2, 4], [0.5, 1]]), np.array([1.0, 2, 0.5])
    one_point = np.array([[1.0, 0], [0, 1], [1, 1]]), np.array([0.0, 0, 0])
    assert [count_regions(*case) for case in (parallel, same, one_point)] == [4, 2, 6]
    assert count_regions(np.array([[0.0, 0], [1, 0]]), np.array([1.0, 0])) == 2


def test_cells_fill_the_view_and_each_has_a_pattern_of_its_own():
    found = regions(FfnParams(lines=12))
    area = sum(0.5 * abs(np.dot(c[:, 0], np.roll(c[:, 1], 1)) - np.dot(c[:, 1], np.roll(c[:, 0], 1))) for c in found.cells)
    assert area == pytest.approx(16)
    centres = np.array([cell.mean(0) for cell in found.cells])
    patterns = centres @ found.weights.T + found.offsets > 0
    assert len({tuple(row) for row in patterns}) == len(found.cells)
    assert np.array_equal(patterns.sum(1), found.active)


def test_the_bound_counts_sign_patterns_in_three_dimensions():
    """Four planes in general position: 15 regions, all patterns but one; through the origin 14."""
    assert [most_regions(4, 3, biases) for biases in (True, False)] == [15, 14]
    normals = np.random.default_rng(0).standard_normal((4, 3))
    points = np.random.default_rng(1).standard_normal((200_000, 3)) * np.repeat([0.5, 2, 10, 100], 50_000)[:, None]
    for offsets, expected in ((np.ones(4), 15), (np.zeros(4), 14)):
        assert len({tuple(row) for row in points @ normals.T + offsets > 0}) == expected


def test_redundant_coordinates_come_back_and_a_nonlinearity_breaks_that():
    W, x = torch.randn(40, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(0)), torch.randn(30, 12, dtype=torch.float64)
    assert recovered_error(W, x @ W.T) < 1e-12
    assert recovered_error(W, torch.relu(x @ W.T)) > 0.1


def test_the_contract_for_scripts(capsys):
    assert main(["ffn", "--target", "drawn", "--drawing=-2,0,-1,1,1,-1,2,0", "--width", "5", "--lines", "3", "--json", "-"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["params"]["drawing"] == [-2, 0, -1, 1, 1, -1, 2, 0]
    assert result["regions"]["regions"] == 7
    assert {name: one["parameters"] for name, one in result["fit"]["fits"].items()} == dict.fromkeys(NAMES, 16)
    assert main(["ffn", "--drawing", "1,2,x"]) == 2
    assert "--drawing" in capsys.readouterr().err


def test_sizes_on_a_kink_and_a_wave_are_what_the_words_say():
    """What ``assets/labs/ffn.json`` claims of |x| and sin 3x: ReLU is best on the kink, and last on the wave."""
    kink, wave = (fit(FfnParams(target=target)).fits for target in ("abs", "sine"))
    errors = lambda fits: {name: float(one.errors[-1]) for name, one in fits.items()}  # noqa: E731
    assert min(errors(kink), key=errors(kink).get) == "relu"
    assert max(errors(wave), key=errors(wave).get) == "relu"
    assert 5 * errors(kink)["relu"] < sorted(errors(kink).values())[1]


def test_numbers_stand_beside_chance(fitted):
    numbers = ffn.fit_numbers(FfnParams(target="sine", width=20), fitted)
    assert numbers["error"].chance == fitted.constant_error
    assert numbers["pieces"].value == fitted.fits["relu"].pieces(-1)
    assert numbers["place"].chance == 1.5
    assert 1 < fitted.random_pieces < 1 + 20 * fitted.random_share
    assert fitted.random_share == pytest.approx(2 / np.pi * np.arctan(2), rel=0.03)  # two normals: P(|b| < 2 |w|)
