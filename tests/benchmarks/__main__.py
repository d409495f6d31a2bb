"""Print every benchmark's lines; a failure of one does not stop the others."""

import importlib
import pkgutil
import sys
import traceback

import tests.benchmarks as package


def main(names: list[str]) -> int:
    """Run the benchmarks named (default: all) and return the number that failed."""
    failed = 0
    for name in names or [module.name for module in pkgutil.iter_modules(package.__path__) if not module.name.startswith("_")]:
        try:
            for line in importlib.import_module(f"tests.benchmarks.{name}").lines():
                print(line, flush=True)
        except Exception:
            failed += 1
            print(f"{name}: failed", flush=True)
            traceback.print_exc()
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
