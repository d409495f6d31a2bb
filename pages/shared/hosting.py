"""What a process that others reach needs: its settings settled at start, warmth before it is ready, codes for its errors."""

import asyncio
import functools
import gc
import hashlib
import importlib
import logging
import os
import signal
import threading
import traceback
from collections.abc import Callable
from contextlib import asynccontextmanager

import streamlit as st
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send
from streamlit import config

from engine.errors import LabError
from engine.settings import ALLOWED, HOSTED, NUMBERS, Settings, settings
from pages.shared import packed, static
from pages.shared.navigation import LABS

LOOPBACK = ("localhost", "127.0.0.1", "::1")
DRAIN_SECONDS = 5.0
UPLOADS = "/_stcore/upload_file/"
log = logging.getLogger("bare_weights")


def settle() -> Settings:
    """Return the settings: environment first, then Streamlit secrets; a server that others reach is hosted unless told otherwise.

    Raises InputError, in one sentence, for a value that is not acceptable.
    """
    if st.secrets.load_if_toml_exists():
        for name in (HOSTED, ALLOWED, *(one.variable for one in NUMBERS.values())):
            if name in st.secrets:
                os.environ.setdefault(name, str(st.secrets[name]))
    if st.get_option("server.address") not in LOOPBACK:
        os.environ.setdefault(HOSTED, "1")
    return settings()


def warm() -> None:
    """Import what pages import, open Fable, compute and draw the first picture, then spare all of it from garbage collection."""
    from engine.models.loading import open_model, open_tokenizer

    config.get_options_for_section = functools.cache(config.get_options_for_section)  # the theme, asked for six times in every run of a page
    static.prepare()
    packed.prepare()
    for lab in LABS:
        for module in (f"engine.{lab}", f"engine.figures.{lab}"):
            importlib.import_module(module)
    open_model("fable")
    open_tokenizer("fable")
    _first_picture()
    gc.collect()
    gc.freeze()


def _first_picture() -> None:
    from engine.spectra import SpectraParams, chance, head_spectra
    from pages.shared.compute import outside
    from pages.shared.remembered import Pictures

    params = SpectraParams()
    Pictures("spectra").spectrum(outside(head_spectra, params), outside(chance, params), params.circuit, params.layer, params.head)


@asynccontextmanager
async def lifespan(app):
    """Warm up beside the running server; ready from then until it is told to stop, which it does some seconds later.

    In between a proxy sees that it is not ready, and takes its visitors elsewhere while it still answers.
    """

    def drain(number: int, frame) -> None:
        app.state["ready"] = False
        signal.signal(signal.SIGTERM, stop)  # a second one is not kept waiting
        threading.Timer(DRAIN_SECONDS, stop, (number, frame)).start()

    app.state["ready"] = False
    stop = signal.signal(signal.SIGTERM, drain)
    warming = asyncio.create_task(_warm(app))
    yield
    app.state["ready"] = False
    warming.cancel()


async def _warm(app) -> None:
    started = asyncio.get_running_loop().time()
    try:
        await asyncio.to_thread(warm)
    except Exception:
        log.exception("The lab cannot start")
        os._exit(1)  # rather than answer 503 for ever; whoever supervises it starts it again
    app.state["ready"] = True
    log.warning("ready after %.1f s: %s", asyncio.get_running_loop().time() - started, settings())


class NoUploads:
    """ASGI middleware: no page takes a file, but Streamlit keeps in memory whatever is sent to its upload address."""

    def __init__(self, app: ASGIApp):
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse an upload, or pass the request on."""
        refused = PlainTextResponse("This lab takes no files.", 403)
        await (refused if scope["type"] == "http" and UPLOADS in scope["path"] else self.app)(scope, receive, send)


def routes(state: Callable[[], dict]) -> list[Route]:
    """Return /readyz: 200 once warm and until the process is told to stop, 503 before and after."""

    async def readyz(request) -> PlainTextResponse:
        ready = state().get("ready", False)
        return PlainTextResponse("ready" if ready else "not ready", 200 if ready else 503)

    return [Route("/readyz", readyz)]


def explain(error: Exception) -> bool:
    """Tell the visitor what went wrong: a LabError's own sentence, or a short code that the log explains; for ``st.App``."""
    from pages.shared.layout import escaped

    if isinstance(error, LabError):
        st.error(escaped(str(error)))
        return True
    code = code_of(error)
    log.error("code %s: %s", code, "".join(traceback.format_exception(error)))
    st.error(
        f"Something went wrong here, and it is not your doing. The rest of the lab works. If it stays, tell whoever runs this page: code {code}."
    )
    return True


def code_of(error: BaseException) -> str:
    """Return six hexadecimal digits that are the same whenever the same kind of error comes from the same lines."""
    lines = [f"{frame.filename}:{frame.lineno}" for frame in traceback.extract_tb(error.__traceback__)]
    return hashlib.sha256("|".join([type(error).__name__, *lines]).encode()).hexdigest()[:6]
