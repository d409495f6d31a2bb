"""``python -m engine LAB``: see engine/cli.py."""

import os
import sys

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before numpy: see engine.device.symmetric_product

from engine.cli import main

sys.exit(main())
