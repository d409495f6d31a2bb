"""Speed, as ratios against the obvious alternative in the same run: ``python -m tests.benchmarks``."""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as ``python -m engine`` and the app do
