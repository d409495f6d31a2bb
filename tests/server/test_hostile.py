"""The running app under hostile links and frames: no traceback, no process death, nothing that another visitor sees is changed."""

import asyncio
import re
import time

import pytest
from hypothesis import HealthCheck, given, settings
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from pages.shared.navigation import LABS
from tests.benchmarks._visitor import Visitor
from tests.benchmarks.load import hosted, ready
from tests.conftest import finished
from tests.hostile import links
from tests.pages.test_pages import panel_of

LINKS = 200
MARKUP = re.compile(r"(?<!\\)<(img|script)\b")


class Reader(Visitor):
    """A visitor who remembers what the page says, in its own order."""

    def __init__(self, port, page, pairs=()):
        super().__init__(port, page)
        self.query, self.words, self.raw, self.grows = list(pairs), [], [], False

    def _see(self, delta):
        super()._see(delta)
        element = delta.new_element
        kind = element.WhichOneof("type")
        self.grows |= kind == "progress"
        if kind in ("markdown", "heading", "alert", "html"):
            self.words.append((kind, str(getattr(element, kind))))
        if kind == "html" or (kind == "markdown" and element.markdown.allow_html):
            self.raw.append(str(getattr(element, kind)))


@pytest.fixture(scope="module")
def room():
    """Port of the lab as it is hosted."""
    with hosted() as (port, _):
        yield port


async def read(port, lab, pairs=()) -> Reader:
    """Open a page with a link and return the visitor, gone again."""
    visitor = Reader(port, lab, pairs)
    await visitor.arrive()
    await visitor.leave()
    return visitor


def words(port, lab) -> list[tuple[str, str]]:
    """Return what a page says once nothing on it grows any more."""
    visitor, end = finished(read(port, lab)), time.monotonic() + 120
    while visitor.grows and time.monotonic() < end:
        time.sleep(1)
        visitor = finished(read(port, lab))
    assert visitor.words
    assert not visitor.grows
    return visitor.words


@pytest.mark.parametrize("lab", LABS)
def test_hostile_links_change_nothing_for_others(room, lab):
    port = room
    before = words(port, lab)
    tried = [0]

    @settings(max_examples=LINKS, deadline=None, suppress_health_check=list(HealthCheck))
    @given(links(panel_of(lab).controls))
    def opened(pairs):
        tried[0] += 1
        visitor = finished(read(port, lab, pairs))
        assert not visitor.broken, visitor.broken
        assert not [said for said in visitor.trouble if "Traceback" in said or re.search(r"code [0-9a-f]{6}\b", said)], visitor.trouble
        assert not [raw for raw in visitor.raw if MARKUP.search(raw)]

    opened()
    assert tried[0] >= LINKS
    assert ready(f"http://127.0.0.1:{port}")
    assert words(port, lab) == before


FRAMES = {
    "empty": b"",
    "noise": bytes(range(256)) * 40,
    "text": "rerun, please",
    "half a message": b"\x5a\xff\xff\xff\xff\x0f",
    "a deep message": b"\x0a\x80\x01" * 5000,
    "many": [b"\x00"] * 500,
    "huge": b"\x00" * (60 * 2**20),
}


@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)
def test_malformed_frames_end_at_most_their_own_connection(room, frame):
    port = room
    before = words(port, "norms")

    async def send():
        address = f"ws://127.0.0.1:{port}/_stcore/stream"
        async with connect(address, subprotocols=["streamlit"], max_size=None, compression=None, proxy=None) as socket:
            try:
                for one in frame if isinstance(frame, list) else [frame]:
                    await socket.send(one)
                async with asyncio.timeout(1):
                    while True:
                        await socket.recv()
            except (ConnectionClosed, TimeoutError):
                pass

    finished(send())
    assert ready(f"http://127.0.0.1:{port}")
    assert words(port, "norms") == before
