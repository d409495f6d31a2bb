"""A vector dragged by hand: pictures a second, what travels while it moves and when it is let go, and how soon the engine confirms."""

import shutil
import statistics
import time
from collections.abc import Iterator

from playwright.sync_api import Page, sync_playwright

from tests.browser.conftest import ARGUMENTS, serve
from tests.conftest import ROOT

SEEN = '.arrows .engine:has-text("The engine\'s foot")'
SECONDS = 3.0
DRAGS = 8
WATCH = """() => {
    window.drawn = 0; window.frames_ = 0; window.longest = 0; let last = performance.now();
    new MutationObserver(() => { window.drawn += 1; }).observe(document.querySelector('.arrows .scene'), { childList: true });
    const count = (now) => { window.frames_ += 1; window.longest = Math.max(window.longest, now - last); last = now; requestAnimationFrame(count); };
    requestAnimationFrame(count);
}"""


def lines() -> Iterator[str]:
    """Yield the lines of this benchmark."""
    with sync_playwright() as playwright, serve("streamlit_app.py", ROOT) as (address, _):
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=ARGUMENTS)
        for space in ("2-D", "3-D"):
            page = browser.new_page(viewport={"width": 1280, "height": 720})
            sent, received = traffic(page)
            page.goto(f"{address}/projections?space={space}")
            page.wait_for_selector(SEEN, timeout=60_000)
            page.wait_for_timeout(1500)
            yield f"projections, {space}: " + "; ".join((smoothness(page, sent, received), released(page, sent, received)))
            page.close()
        browser.close()


def traffic(page: Page) -> tuple[list[int], list[int]]:
    """Return two lists that fill with the sizes of the WebSocket's messages."""
    sent, received = [], []
    page.on(
        "websocket",
        lambda socket: (socket.on("framesent", lambda x: sent.append(len(x))), socket.on("framereceived", lambda x: received.append(len(x)))),
    )
    return sent, received


def smoothness(page: Page, sent: list[int], received: list[int]) -> str:
    """Drag for a few seconds without letting go: pictures a second beside the browser's own frames, and bytes on the way."""
    x, y = grip(page)
    page.evaluate(WATCH)
    before, started, k = sum(sent) + sum(received), time.perf_counter(), 0
    while time.perf_counter() - started < SECONDS:
        page.mouse.move(x - k % 80, y + k % 50)
        k += 1
    seconds = time.perf_counter() - started
    drawn, frames, longest = page.evaluate("[window.drawn, window.frames_, window.longest]")
    moved = sum(sent) + sum(received) - before
    page.mouse.up()
    page.wait_for_timeout(1000)
    rates = (drawn / seconds, k / seconds, frames / seconds, longest)
    return "{:.0f} pictures for {:.0f} moves a second, {:.0f} frames a second, longest {:.0f} ms, ".format(*rates) + f"{moved} bytes while moving"


def released(page: Page, sent: list[int], received: list[int]) -> str:
    """Drag and let go, several times: bytes each way, and time until the engine's foot is there."""
    up, down, waits = [], [], []
    for k in range(DRAGS):
        x, y = grip(page)
        page.mouse.move(x + (20 if k % 2 else -20), y + (15 if k % 2 else -15), steps=3)
        before = len(sent), len(received)
        started = time.perf_counter()
        page.mouse.up()
        page.wait_for_selector(SEEN, timeout=20_000)
        waits.append(1000 * (time.perf_counter() - started))
        page.wait_for_timeout(500)
        up.append(sum(sent[before[0] :]))
        down.append(sum(received[before[1] :]))
    medians = (statistics.median(values) for values in (up, down, waits))
    return "a drag sends {:.0f} and receives {:.0f} bytes, confirmed after {:.0f} ms".format(*medians)


def grip(page: Page) -> tuple[float, float]:
    """Press the mouse on the tip of v and return where it is."""
    box = page.locator(".arrows [data-tip=v]").bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + 1, y)
    return x, y


if __name__ == "__main__":
    for line in lines():
        print(line, flush=True)
