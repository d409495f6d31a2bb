"""Scripts are sent packed to those who take it, from a fixed list of addresses."""

import gzip
import io
import re

import pytest
from fontTools.ttLib import TTFont

from pages.shared import icons
from pages.shared.packed import Packed, addresses
from tests.conftest import ROOT, finished


async def passed_on(scope, receive, send):
    await send({"type": "http.response.start", "status": 404, "headers": []})
    await send({"type": "http.response.body", "body": b"not here"})


def ask(path, accepted="gzip, br", method="GET"):
    """Return status, headers and body of the answer to one request."""
    said = []

    async def send(message):
        said.append(message)

    scope = {"type": "http", "method": method, "path": path, "headers": [(b"accept-encoding", accepted.encode())]}
    finished(Packed(passed_on)(scope, None, send))
    start, *rest = said
    return start["status"], dict(start["headers"]), b"".join(part["body"] for part in rest)


@pytest.fixture(scope="module")
def script():
    """The largest of Streamlit's scripts that are asked for by every page, and its address."""
    return max(((a, p) for a, p in addresses().items() if "/index." in a and p.suffix == ".js"), key=lambda pair: pair[1].stat().st_size)


def test_a_script_comes_packed(script):
    status, headers, body = ask(script[0])
    assert status == 200
    assert headers[b"content-encoding"] == b"gzip"
    assert headers[b"content-type"].startswith(b"text/javascript")
    assert b"immutable" in headers[b"cache-control"]
    assert gzip.decompress(body) == script[1].read_bytes()
    assert len(body) < 0.4 * script[1].stat().st_size


def test_everything_else_is_passed_on(script):
    assert ask(script[0], accepted="identity")[0] == 404
    assert ask(script[0], method="POST")[0] == 404
    for path in ("/", "/static/js/../../index.html", "/static/js/", "/static/js/none.js", "/app/static/.gitkeep", "/etc/passwd", script[0] + "/"):
        assert ask(path)[2] == b"not here"


def test_what_is_not_a_request_is_passed_on():
    said = []

    async def send(message):
        said.append(message)

    finished(Packed(passed_on)({"type": "lifespan"}, None, send))
    assert said[-1]["body"] == b"not here"


def ligatures(font):
    """Return name -> outline of every icon of a font, the outline as its coordinates."""
    letters = {glyph: chr(code) for code, glyph in font.getBestCmap().items()}
    found = {}
    for lookup in font["GSUB"].table.LookupList.Lookup:
        for table in lookup.SubTable:
            for first, made in getattr(table, "ExtSubTable", table).ligatures.items():
                for one in made:
                    name = "".join(letters.get(part, "?") for part in (first, *one.Component))
                    found[name] = list(font["glyf"][one.LigGlyph].getCoordinates(font["glyf"])[0])
    return found


@pytest.fixture(scope="module")
def drawn():
    """The icons of Streamlit's font, and of the one that is sent."""
    address = next(address for address, path in addresses().items() if path == icons.font())
    status, headers, body = ask(address, accepted="identity")
    assert (status, headers[b"content-type"]) == (200, b"font/woff2")
    assert b"content-encoding" not in headers
    assert len(body) < 0.2 * icons.font().stat().st_size
    return ligatures(TTFont(icons.font())), ligatures(TTFont(io.BytesIO(body)))


def test_the_icons_that_are_sent_are_streamlits(drawn):
    whole, sent = drawn
    assert len(whole) > 4000 > 1000 > len(sent)
    assert all(sent[name] == whole[name] for name in sent)


def test_every_icon_that_a_page_can_show_is_sent(drawn):
    whole, sent = drawn
    scripts = "".join(path.read_text() for path in addresses().values() if path.suffix == ".js")
    ours = "".join(path.read_text() for path in (ROOT / "streamlit_app.py", *(ROOT / "pages").rglob("*.py")))
    asked = set(re.findall(r":material/(\w+):", scripts + ours)) & set(whole)
    assert len(asked) > 50
    assert asked <= set(sent)
