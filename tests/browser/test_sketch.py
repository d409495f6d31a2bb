"""A target drawn by mouse, by touch and by keyboard; training played, stopped and scrubbed; the link holds it all."""

from urllib.parse import parse_qs

import pytest

PLOT, KNOTS = ".sketch-area", 17


def asked(v) -> dict[str, str]:
    """Return the link's parameters."""
    return {name: values[0] for name, values in parse_qs(v.query().lstrip("?")).items()}


def heights(v) -> list[float]:
    """Return the y of the drawing in the link."""
    return [float(word) for word in asked(v)["drawing"].split(",")][1::2]


@pytest.fixture
def sketching(visitor):
    return visitor().open("/ffn?width=5", see=".sketch-handles circle")


def test_a_target_drawn_by_mouse_is_fitted_and_in_the_link(sketching):
    v = sketching
    box = v.page.locator(PLOT).bounding_box()
    v.page.mouse.move(box["x"] + 2, box["y"] + box["height"] * 0.75)
    v.page.mouse.down()
    v.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] * 0.25, steps=6)
    v.page.mouse.move(box["x"] + box["width"] - 2, box["y"] + box["height"] * 0.75, steps=6)
    v.page.mouse.up()
    v.page.wait_for_function("location.search.includes('drawing=')", timeout=30_000)
    v.settle()
    assert asked(v)["target"] == "drawn"
    drawn = heights(v)
    assert len(drawn) == KNOTS
    assert max(drawn) == pytest.approx(1, abs=0.1)
    assert drawn[1] == pytest.approx(-0.75, abs=0.15)
    again = v.page.url
    v.page.goto(again)
    v.page.wait_for_selector(".sketch-handles circle", timeout=60_000)
    v.settle()
    assert heights(v) == drawn


def test_the_arrow_keys_move_a_point_and_find_its_neighbours(sketching):
    v = sketching
    v.page.locator(".sketch-handles circle[tabindex='0']").focus()
    before = float(v.page.evaluate("document.activeElement.getAttribute('aria-valuenow')"))
    v.page.keyboard.press("ArrowRight")
    v.page.keyboard.press("ArrowLeft")
    v.page.keyboard.press("ArrowUp")
    v.page.keyboard.press("Shift+ArrowUp")
    v.page.wait_for_function("location.search.includes('drawing=')", timeout=30_000)
    assert heights(v)[KNOTS // 2] == pytest.approx(before + 0.3, abs=1e-3)


def test_training_is_played_stopped_and_scrubbed(sketching):
    v = sketching
    button = v.page.locator(".sketch-training button")
    button.click()
    v.page.wait_for_timeout(900)
    assert button.inner_text() == "Stop"
    button.click()
    v.page.wait_for_function("location.search.includes('steps=')", timeout=30_000)
    v.settle()
    stopped = int(asked(v)["steps"])
    assert 0 < stopped < 2000
    assert v.page.locator(".sketch-training output").inner_text() == f"step {stopped}"
    v.page.locator(".sketch-training input").focus()
    v.page.keyboard.press("Home")
    v.page.wait_for_function("location.search.includes('steps=0')", timeout=30_000)
    v.settle()
    assert v.figure("What every unit adds").locator("text=step 0").count() == 1


def test_a_finger_moves_the_nearest_point(visitor):
    v = visitor(viewport={"width": 390, "height": 844}, has_touch=True).open("/ffn?width=5", see=".sketch-handles circle")
    box = v.page.locator(PLOT).bounding_box()
    v.page.touchscreen.tap(box["x"] + box["width"] / 2, box["y"] + 3)
    v.page.wait_for_function("location.search.includes('drawing=')", timeout=30_000)
    assert heights(v)[KNOTS // 2] > 1.9
    assert v.page.evaluate("document.documentElement.scrollWidth") <= 390
