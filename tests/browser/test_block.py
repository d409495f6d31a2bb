"""The block of the norms page in a real browser: pointing at an entry lights the set that is averaged with it."""

import pytest

pytestmark = pytest.mark.browser


@pytest.mark.parametrize(("norm", "lit"), [("layer", 16), ("rms", 16), ("batch", 16), ("layer&features=8", 8), ("batch&batch=2", 8)])
def test_the_lit_set_is_what_the_norm_averages(visitor, norm, lit):
    v = visitor().open(f"/norms?norm={norm}")
    v.page.wait_for_selector(".block .cells")
    count = "() => document.querySelectorAll('.block .cells')[0].querySelectorAll('.cell.lit').length"
    assert v.page.evaluate(count) == lit
    before = v.page.locator(".block .readout").inner_text()
    v.page.locator(".block .cells").first.focus()
    v.page.keyboard.press("ArrowRight")
    after = v.page.locator(".block .readout").inner_text()
    assert v.page.evaluate(count) == lit
    assert before != after
    box = v.page.locator(".block .cells").last.bounding_box()
    v.page.mouse.move(box["x"] + 5, box["y"] + 5)
    assert v.page.locator(".block .readout").inner_text().startswith("Sample 0, token 0, feature 0")
