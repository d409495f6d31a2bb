"""What visitors of a hosted page may ask for, what its operator may set, and what is said when something goes wrong."""

import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from types import SimpleNamespace

import pytest
from streamlit.testing.v1 import AppTest

from engine.errors import InputError
from engine.settings import HOSTED, NUMBERS
from pages.shared import compute, hosting
from tests.browser.conftest import free_port
from tests.conftest import ROOT, finished


def served(port, **settings):
    command = [sys.executable, "-m", "streamlit", "run", "serve.py", "--server.port", str(port), "--server.address", "127.0.0.1"]
    environment = {**os.environ, **settings}
    return subprocess.Popen(
        [*command, "--server.headless", "true"], cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def status(url):
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return None


def test_a_bad_setting_stops_the_start_with_a_sentence():
    process = served(free_port(), BARE_WEIGHTS_QUEUE="endless")
    said, _ = process.communicate(timeout=60)
    assert process.returncode != 0
    assert "BARE_WEIGHTS_QUEUE is 'endless'; accepted are whole numbers from 1 to 10000" in said
    assert "Traceback" not in said


@pytest.fixture(scope="module")
def served_once():
    """Port of a server that has become ready, and was not before."""
    port = free_port()
    process = served(port)
    try:
        seen, end = set(), time.monotonic() + 120
        while 200 not in seen and time.monotonic() < end:
            seen.add(status(f"http://127.0.0.1:{port}/readyz"))
            time.sleep(0.1)
        assert {503, 200} <= seen
        yield port
    finally:
        process.terminate()
        process.wait(20)


def test_ready_only_once_warm(served_once):
    assert status(f"http://127.0.0.1:{served_once}/readyz") == 200
    assert status(f"http://127.0.0.1:{served_once}/_stcore/health") == 200


def test_no_file_is_taken(served_once):
    address = f"http://127.0.0.1:{served_once}/_stcore/upload_file/session/file"
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(urllib.request.Request(address, b"x" * 1000, method="PUT"), timeout=5)
    assert refused.value.code == 403
    assert refused.value.read() == b"This lab takes no files."  # Streamlit has refusals of its own, for other reasons


def test_a_browser_is_one_visitor_in_all_its_tabs(served_once, monkeypatch):
    cookie, seen = "", []
    for _ in range(3):
        request = urllib.request.Request(f"http://127.0.0.1:{served_once}/_stcore/health", headers={"Cookie": cookie} if cookie else {})
        with urllib.request.urlopen(request, timeout=5) as answer:
            cookie = answer.headers["Set-Cookie"].split(";")[0]
        monkeypatch.setattr(compute.st, "context", SimpleNamespace(cookies=dict([cookie.split("=", 1)])))
        seen.append((cookie, compute._visitor()))
    assert len({text for text, _ in seen}) == 3
    assert len({visitor for _, visitor in seen}) == 1
    assert seen[0][1]


def test_who_cannot_warm_up_says_so_and_ends(monkeypatch, caplog):
    ended = []
    monkeypatch.setattr(hosting, "warm", lambda: 1 / 0)
    monkeypatch.setattr(hosting.os, "_exit", ended.append)
    finished(hosting._warm(SimpleNamespace(state={})))
    assert ended == [1]
    assert "ZeroDivisionError" in caplog.text


def codes_of(function, times):
    found = []
    for _ in range(times):
        try:
            function()
        except ValueError as error:
            found.append(hosting.code_of(error))
    return found


def test_a_code_is_the_same_for_the_same_error_and_holds_nothing_of_its_text():
    def one():
        raise ValueError("something private")

    def other():
        raise ValueError("something private")

    first, second = codes_of(one, 2)
    assert first == second
    assert len(first) == 6
    assert codes_of(other, 1) != [first]


def explained(error):
    """A script that meets an error that is explained."""

    def script(error):
        from pages.shared import hosting

        assert hosting.explain(error) is True

    return AppTest.from_function(script, kwargs={"error": error}).run()


def test_visitors_get_a_code_and_the_log_the_rest(caplog):
    page = explained(ValueError("C:/secret/path"))
    (said,) = [e.value for e in page.error]
    assert "secret" not in said
    code = said.rstrip(".").rpartition(" ")[2]
    assert code in caplog.text
    assert "C:/secret/path" in caplog.text


def test_a_sentence_for_visitors_is_shown_as_it_is():
    page = explained(InputError("The prompt is *empty*."))
    assert [e.value.replace("\\", "") for e in page.error] == ["The prompt is *empty*."]


@pytest.mark.parametrize(
    ("lab", "link", "said"),
    [
        ("spectra", {"prompt": "word " * 60}, "the limit of 100 characters"),
        ("rope", {"reach": "8"}, "1 to 2"),
        ("norms", {"seeds": "16"}, "1, 2"),
        ("spectra", {"model": "/etc"}, "is not offered here"),
    ],
)
def test_a_link_beyond_a_limit_says_the_limit_and_uses_the_nearest(monkeypatch, lab, link, said):
    monkeypatch.setenv(HOSTED, "1")
    monkeypatch.setenv(NUMBERS["prompt"].variable, "100")
    monkeypatch.setenv(NUMBERS["sweep"].variable, "2")
    app = AppTest.from_file(str(ROOT / "streamlit_app.py"), default_timeout=120).run()
    app.switch_page(f"pages/{lab}.py")
    for name, value in link.items():
        app.query_params[name] = value
    app.run()
    assert not app.exception
    assert any(said in warning.value.replace("\\", "") for warning in app.warning)
