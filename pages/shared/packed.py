"""Scripts, styles and icons travel packed: Streamlit sends them as they lie on the disk, and not every host has a proxy that compresses."""

import gzip
import threading
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import streamlit
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from pages.shared import icons
from pages.shared.static import FOLDER, PLOTLY

TYPES = {".js": "text/javascript", ".css": "text/css", ".woff2": "font/woff2"}
FOREVER = "public, max-age=31536000, immutable"
A_DAY = "public, max-age=86400"
_packing = threading.Lock()


def addresses() -> dict[str, Path]:
    """Return address -> file of everything that is sent packed; scripts and styles have names that change with their content."""
    folder = Path(streamlit.__file__).parent / "static" / "static"
    theirs = [icons.font(), *folder.glob("js/*.js"), *folder.glob("css/*.css")]
    return {f"/static/{path.relative_to(folder).as_posix()}": path for path in theirs} | {f"/app/static/{PLOTLY}": FOLDER / PLOTLY}


def packed(path: Path) -> tuple[bytes, dict[str, str]]:
    """Return what is sent for a file, and its headers; made once, whoever asks meanwhile waits for it."""
    with _packing:
        return _made(path)


@cache
def _made(path: Path) -> tuple[bytes, dict[str, str]]:
    """Return what is sent for a file, and its headers: a script or style as gzip, packed as tightly as that goes, the icons as a smaller font.

    Kept (the list is fixed, 8 MB in all), so that a room full of visitors costs it once.
    """
    kind = {"Content-Type": TYPES[path.suffix]}
    if path == icons.font():
        return icons.cut(path), kind | {"Cache-Control": A_DAY}
    return gzip.compress(path.read_bytes(), 9, mtime=0), kind | {"Cache-Control": FOREVER, "Content-Encoding": "gzip", "Vary": "Accept-Encoding"}


def prepare() -> None:
    """Pack what every visitor asks for: the scripts that the first page names, plotly.js and the icons."""
    page = (Path(streamlit.__file__).parent / "static" / "index.html").read_text()
    for address, path in addresses().items():
        if path in (FOLDER / PLOTLY, icons.font()) or address in page:
            packed(path)


class Packed:
    """ASGI middleware: the icons, and to whoever takes gzip a script or style, come from memory; everything else passes.

    The addresses are a fixed list, so that no address leads anywhere else on the disk.
    """

    def __init__(self, app: ASGIApp, files: Mapping[str, Path] | None = None):
        self.app, self.files = app, addresses() if files is None else files

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer from memory, or pass the request on."""
        path = self.files.get(scope["path"]) if scope["type"] == "http" and scope["method"] == "GET" else None
        if path is None or not path.exists() or not (path == icons.font() or "gzip" in Headers(scope=scope).get("accept-encoding", "")):
            await self.app(scope, receive, send)
            return
        body, headers = await run_in_threadpool(packed, path)
        await Response(body, headers=headers)(scope, receive, send)
