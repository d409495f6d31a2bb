"""``python -m engine LAB``: see engine/cli.py."""

import sys

from engine.cli import main

sys.exit(main())
