"""A real server and a real Chromium. Without a browser these tests skip with the reason; in CI that is a failure."""

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager

import pytest

from tests.conftest import ROOT

ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
HARMLESS = ("_stcore/health", "_stcore/host-config")  # Streamlit looks for its base path one level down first


def free_port() -> int:
    """Return a port of the loopback interface that nobody listens on."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


@contextmanager
def serve(script="streamlit_app.py", cwd=ROOT):
    """Run a Streamlit server in a process of its own and yield its address once it is healthy."""
    port = free_port()
    command = [sys.executable, "-m", "streamlit", "run", script, "--server.port", str(port), "--server.address", "127.0.0.1"]
    process = subprocess.Popen([*command, "--server.headless", "true"], cwd=cwd, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{port}"
    try:
        end = time.monotonic() + 60
        while not healthy(address):
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"The server of {script} did not start.")
            time.sleep(0.05)
        yield address, process
    finally:
        process.terminate()
        process.wait(10)


def healthy(address: str) -> bool:
    """Return whether the server answers."""
    try:
        with urllib.request.urlopen(f"{address}/_stcore/health", timeout=2) as answer:
            return answer.status == 200
    except OSError:
        return False


@pytest.fixture(scope="session")
def server():
    """The address of one warm server for all tests."""
    with serve() as (address, _):
        yield address


@pytest.fixture(scope="session")
def chromium():
    """A headless Chromium."""
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("no Chromium on this machine; install it to run the browser tests")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield browser
        browser.close()


class Visitor:
    """One person with one tab: opens pages, waits until they stand still, and remembers what went wrong."""

    def __init__(self, browser, address: str, **options):
        options = {"viewport": {"width": 1280, "height": 720}, **options}
        self.context, self.address, self.trouble = browser.new_context(**options), address, []
        self.page = self.context.new_page()
        self.page.on("pageerror", lambda error: self.trouble.append(str(error)))
        self.page.on("console", self._console)

    def _console(self, message) -> None:
        if message.type == "error" and not any(part in message.location.get("url", "") for part in HARMLESS):
            self.trouble.append(f"{message.text} {message.location}")

    def open(self, path: str, see: str = ".figure .plot-container") -> "Visitor":
        """Open a page and wait for something on it to be there."""
        self.page.goto(self.address + path)
        self.page.wait_for_selector(see, timeout=60_000)
        return self.settle()

    def settle(self) -> "Visitor":
        """Wait until the script has run and its figures are drawn."""
        self.page.wait_for_timeout(250)
        self.page.wait_for_selector("[data-test-script-state=notRunning]", state="attached", timeout=60_000)
        self.page.wait_for_timeout(350)
        return self

    def figure(self, label: str):
        """Return the figure whose label begins so."""
        return self.page.locator(f".figure[aria-label^='{label}']")

    def query(self) -> str:
        """Return the query string of the address bar."""
        return self.page.evaluate("decodeURIComponent(location.search)")


@pytest.fixture
def visitor(chromium, server):
    """Return a function that makes visitors; all must have met no error in the console."""
    made = []

    def make(address: str = server, **options) -> Visitor:
        made.append(Visitor(chromium, address, **options))
        return made[-1]

    yield make
    trouble = [line for v in made for line in v.trouble]
    for v in made:
        v.context.close()
    assert trouble == []


def pytest_collection_modifyitems(items):
    """Mark everything in this folder."""
    for item in items:
        if "/browser/" in str(item.path):
            item.add_marker(pytest.mark.browser)
