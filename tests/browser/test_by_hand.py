"""Vectors and points by hand in a real browser: what is drawn while they move, and what the engine says when the hand lets go."""

import math
import re

import numpy as np
import pytest

from engine.subspaces.drag import drag
from engine.subspaces.fitting import fit
from engine.subspaces.params import ProjectionsParams, columns_of
from engine.subspaces.projectors import subspace

LINE = ".arrows >> nth=0"
SEEN = '.arrows .engine:has-text("The engine\'s foot")'


def rows(place) -> dict[str, list[float]]:
    """Return what the component reads off: name -> numbers."""
    read = place.locator("tr").evaluate_all("rows => rows.map(row => [row.cells[0].textContent, row.cells[1].textContent])")
    return {name: [float(x) for x in re.findall(r"-?\d+\.\d+", text)] for name, text in read}


def hold(v, handle, dx: float, dy: float) -> None:
    """Press the mouse on a handle and move it, without letting go."""
    box = handle.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    v.page.mouse.move(x, y)
    v.page.mouse.down()
    v.page.mouse.move(x + dx, y + dy, steps=4)
    v.page.wait_for_timeout(100)


def numbers_in_link(v, name: str) -> tuple[float, ...]:
    return tuple(float(x) for x in re.search(rf"[?&]{name}=([^&]*)", v.query())[1].split(","))


def test_dragging_v_is_followed_at_once_and_confirmed_on_release(visitor):
    v = visitor().open("/projections", see=SEEN)
    place, before = v.page.locator(LINE), v.query()
    hold(v, place.locator("[data-tip=v]"), -90, 40)
    moved = rows(place)
    assert v.query() == before
    assert "Let go" in place.locator(".engine").inner_text()
    expected = drag(ProjectionsParams(v=(*moved["v"], 0.0), a=ProjectionsParams().a))
    assert moved["v"][0] < 0.2
    assert moved["projection"] == pytest.approx(expected.projection, abs=0.012)
    assert moved["residual, length"][0] == pytest.approx(expected.residual_length, abs=0.012)
    v.page.mouse.up()
    v.settle()
    now = drag(ProjectionsParams(v=numbers_in_link(v, "v"), a=ProjectionsParams().a))
    assert rows(place)["projection"] == pytest.approx(now.projection, abs=0.0051)
    assert "The engine's foot" in place.locator(".engine").inner_text()
    read = v.page.locator(".numbers .value").all_inner_texts()[:3]
    assert read == [f"{now.projection_length:.2f}", f"{now.residual_length:.2f}", f"{100 * now.kept:.1f} %"]


def test_the_picture_is_a_right_triangle(visitor):
    v = visitor().open("/projections?v=1,2&a=2,-1", see=SEEN)
    place = v.page.locator(LINE)
    ends = place.locator(".residual").first.evaluate("line => line.getAttribute('points').split(' ').map(p => p.split(',').map(Number))")
    origin = place.locator(".shaft.v").evaluate("line => line.getAttribute('points').split(' ')[0].split(',').map(Number)")
    (foot, tip), origin = np.array(ends), np.array(origin)
    assert np.allclose(foot, origin, atol=0.2)  # (1, 2) is perpendicular to (2, -1)
    v = visitor().open("/projections?v=2,1&a=2,-1", see=SEEN)
    ends = v.page.locator(f"{LINE} >> .residual").first.evaluate("line => line.getAttribute('points').split(' ').map(p => p.split(',').map(Number))")
    (foot, tip) = np.array(ends)
    assert (tip - foot) @ (foot - origin) == pytest.approx(0, abs=10)
    assert math.dist(foot, tip) / math.dist(foot, origin) == pytest.approx(4 / 3, rel=0.02)


def test_arrow_keys_move_a_tip_and_report_once(visitor):
    v = visitor().open("/projections", see=SEEN)
    handle = v.page.locator(f"{LINE} >> [data-tip=a]")
    handle.focus()
    for key in ("ArrowUp", "ArrowUp", "ArrowLeft", "Shift+ArrowLeft"):
        v.page.keyboard.press(key)
    v.page.wait_for_timeout(600)
    v.settle()
    assert numbers_in_link(v, "a")[:2] == pytest.approx((2.29, 1.0))
    assert v.page.evaluate("document.activeElement.dataset.tip") == "a"


def test_a_finger_drags_too(visitor):
    """Upwards too, which is what the page would scroll by."""
    v = visitor(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True).open("/projections", see=SEEN)
    before, after = dragged_by_finger(v, f"{LINE} >> [data-tip=a]", -20, -60)
    assert (after["x"] - before["x"], after["y"] - before["y"]) == pytest.approx((-20, -60), abs=2)
    assert numbers_in_link(v, "a")[1] > 1.5


def test_a_finger_drags_a_point_of_a_fit(visitor):
    v = visitor(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True).open("/projections?tab=Least+squares", see=SEEN)
    v.page.wait_for_selector("[data-point='3']", timeout=60_000)
    v.page.locator("[data-point='3']").scroll_into_view_if_needed()
    v.settle()
    before, after = dragged_by_finger(v, "[data-point='3']", 0, 60)
    assert after["y"] - before["y"] == pytest.approx(60, abs=2)


def dragged_by_finger(v, handle, dx, dy):
    """Drag a handle by a finger, as slowly as a finger does; return its box before and after."""
    before = v.page.locator(handle).bounding_box()
    session = v.context.new_cdp_session(v.page)
    x, y = before["x"] + before["width"] / 2, before["y"] + before["height"] / 2
    for step in range(12):
        kind, part = ("touchStart", 0) if step == 0 else ("touchEnd", 1) if step == 11 else ("touchMove", step / 10)
        points = [] if kind == "touchEnd" else [{"x": x + part * dx, "y": y + part * dy}]
        session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
        v.page.wait_for_timeout(16)
    v.page.wait_for_timeout(600)
    v.settle()
    return before, v.page.locator(handle).bounding_box()


def test_zero_is_explained(visitor):
    v = visitor().open("/projections?a=0,0&v=1,2", see=SEEN)
    assert "zero vector" in v.page.get_by_test_id("stAlert").inner_text()
    assert rows(v.page.locator(LINE))["projection"] == [0, 0]


def test_space_turns_and_keeps_lengths(visitor):
    v = visitor().open("/projections?space=3-D", see=SEEN)
    place = v.page.locator(LINE)
    before = rows(place)
    box = place.locator(".scene").bounding_box()
    v.page.mouse.move(box["x"] + 30, box["y"] + 30)
    v.page.mouse.down()
    v.page.mouse.move(box["x"] + 130, box["y"] + 60, steps=4)
    v.page.mouse.up()
    v.settle()
    assert numbers_in_link(v, "angles") != (-50, 22)
    assert rows(place) == before


def test_a_plane_by_hand_agrees_with_the_engine_and_writes_the_matrix(visitor):
    v = visitor().open("/projections?tab=Subspace", see=".arrows >> nth=1 >> text=The engine's foot")
    place = v.page.locator(".arrows").nth(1)
    result = subspace(ProjectionsParams())
    read = rows(place)
    assert read["projection"] == pytest.approx(result.of("QR").foot, abs=0.0051)
    assert read["oblique, distance to v"][0] == pytest.approx(result.of("oblique").distance, abs=0.00051)
    place.scroll_into_view_if_needed()
    hold(v, place.locator("[data-tip=a2]"), 15, -50)
    v.page.mouse.up()
    v.settle()
    typed = v.page.get_by_role("textbox", name="Columns of A").input_value()
    result = subspace(ProjectionsParams(matrix=typed))
    assert typed != ProjectionsParams().matrix
    assert rows(place)["projection"] == pytest.approx(result.of("QR").foot, abs=0.0051)
    assert rows(place)["oblique, distance to v"][0] == pytest.approx(result.of("oblique").distance, abs=0.0021)


def test_points_by_hand_are_fitted_as_by_the_engine(visitor):
    v = visitor().open("/projections?tab=Least squares&degree=3", see='.fit_points .engine:has-text("fit is the same")')
    place = v.page.locator(".fit_points")
    place.scroll_into_view_if_needed()
    hold(v, place.locator("[data-point='2']"), 10, 60)
    v.page.mouse.up()
    v.page.wait_for_timeout(400)
    v.settle()
    result = fit(ProjectionsParams(points=numbers_in_link(v, "points"), degree=3))
    squares = [float(x) for x in re.findall(r"\d+\.\d+", place.locator(".sum").inner_text())]
    assert squares == pytest.approx([(result.fitted**2).sum(), (result.residual**2).sum(), (result.y**2).sum()], abs=0.00051)
    assert "The engine's fit is the same" in place.locator(".engine").inner_text()


def test_a_ragged_matrix_gets_a_sentence_and_the_page_goes_on(visitor):
    v = visitor().open("/projections?tab=Subspace", see=SEEN)
    field = v.page.get_by_role("textbox", name="Columns of A")
    field.fill("1 2\n3\n4 5")
    field.press("Control+Enter")
    v.settle()
    assert "is ragged: its rows hold 1 to 2 numbers" in v.page.get_by_test_id("stAlert").first.inner_text()
    field.fill("1 0\n0 1\n0 0")
    field.press("Control+Enter")
    v.settle()
    assert v.page.get_by_test_id("stAlert").count() == 0
    assert rows(v.page.locator(".arrows").nth(1))["projection"] == pytest.approx([1.6, 2.2, 0])


TABS = ["Drag", "Subspace", "A real head", "Orthogonalise", "Least squares", "Guess"]


@pytest.mark.parametrize("tab", TABS)
def test_no_tab_is_wider_than_a_phone(visitor, tab):
    v = visitor(viewport={"width": 390, "height": 844}, has_touch=True).open(f"/projections?tab={tab}", see=SEEN)
    v.page.wait_for_selector("text=Worth opening", timeout=60_000)
    v.settle()
    wide = v.page.evaluate(
        """() => [...document.querySelectorAll("[data-testid=stMainBlockContainer] *")]
            .filter(e => e.getBoundingClientRect().right > 391 && e.offsetParent)
            .filter(e => e.tagName !== "INPUT" && !e.closest(".katex-display, [role=tablist], svg"))
            .map(e => e.tagName + "." + e.className)"""
    )
    assert wide == []


def test_the_first_screen_needs_no_scrolling(visitor):
    v = visitor().open("/projections", see=SEEN)
    box = v.page.locator(".numbers > div").nth(2).bounding_box()
    assert box["y"] + box["height"] <= 720


def test_only_the_column_that_is_dragged_changes(visitor):
    v = visitor().open("/projections?tab=Subspace&matrix=1000000,1;1,1.00012345;1,1", see=".arrows >> nth=1 >> text=The engine's foot")
    place = v.page.locator(".arrows").nth(1)
    read = place.locator("tr").filter(has=v.page.locator("th", has_text="a1")).inner_text()
    assert "1.0e+6, 1.00, 1.00), drawn shorter" in read
    assert place.locator("tr").filter(has=v.page.locator("th", has_text="a2")).inner_text().count("drawn") == 0
    place.scroll_into_view_if_needed()
    hold(v, place.locator("[data-tip=v]"), 12, -20)
    v.page.mouse.up()
    v.settle()
    assert "matrix=1000000,1;1,1.00012345;1,1" in v.query()
    hold(v, place.locator("[data-tip=a2]"), 15, -30)
    v.page.mouse.up()
    v.settle()
    A = columns_of(v.page.get_by_role("textbox", name="Columns of A").input_value())
    assert A[:, 0].tolist() == [1e6, 1, 1]
    assert A[:, 1].tolist() != [1, 1.00012345, 1]
    assert np.abs(A[:, 1]).max() <= 3


def test_what_is_undefined_is_a_dash_and_no_curve(visitor):
    v = visitor().open("/projections?a=0,0&v=0,0", see=SEEN)
    place = v.page.locator(LINE)
    assert place.locator(".valley").count() == 0
    assert "kept —, v has no energy, chance 0.0 %" in place.locator(".share").inner_text()
    assert v.page.locator(".numbers .value").all_inner_texts()[2] == "—"
    assert "0 / 0: there is no line" in v.page.get_by_test_id("stMain").inner_text()


@pytest.mark.parametrize("query", ["space=3-D&v=2.37,3,2.18", "space=3-D&v=3,3,3&a=-3,3,3&angles=45,-80", "v=0,3&a=3,3", "v=-3,-3&a=3,-3"])
@pytest.mark.parametrize("width", [390, 1280])
def test_tips_names_and_the_valley_stay_in_the_picture(visitor, query, width):
    v = visitor(viewport={"width": width, "height": 844}).open(f"/projections?{query}", see=SEEN)
    assert outside(v.page.locator(f"{LINE} >> .scene"), "text, circle.handle") == []
    assert outside(v.page.locator(f"{LINE} >> .curve"), "text, circle, .valley") == []
    heights = v.page.locator(f"{LINE} >> .valley").evaluate("line => line.getAttribute('points').split(' ').map(p => +p.split(',')[1])")
    assert len(set(heights[:3])) == len(set(heights[-3:])) == 3  # no plateau


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("query", ["", "&slant=80", "&v=2,1,2&matrix=2,1.9;0.4,0.5;0.3,0.3"])
def test_names_of_a_plane_keep_clear_of_each_other(visitor, query, width):
    v = visitor(viewport={"width": width, "height": 844}).open(f"/projections?tab=Subspace{query}", see=".arrows >> nth=1 >> text=The engine's foot")
    scene = v.page.locator(".arrows").nth(1).locator(".scene")
    assert outside(scene, "text, circle.handle, .head") == []
    boxes = scene.locator("text").evaluate_all(
        "all => all.map(e => { const b = e.getBBox(); return [b.x, b.y + 3, b.x + b.width, b.y + b.height - 3]; })"
    )
    hits = [(a, b) for i, a in enumerate(boxes) for b in boxes[:i] if a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]]
    assert hits == []


def outside(svg, kinds: str) -> list:
    """Return what of a picture is not wholly inside it."""
    return svg.evaluate(
        """(svg, kinds) => { const { width, height } = svg.viewBox.baseVal; return [...svg.querySelectorAll(kinds)]
            .map(e => [e.textContent || e.getAttribute("class"), e.getBBox()])
            .filter(([, b]) => b.x < 0 || b.y < 0 || b.x + b.width > width || b.y + b.height > height).map(([name]) => name); }""",
        kinds,
    )
