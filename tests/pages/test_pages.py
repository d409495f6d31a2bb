"""Every page, run without a browser: no traceback whatever the link holds, and one sentence for what was wrong."""

import importlib
import re
from dataclasses import fields

import pytest
from streamlit.testing.v1 import AppTest

from engine.cli import LABS as COMMANDS
from pages.shared import data
from pages.shared.navigation import LABS
from tests.conftest import ROOT

NONSENSE = ["nonsense", "x" * 10_000, "<img src=x onerror=alert(1)>", "nan", "-1", "1e999", "🦊", "../../etc/passwd", "\u202e", ""]


def open_page(slug: str, **query: str) -> AppTest:
    """Run a page inside the frame."""
    app = AppTest.from_file(str(ROOT / "streamlit_app.py"), default_timeout=120)
    app.query_params.update(query)
    if slug != "home":
        app.switch_page(f"pages/{slug}.py")
    return app.run()


@pytest.mark.parametrize("slug", ["home", *LABS])
def test_a_page_opens(slug):
    app = open_page(slug)
    assert not app.exception
    assert not app.warning


@pytest.mark.parametrize("lab", LABS)
@pytest.mark.parametrize("value", NONSENSE, ids=range(len(NONSENSE)))
def test_every_parameter_replaced_by_nonsense(lab, value):
    params_class = getattr(importlib.import_module(f"engine.{lab}"), COMMANDS[lab][0])
    for name in [*(f.name for f in fields(params_class)), "tab"]:
        app = open_page(lab, **{name: value})
        assert not app.exception, name
        assert len(app.warning) <= 1
        assert not any(re.search(r"(?<!\\)<img", m.value) for m in app.markdown)  # a model may repeat it, but never as markup
        assert app.warning or value in ("",) or name == "prompt", name


@pytest.mark.parametrize("lab", LABS)
def test_presets_and_guesses_are_acceptable_links(lab):
    for preset in data.lab(lab).presets:
        app = open_page(lab, **preset.link)
        assert not app.exception
        elsewhere = preset.link.get("model", "fable") != "fable"  # without the hub: one sentence, and Fable
        assert bool(app.warning) == elsewhere, preset.label
    for guess in data.lab(lab).guesses:
        app = open_page(lab, **guess.setting)
        assert not app.exception
        assert not app.warning, guess.id


@pytest.mark.parametrize("lab", LABS)
def test_the_projector_view_has_no_prose(lab):
    plain, projected = open_page(lab), open_page(lab, present="1")
    assert not projected.exception
    note = data.text(f"notes/{lab}.md")
    assert any(m.value.strip() == note.strip() for m in plain.markdown)
    assert not any(m.value.strip() == note.strip() for m in projected.markdown)


def test_a_head_that_the_model_lacks():
    app = open_page("spectra", layer="4", head="31")
    assert "Layer: '4' is outside 0 to 3" in app.warning[0].value.replace("\\", "")
    assert "Head: '31' is outside 0 to 7" in app.warning[0].value.replace("\\", "")
    assert [s.value for s in app.slider][:2] == [3, 7]


@pytest.mark.parametrize("prompt", ["", "   ", "word " * 80, "🦊" * 399, "قال الثعلب", "<b>bold</b>", "x" * 10_000])
def test_any_prompt_leaves_a_working_page(prompt):
    app = open_page("spectra", tab="Attention", prompt=prompt)
    assert not app.exception
    assert [s.label for s in app.slider][:2] == ["Layer", "Head"]
    said = [e.value for e in app.error]
    assert len(said) <= 1
    if prompt in ("   ", "🦊" * 399):
        assert "prompt" in said[0]


def test_guesses_are_answered_by_a_number_just_computed():
    from engine.ablation import keep_curve, lesions
    from engine.spectra import SpectraParams, chance, head_numbers, head_spectra

    for guess in data.lab("spectra").guesses:
        setting = {k: int(v) if v.isdecimal() else v for k, v in guess.setting.items() if k != "tab"}
        params = SpectraParams(**setting)
        known = head_numbers(params, head_spectra(params), chance(params)) | lesions(params).numbers() | {"keep_90": keep_curve(params).numbers()[0]}
        number = known[guess.decides]
        app = open_page("spectra", tab="Guess")
        pills = next(b for b in app.button_group if b.key == f"guess_{guess.id}")
        pills.select(guess.answer(number.value)).run()
        assert not app.exception
        assert any(f"{number.value:.{number.digits}f}" in s.value and guess.answer(number.value) in s.value for s in app.success)
