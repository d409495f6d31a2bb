"""The projections lab: one vector on one line, the whole report, the contract for scripts, bad input."""

import json
import math
import warnings

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import projections
from engine.cli import main
from engine.errors import InputError
from engine.params import restrict
from engine.subspaces.drag import drag, drag_numbers, mean_length
from engine.subspaces.params import ProjectionsParams

FINITE = st.floats(-1e100, 1e100, allow_subnormal=True)
VECTORS = st.tuples(FINITE, FINITE, FINITE)


def foot(v, a) -> list[float]:
    """Return a (a.v) / (a.a) with sixty digits."""
    with mpmath.workdps(400):
        v, a = ([mpmath.mpf(x) for x in w] for w in (v, a))
        t = mpmath.fdot(v, a) / mpmath.fdot(a, a)
        return [float(t * x) for x in a]


@given(VECTORS, VECTORS)
def test_the_foot_is_that_of_mpmath_for_vectors_of_any_size(v, a):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = drag(ProjectionsParams(space="3-D", v=v, a=a))
    size = math.hypot(*v)
    expected = foot(v, a) if any(a) else [0.0, 0.0, 0.0]
    assert result.projection == pytest.approx(expected, abs=1e-15 * size, rel=0)
    if size:
        assert result.error <= 1e-15
        assert 0 <= result.kept <= 1 + 1e-15
    else:
        assert math.isnan(result.error)
        assert math.isnan(result.kept)


def test_the_source_widgets_numbers():
    result = drag(ProjectionsParams(v=(1.6, 1.6), a=(2.0, 0.0)))
    assert result.projection.tolist() == [1.6, 0.0]
    assert result.residual_length == pytest.approx(1.6)
    assert result.kept == pytest.approx(0.5)


@pytest.mark.parametrize("space", ["2-D", "3-D"])
def test_chance_is_what_random_directions_give(space):
    n = 2 if space == "2-D" else 3
    directions = np.random.default_rng(0).standard_normal((200_000, n))
    cosines = np.abs(directions[:, 0]) / np.linalg.norm(directions, axis=1)
    assert mean_length(1, n) == pytest.approx(cosines.mean(), abs=3e-3)
    assert mean_length(n - 1, n) == pytest.approx(np.sqrt(1 - cosines**2).mean(), abs=3e-3)
    assert (mean_length(0, n), mean_length(n, n)) == (0, 1)
    assert drag(ProjectionsParams(space=space)).chance_kept == pytest.approx((cosines**2).mean(), abs=3e-3)


def test_the_bottom_of_the_distance_is_at_the_foot():
    result = drag(ProjectionsParams(v=(1.0, 2.0), a=(3.0, 1.0)))
    at = result.coefficient * np.linalg.norm(result.a)
    assert np.interp(at, result.along, result.distance) == pytest.approx(result.residual_length, abs=1e-2)
    assert (result.distance >= result.residual_length * (1 - 1e-12)).all()
    assert result.distance == pytest.approx(np.hypot(result.residual_length, result.along - at))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"a": (0.0, 0.0)}, "zero vector: its line is the origin"),
        ({"v": (0.0, 0.0)}, "lies on every line"),
        ({"v": (1.0, 2.0), "a": (-0.5, -1.0)}, "lies on the line"),
        ({"v": (1.0, 2.0), "a": (-2.0, 1.0)}, "perpendicular to the line"),
        ({"v": (1.0, 2.0), "a": (1.0, 1.0)}, None),
    ],
)
def test_special_cases_are_said(change, said):
    result = drag(ProjectionsParams(**change))
    assert (said is None and result.said == ()) or said in result.said[0]
    undefined = {name for name, n in drag_numbers(result).items() if not np.isfinite(n.value)}
    assert ("kept" in undefined) == (change.get("v") == (0.0, 0.0))
    assert ("doubling" in undefined) == (result.projection_length == 0)


def test_a_line_of_no_dimension_has_no_chance_and_no_distance_along_it():
    result = drag(ProjectionsParams(v=(1.0, 2.0), a=(0.0, 0.0)))
    assert (result.kept, result.chance_kept, result.chance_projection) == (0, 0, 0)
    assert result.residual_length == result.chance_residual == pytest.approx(math.sqrt(5))
    assert math.isnan(result.coefficient)
    assert math.isnan(dict(projections.drag_checks(result))["cosine of the angle between residual and line"])
    assert result.along.size == result.distance.size == 0


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"v": (math.nan, 1.0)}, "v holds nan"),
        ({"a": (1.0, 1e101)}, "a holds 1e"),
        ({"a": (1.0,)}, "a has 1 numbers"),
        ({"space": "4-D"}, "accepted are 2-D, 3-D"),
        ({"weight": "X"}, "accepted are Q, K, V, O, down, random"),
        ({"method": "QR"}, "classical, modified"),
        ({"points": (1.0, 2.0, 3.0, 4.0, 5.0)}, "each point has an x and a y"),
        ({"degree": 7}, "0 to 6"),
        ({"kappa": 17}, "0 to 16"),
        ({"slant": 90}, "0 to 80"),
        ({"layer": -1}, "Layer -1"),
        ({"matrix": ""}, "is empty"),
        ({"matrix": " \n;,"}, "is empty"),
        ({"matrix": "1 2\n3\n4 5"}, "is ragged: its rows hold 1 to 2 numbers"),
        ({"matrix": "1,2;3,4"}, "is 2 x 2"),
        ({"matrix": "\n".join(["0 " * 100] * 100)}, "is 100 x 100"),
        ({"matrix": "one two"}, "'one', which is no number"),
        ({"matrix": "١;٢;٣"}, "no number"),
        ({"matrix": "1;nan;2"}, "which is not finite"),
        ({"matrix": "1;1e999;2"}, "which is not finite"),
        ({"matrix": "1;1e7;2"}, "go up to 1,000,000"),
        ({"matrix": "1 " * 200_000}, "400000 characters"),
    ],
)
def test_bad_input_is_one_sentence(change, said):
    with pytest.raises(InputError, match=said) as caught:
        ProjectionsParams(**change)
    assert len(str(caught.value)) < 200


def test_the_contract_for_scripts(capsys):
    assert main(["projections", "--a=-1,2", "--matrix", "1 0\n0 1\n0 0", "--json", "-"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert set(result) == {"model", *projections.PARTS}
    assert result["drag"]["projection"] == pytest.approx(foot((1.6, 2.2), (-1, 2)))
    assert [check["name"] for check in result["subspace"]["checks"]] == ["normal equations", "QR", "SVD", "oblique"]
    assert np.shape(result["losses"]["loss"]) == (4, 17)
    assert np.shape(result["training"]["condition"])[1:] == (4, 4)
    assert main(["projections", "--a=1,x"]) == 2
    assert "'1,x' is not a list of numbers" in capsys.readouterr().err


def test_only_what_is_used_can_influence_a_result():
    moved = ProjectionsParams(v=(1.0, 1.0), a=(2.0, 1.0), layer=1, head=3, degree=1, kappa=3)
    assert restrict(projections.drag, moved) == ProjectionsParams(v=(1.0, 1.0), a=(2.0, 1.0))
    assert restrict(projections.losses, moved) == ProjectionsParams()
    assert restrict(projections.fit, moved) == ProjectionsParams(degree=1)
