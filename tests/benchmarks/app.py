"""The app beside a bare Streamlit app under the same settings, in one run: first page, slider to picture, idle memory."""

import shutil
import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

from tests.browser.conftest import ARGUMENTS, serve
from tests.conftest import ROOT

BARE = Path(__file__).parent / "bare"
COLD_STARTS = 3
MOVES = 40


def lines() -> Iterator[str]:
    """Yield the lines of this benchmark."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=ARGUMENTS)
        yield first_page(browser)
        yield from slider_to_picture(browser)
        browser.close()
    yield idle_memory()


def first_page(browser: Browser) -> str:
    """From the start of a process to its first page in the browser, in turns."""
    ours, bare = [], []
    for _ in range(COLD_STARTS):
        ours.append(cold(browser, "streamlit_app.py", "text=Start here"))
        bare.append(cold(browser, str(BARE / "empty.py"), "h1"))
    return ratio("first page, cold process (limit 1.3)", ours, bare)


def cold(browser: Browser, script: str, see: str) -> float:
    """Return seconds from starting a server to seeing something of its first page."""
    started = time.perf_counter()
    with serve(script, ROOT) as (address, _):
        page = browser.new_page()
        page.goto(address)
        page.wait_for_selector(see)
        seconds = time.perf_counter() - started
        page.close()
    return seconds


def slider_to_picture(browser: Browser) -> Iterator[str]:
    """From the press of an arrow key on a slider, and from a click on the map, to the changed picture, warm, in turns."""
    with ExitStack() as stack:
        ours = open_page(stack, browser, "streamlit_app.py", "/spectra?layer=0", ".figure .plot-container")
        bare = open_page(stack, browser, str(BARE / "slider.py"), "/", ".stPlotlyChart .plot-container")
        drawn = "[...document.querySelectorAll('.figure')].map(f => f.dataset.drawn).join()"
        title = "document.querySelector('.gtitle')?.textContent"
        for page, seen in ((ours, drawn), (bare, title)):
            move(page, seen, 0)
        times = [(move(ours, drawn, k % 2), click(ours, k % 2), move(bare, title, k % 2)) for k in range(1, MOVES)]
    slider, clicks, bare = zip(*times, strict=True)
    yield ratio("slider to picture, warm (limit 2)", slider, bare)
    yield ratio("click on the map to the head's spectrum, warm, beside the bare slider", clicks, bare)


def open_page(stack: ExitStack, browser: Browser, script: str, path: str, see: str) -> Page:
    """Start a server, open a page on it, and return the page when its picture is there."""
    address, _ = stack.enter_context(serve(script, ROOT))
    page = browser.new_page(viewport={"width": 1280, "height": 720})
    page.goto(address + path)
    page.wait_for_selector(see, timeout=60_000)
    page.wait_for_timeout(2000)
    return page


def move(page: Page, seen: str, way: int) -> float:
    """Press an arrow key on the first slider and return seconds until ``seen`` has another value."""
    before = page.evaluate(seen)
    page.get_by_role("slider").first.focus()
    started = time.perf_counter()
    page.keyboard.press("ArrowLeft" if way == 1 else "ArrowRight")
    page.wait_for_function(f"before => ({seen}) !== before", arg=before, polling=5, timeout=20_000)
    seconds = time.perf_counter() - started
    page.wait_for_timeout(300)
    return seconds


def click(page: Page, way: int) -> float:
    """Click one of two cells of the map and return seconds until the spectrum's node has been drawn anew."""
    seen = "document.querySelectorAll('.figure')[1].dataset.drawn"
    box, before = page.locator(".figure .nsewdrag").first.bounding_box(), page.evaluate(seen)
    started = time.perf_counter()
    page.mouse.click(box["x"] + box["width"] * (0.3 if way else 0.7), box["y"] + box["height"] * 0.4)
    page.wait_for_function(f"before => ({seen}) !== before", arg=before, polling=5, timeout=20_000)
    seconds = time.perf_counter() - started
    page.wait_for_timeout(300)
    return seconds


def idle_memory() -> str:
    """Resident memory of a server that has started and served its first page to nobody, beside a bare one."""
    ours, bare = (resident(script) for script in ("streamlit_app.py", str(BARE / "empty.py")))
    return f"idle memory: {ours:.0f} MiB, bare {bare:.0f} MiB, ratio {ours / bare:.2f}"


def resident(script: str) -> float:
    """Return the resident memory of a fresh server in MiB."""
    with serve(script, ROOT) as (_, process):
        time.sleep(2)
        status = Path(f"/proc/{process.pid}/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0]) / 1024


def ratio(name: str, ours, bare) -> str:
    """Return a line with both medians and their ratio."""
    a, b = statistics.median(ours), statistics.median(bare)
    return f"{name}: {1000 * a:.0f} ms, bare {1000 * b:.0f} ms, ratio {a / b:.2f}"
