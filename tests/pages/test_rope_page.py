"""The RoPE page: guesses answered by what was just computed, laws that cannot be formed, pasted settings."""

import pytest
from streamlit.testing.v1 import AppTest

from engine.rope import RopeParams, frequencies, rotor, rotor_numbers
from engine.rope_measure import loss_numbers, losses_by_position, pairs_number
from pages.shared import data
from tests.pages.test_pages import open_page


def answers() -> dict[str, float]:
    """Return the number that decides each guess, straight from the engine."""
    circles = RopeParams(d_head=8, position=6)
    stretched = RopeParams(scheme="pi", reach=1)
    return {
        "distance": rotor_numbers(circles, rotor(circles), frequencies(circles))["nearer"].value,
        "pairs": pairs_number(RopeParams(scheme="pi", reach=2)).value,
        "price": loss_numbers(stretched, losses_by_position(stretched))["price"].value,
    }


def test_guesses_are_answered_by_a_number_just_computed():
    found = answers()
    assert {g.id for g in data.lab("rope").guesses} == set(found)
    for guess in data.lab("rope").guesses:
        app = open_page("rope", tab="Guess", reach="1")
        pills = next(b for b in app.button_group if b.key == f"guess_{guess.id}")
        pills.select(guess.answer(found[guess.id])).run()
        assert not app.exception
        assert any(f"{found[guess.id]:.2f}" in s.value and guess.answer(found[guess.id]) in s.value for s in app.success), guess.id


def test_a_law_that_cannot_be_formed_is_one_sentence_on_a_working_page():
    app = open_page("rope", scheme="longrope", reach="1")
    assert not app.exception
    assert [e.value.replace("\\", "") for e in app.error] == [
        "LongRoPE has 0 numbers in long_factor; one positive number for each of 16 pairs is needed. Shown is plain RoPE."
    ]
    lists = ",".join(["1.5"] * 16)
    app = open_page("rope", scheme="longrope", reach="1", long_factor=lists, short_factor=lists)
    assert not app.error
    assert not app.warning


@pytest.mark.parametrize(
    "text", ["not json", '{"rope_type": "nonsense"}', '{"factor": NaN}', "[" * 10_000, "x" * 1_000_000, "<img src=x onerror=alert(1)>"]
)
def test_pasted_text_that_is_no_rope_is_one_sentence(text):
    def page(text):
        from engine.rope import RopeParams
        from pages.parts import rope as parts

        parts._apply(None, "Use it", lambda: parts.read_pasted(RopeParams(), text))

    app = AppTest.from_function(page, kwargs={"text": text}, default_timeout=60).run()
    assert not app.exception
    assert len(app.error) == 1
    assert len(app.error[0].value) < 400
