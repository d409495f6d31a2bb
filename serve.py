"""Bare Weights for others: ``streamlit run serve.py``. The same pages as streamlit_app.py, with what a public server needs.

Settings are settled before the server listens; /readyz answers 200 once everything is warm; errors come with a code.
"""

import os
import sys

if "numpy" not in sys.modules:  # afterwards it would come too late: see engine.device.symmetric_product
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import streamlit as st
from starlette.middleware import Middleware

from engine.errors import InputError
from pages.shared import hosting
from pages.shared.packed import Packed

os.environ.setdefault("BARE_WEIGHTS_HOSTED", "1")
try:
    hosting.settle()
except InputError as error:
    sys.exit(str(error))

app = st.App(
    "streamlit_app.py",
    lifespan=hosting.lifespan,
    routes=hosting.routes(lambda: app.state),
    middleware=[Middleware(hosting.NoUploads), Middleware(Packed)],
    on_script_error=hosting.explain,
)
