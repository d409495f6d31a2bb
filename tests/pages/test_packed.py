"""Scripts are sent packed to those who take it, from a fixed list of addresses."""

import gzip

import pytest

from pages.shared.packed import Packed, addresses
from tests.conftest import finished


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
