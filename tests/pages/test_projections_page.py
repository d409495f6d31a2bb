"""The projections page without a browser: links, sentences, guesses, and one drawing of every tab that plotly accepts."""

import plotly.graph_objects as go
import pytest

import engine.projections as engine
from engine.figures import projections as figures
from pages.shared import data
from tests.pages.test_pages import open_page

P = engine.ProjectionsParams
ANSWERS = {
    "doubling": lambda p: engine.drag_numbers(engine.drag(p))["doubling"],
    "random": lambda p: engine.random_number(engine.random_energy(p)),
    "read": lambda p: engine.reading_numbers(engine.reading(p))["read"],
    "normal": lambda p: engine.parallel_numbers(engine.parallel_columns(p), p.kappa)["normal"],
}


def parameters(setting: dict) -> P:
    """Return the parameters of a link's setting."""
    kinds = {"layer": int, "head": int, "kappa": int, "v": lambda t: tuple(map(float, t.split(","))), "a": lambda t: tuple(map(float, t.split(",")))}
    return P(**{name: kinds.get(name, str)(value) for name, value in setting.items()})


@pytest.mark.parametrize("asked", data.lab("projections").guesses, ids=lambda g: g.id)
def test_guesses_are_answered_by_a_number_just_computed(asked):
    number = ANSWERS[asked.decides](parameters(asked.setting))
    app = open_page("projections", tab="Guess")
    pills = next(b for b in app.button_group if b.key == f"guess_{asked.id}")
    pills.select(asked.answer(number.value)).run()
    assert not app.exception
    assert any(f"{number.value:.{number.digits}f}" in s.value and asked.answer(number.value) in s.value for s in app.success)


@pytest.mark.parametrize(
    ("matrix", "said"),
    [
        ("1 2\n3\n4 5", "is ragged"),
        ("\n".join(["1 " * 100] * 100), "is 100 x 100"),
        ("hello", "no number"),
        ("1;2;1e300", "go up to 1,000,000"),
    ],
)
def test_a_pasted_matrix_that_is_none_gets_one_sentence(matrix, said):
    app = open_page("projections", tab="Subspace", matrix=matrix)
    assert not app.exception
    (warning,) = app.warning
    assert said in warning.value.replace("\\", "")
    assert len(warning.value) < 400


def test_a_typing_error_keeps_the_last_good_matrix_and_what_was_typed():
    app = open_page("projections", tab="Subspace")
    (field,) = app.text_area
    field.input("1;2;\N{MINUS SIGN}3").run()
    assert "".join(app.query_params["matrix"]) == "1;2;-3"
    assert app.text_area[0].value == "1;2;-3"
    app.text_area[0].input("1,2\n3").run()
    (warning,) = app.warning
    assert "'1,2;3' is ragged: its rows hold 1 to 2 numbers" in warning.value.replace("\\", "")
    assert "still using '1;2;-3'" in warning.value.replace("\\", "")
    assert "".join(app.query_params["matrix"]) == "1;2;-3"
    assert app.text_area[0].value == "1,2\n3"
    app.text_area[0].input("1 2\n3 4\n5 6").run()
    assert not app.warning
    assert "".join(app.query_params["matrix"]) == "1,2;3,4;5,6"


@pytest.mark.parametrize(
    "query",
    [{"a": "0,0"}, {"v": "0,0", "a": "0,0"}, {"v": "1,2", "a": "1.5,3"}, {"space": "3-D", "v": "1,2"}, {"matrix": "0;0;0", "tab": "Subspace"}],
)
def test_what_spans_nothing_is_explained(query):
    app = open_page("projections", **query)
    assert not app.exception
    assert not app.warning
    assert bool(app.info) == (query != {"space": "3-D", "v": "1,2"})


def test_vectors_that_are_too_long_or_not_finite_are_said():
    app = open_page("projections", v="nan,1", a="1e9,0", points="1,2,3,4,5", angles="400,x")
    (warning,) = app.warning
    text = "".join(m.value for m in (warning, *app.markdown)).replace("\\", "")  # the first three, and the rest below
    assert "v: 'nan,1' holds a number that is not finite" in text
    assert "Seen from: '400,x' is not a list of numbers" in text
    assert "a: '1e9,0' is outside 2 to 3 numbers from -3 to 3" in text
    assert "Points: '1,2,3,4,5' is not a list of numbers of the right length (accepted: in groups of 2, 4 to 24 numbers" in text


@pytest.mark.parametrize("query", [{"tab": "A real head", "prompt": "   "}, {"tab": "A real head", "prompt": "fox " * 90}])
def test_a_prompt_that_cannot_be_shown_leaves_the_page(query):
    app = open_page("projections", **query)
    assert not app.exception
    assert len(app.error) == 1
    assert [s.label for s in app.slider][:2] == ["Layer", "Head"]


def test_plotly_accepts_every_figure():
    p = P()
    read, angles, lost = engine.reading(p), engine.angles(p), engine.losses(p)
    drawn = [
        figures.doubling(engine.drag(p)),
        figures.parallel(engine.parallel_columns(p), 8),
        *(draw(read) for draw in (figures.shares, figures.by_token, figures.twins)),
        figures.random_shares(engine.random_energy(p)),
        *(draw(angles) for draw in (figures.principal_angles, figures.overlap_map, figures.projection_map)),
        *(draw(lost, 8) for draw in (figures.losses, figures.residuals)),
        figures.aspects(engine.aspect_conditions(p)),
        figures.training(engine.training_conditions(p)),
        figures.pca(engine.embeddings(p)),
    ]
    for fig in drawn:
        checked = go.Figure(fig.to_dict())  # raises for a property or value that plotly does not know
        assert [trace.type for trace in checked.data] == [trace.type for trace in fig.data]


def test_presets_show_what_they_say():
    """What the words of ``assets/labs/projections.json`` claim."""
    presets = {p.label: p.link for p in data.lab("projections").presets}
    drop = engine.drag(parameters({k: presets["Drop a perpendicular"][k] for k in ("v", "a")}))
    assert drop.chance_kept == 0.5
    twin = engine.reading(parameters({k: presets["What a head cannot tell apart"][k] for k in ("weight", "layer", "head")})).twin
    assert twin.difference_in > 1
    assert twin.difference_out < 1e-13
    steps = engine.steps(P(method="classical", kappa=8))
    assert steps.gram[1, 2] == pytest.approx(0.5)
    assert engine.steps(P(method="Householder", kappa=8)).loss < 1e-15
    assert engine.fit(P(degree=6)).kept == pytest.approx(1)
