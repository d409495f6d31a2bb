"""The feed-forward page without a browser: what a link cannot ask for is said, and guesses are answered by the engine."""

import pytest

from engine.errors import InputError
from engine.ffn import sweep_numbers
from engine.ffn_fit import sweep
from engine.ffn_ledger import ledger
from engine.ffn_params import ACTIVATIONS, SHAPES, FfnParams
from engine.ffn_regions import regions
from pages.shared import data
from tests.pages.test_pages import numbers_of, open_page


def said(app) -> str:
    assert not app.exception
    return app.warning[0].value.replace("\\", "")


@pytest.mark.parametrize(
    ("drawing", "why"),
    [
        ("1,2,3", "accepted: in groups of 2, 8 to 66 numbers"),
        ("-2,0,0,1,2,0", "accepted: in groups of 2, 8 to 66 numbers"),
        ("-3,0,-2,1,0,2,2,0", "outside -2 to 2"),
        ("-2,0,0,1,0,2,2,0", "two values at x = 0"),
        ("-2,0,1,1,0,2,2,0", "goes back"),
    ],
)
def test_a_drawing_that_is_no_function_is_said_and_replaced(drawing, why):
    app = open_page("ffn", target="drawn", drawing=drawing)
    assert why in said(app)
    assert said(app).count("using") == 1
    assert len(numbers_of(app)) >= 4


def test_limits_follow_the_prompt_the_model_and_the_experts():
    assert "Token: '40' is outside 0 to" in said(open_page("ffn", tab="Jacobian", prompt="a fox sang", token="40"))
    assert "Neuron: '704' is outside 0 to 703" in said(open_page("ffn", tab="One token", neuron="704"))
    assert "Width (gated: three fifths): '7'" in said(open_page("ffn", width="7"))
    assert "Experts per token: '3' is outside 1 to 2" in said(open_page("ffn", tab="Cost", shape="own", experts="2", top_k="3"))


@pytest.mark.parametrize(("name", "value"), [("top_k", "99"), ("token", "999"), ("layer", "99"), ("keep", "999")])
def test_a_value_beyond_the_limits_is_said_once(name, value):
    for tab in ("One token", "Cost"):
        app = open_page("ffn", tab=tab, **{name: value})
        assert said(app).count("using") == 1
        if name == "token":
            assert "is outside 0 to 16" in said(app)


@pytest.mark.parametrize("name", ["token", "neuron", "keep", "top_k"])
def test_what_the_engine_refuses_leaves_a_working_page(name):
    app = open_page("ffn", tab="Cost", **{name: "9999999999"})
    assert "accepted are" in said(app)
    assert len(numbers_of(app)) >= 8
    assert any(b.label == "Reset" for b in app.button)


@pytest.mark.parametrize("shape", SHAPES)
def test_every_configuration_opens_from_the_menu_and_from_the_link(shape):
    app = open_page("ffn", tab="Cost", shape=shape)
    assert not app.exception
    assert not app.warning
    menu = next(box for box in app.selectbox if box.key.startswith("shape_menu"))
    assert menu.value == shape
    menu.select("gpt2").run()
    assert not app.exception
    assert len(numbers_of(app)) >= 8


def test_an_error_while_training_leaves_the_rest_of_the_page(monkeypatch):
    def refused(params, on_step=None):
        raise InputError("No training today.")

    refused.uses, refused.__module__ = (), "tests"
    monkeypatch.setattr("engine.ffn_fit.fit", refused)
    app = open_page("ffn", tab="Cost")
    assert not app.exception
    assert "No training today" in app.error[0].value
    assert any(b.label == "Reset" for b in app.button)
    assert len(numbers_of(app)) >= 4


@pytest.mark.parametrize("tab", ["Fit", "One token", "Regions", "Jacobian", "Cost", "Guess"])
def test_every_tab_opens(tab):
    app = open_page("ffn", tab=tab, seed="3", activation="geglu", steps="500")
    assert not app.exception
    assert not app.error
    assert not app.warning


def test_an_empty_prompt_is_one_sentence_on_its_tab():
    app = open_page("ffn", tab="One token", prompt="   ")
    assert not app.exception
    assert ["prompt is empty" in e.value for e in app.error] == [True]


def test_guesses_are_answered_by_a_number_just_computed():
    sources = {
        "regions_bound": lambda p: regions(p).numbers(),
        "best_at_31": lambda p: sweep_numbers(sweep(p)),
        "neurons_90": lambda p: ledger(p).numbers(),
    }
    for guess in data.lab("ffn").guesses:
        setting = {"regions": {}, "kink": {"target": "abs"}, "wave": {"target": "sine"}, "ninety": {"layer": 3, "token": 6}}[guess.id]
        number = sources[guess.decides](FfnParams(**setting))[guess.decides]
        if guess.decides == "best_at_31":  # the number stands for a name: the choice must be that name
            assert guess.answer(number.value) == list(ACTIVATIONS.values())[int(number.value) - 1].name
        app = open_page("ffn", tab="Guess")
        pills = next(b for b in app.button_group if b.key == f"guess_{guess.id}")
        pills.select(guess.answer(number.value)).run()
        assert not app.exception
        assert any(guess.answer(number.value) in s.value for s in app.success), guess.id
