"""Speed, as ratios against the obvious alternative in the same run: ``python -m tests.benchmarks``."""
