"""Two replicas behind haproxy, as ``deploy/local.py`` starts them: what the proxy adds, and a replica that dies under a visitor."""

import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import NamedTuple

import pytest
import streamlit

from tests.benchmarks.load import ready
from tests.browser.conftest import Visitor, free_port
from tests.conftest import ROOT

PATIENCE = 90.0
SAID = "[data-testid=stAlert], [data-testid=stToast], [role=dialog]"


class Site(NamedTuple):
    """The proxy's address and process, and the ports of its replicas."""

    address: str
    pid: int
    replicas: tuple[int, ...]

    def replica(self, port: int) -> int:
        """Return the process id of the replica on a port."""
        for child in Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split():
            if str(port) in Path(f"/proc/{child}/cmdline").read_text().split("\0"):
                return int(child)
        raise LookupError(f"no replica on port {port}")


@pytest.fixture(scope="module")
def site():
    """Two replicas, both warm, behind the proxy."""
    if shutil.which("haproxy") is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("no haproxy on this machine; install it to run the tests of the proxy")
    port = free_port()
    process = subprocess.Popen(
        [sys.executable, "deploy/local.py", "--replicas", "2", "--port", str(port)], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    found = Site(f"http://127.0.0.1:{port}", process.pid, (port + 1, port + 2))
    try:
        until(lambda: all(ready(f"http://127.0.0.1:{one}") for one in found.replicas) and ask(found.address)[0] == 200)
        yield found
    finally:
        process.terminate()
        process.wait(30)


def until(true, patience: float = PATIENCE) -> float:
    """Wait until a question is answered with yes; return the seconds that took."""
    started = time.monotonic()
    while not true():
        assert time.monotonic() - started < patience, "It has not come true."
        time.sleep(0.2)
    return time.monotonic() - started


def ask(address: str, **headers) -> tuple[int, dict, bytes]:
    """Return status, headers and body of an answer; an error's too, and 0 where there is none."""
    try:
        with urllib.request.urlopen(urllib.request.Request(address, headers=headers), timeout=5) as answer:
            return answer.status, answer.headers, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, b""
    except OSError:
        return 0, {}, b""


def test_what_is_for_the_operator_is_not_public(site):
    for path in ("/readyz", "/_stcore/metrics", "/_stcore/script-health-check", "/%72eadyz", "/_stcore/%6detrics", "/%5Fstcore/metrics"):
        assert ask(site.address + path)[0] == 403


def test_every_answer_has_the_headers(site):
    headers = ask(site.address)[1]
    assert "frame-ancestors 'self'" in headers["Content-Security-Policy"]
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "no-referrer"


def test_scripts_travel_compressed_and_are_kept(site):
    page = ask(site.address)[2].decode()
    script = page[page.index("static/js/") :].split('"')[0]
    plain = ask(f"http://127.0.0.1:{site.replicas[0]}/{script}")
    packed = ask(f"{site.address}/{script}", **{"Accept-Encoding": "gzip"})
    assert packed[1]["Content-Encoding"] == "gzip"
    assert "immutable" in packed[1]["Cache-Control"]
    assert len(packed[2]) < len(plain[2]) / 2


def test_what_is_no_script_is_not_kept_for_one(site):
    _, headers, body = ask(f"{site.address}/static/js/of-another-version.js")
    assert b"<html" in body or not body
    assert "immutable" not in headers.get("Cache-Control", "")


def test_the_first_page_is_a_third_of_what_streamlit_sends(site, chromium):
    visitor = Visitor(chromium, site.address)
    try:
        visitor.open("/", see="h1")
        visitor.page.wait_for_function("document.fonts.status == 'loaded'")
        came = visitor.page.evaluate("performance.getEntriesByType('resource').map(one => [new URL(one.name).pathname, one.encodedBodySize])")
    finally:
        visitor.context.close()
    files = Path(streamlit.__file__).parent / "static"
    came = {path: size for path, size in came if (files / path[1:]).is_file()}
    assert any("MaterialSymbols" in path for path in came)
    assert 3 * sum(came.values()) <= sum((files / path[1:]).stat().st_size for path in came)


def test_a_classroom_behind_one_address_is_spread(site):
    given = lambda: ask(site.address)[1]["Set-Cookie"].split(";")[0]  # noqa: E731
    until(lambda: len({given() for _ in range(4)}) == 2)  # the proxy asks each replica twice before it trusts it
    cookies = [given() for _ in range(20)]
    assert min(cookies.count(one) for one in set(cookies)) >= 5
    stays = {ask(site.address, Cookie=cookies[0])[1].get("Set-Cookie") for _ in range(10)}
    assert stays == {None}


def test_who_loses_a_replica_finds_the_page_again(site, chromium):
    visitor = Visitor(chromium, site.address)
    said = []
    try:
        visitor.open("/spectra?layer=2&head=5")
        visitor.page.get_by_role("slider").nth(1).press("ArrowRight")
        visitor.settle()
        assert {"layer=2", "head=6"} <= set(visitor.query().lstrip("?").split("&"))
        before = cookie(visitor)
        os.kill(site.replica(serving(site)), signal.SIGKILL)
        until(lambda: said.extend(visitor.page.locator(SAID).all_inner_texts()) or cookie(visitor) != before, 30)
        visitor.settle()
        visitor.page.get_by_role("slider").nth(1).press("ArrowRight")
        visitor.settle()
        assert {"layer=2", "head=7"} <= set(visitor.query().lstrip("?").split("&"))
        assert visitor.figure("Singular values of layer 2, head 7").count() == 1
        assert len(set(said)) <= 1
    finally:
        visitor.context.close()


def serving(site: Site) -> int:
    """Return the port of the one replica that has a visitor."""
    (port,) = (one for one in site.replicas if re.search(rb"^active_sessions 1", ask(f"http://127.0.0.1:{one}/_stcore/metrics")[2], re.M))
    return port


def cookie(visitor: Visitor) -> str:
    """Return the cookie that says where the visitor's session is."""
    return next(one["value"] for one in visitor.context.cookies() if one["name"] == "lab_replica")
