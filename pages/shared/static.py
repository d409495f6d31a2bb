"""Files that browsers fetch from ``static/``: plotly.js, copied from the installed plotly package at start."""

import os
import shutil
import threading
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "static"
PLOTLY = f"plotly-{version('plotly')}.min.js"
_lock = threading.Lock()


def prepare() -> None:
    """Put plotly.js where Streamlit serves it; do nothing if it is there. Does not import plotly."""
    target = FOLDER / PLOTLY
    if target.exists():
        return
    with _lock:
        FOLDER.mkdir(exist_ok=True)
        source = Path(find_spec("plotly").origin).parent / "package_data" / "plotly.min.js"
        partial = target.with_suffix(f".{os.getpid()}.partial")  # a second replica may be at it in the same folder
        shutil.copyfile(source, partial)
        partial.replace(target)
