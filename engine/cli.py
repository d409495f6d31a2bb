"""Labs without the app: one subcommand per lab, its options made from the fields of its parameter object."""

import argparse
import importlib
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path

from engine.errors import InputError, LabError
from engine.params import plain
from engine.progress import console

LABS = {"spectra": ("SpectraParams", "report"), "norms": ("NormsParams", "report")}
"""Lab -> its parameter class and the function that its subcommand runs, both in ``engine.LAB``."""

PAGES = {"spectra": "head_report"}
"""Lab -> what ``--figure`` draws: function NAME of ``engine.NAME`` computes it, ``engine.figures.NAME.page`` makes it HTML."""


class _Parser(argparse.ArgumentParser):
    """Ends with one sentence and exit status 2, without the usage text."""

    def error(self, message: str):
        raise InputError(f"{message[:1].upper()}{message[1:].rstrip('.')}. See --help.")


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``python -m engine LAB [--field value ...] [--json FILE|-]`` and return the exit status."""
    argv = list(sys.argv[1:] if argv is None else argv)
    try:
        options = _parser(argv).parse_args(argv)
        module, params_class, function = _lab(options.lab)
        params = params_class(**{f.name: getattr(options, f.name) for f in fields(params_class)})
        if options.figure:
            _draw(PAGES[options.lab], params, options.figure, sys.stderr if options.json else sys.stdout)
        if options.json or not options.figure:
            result = function(params, console)
            _write(result, module.table(result), options.json)
    except (LabError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def _lab(name: str):
    params_name, function_name = LABS[name]
    module = importlib.import_module(f"engine.{name}")
    return module, getattr(module, params_name), getattr(module, function_name)


def _parser(argv: list[str]) -> _Parser:
    """Build the parser; only the lab that is named is imported."""
    parser = _Parser(prog="python -m engine", description=__doc__)
    commands = parser.add_subparsers(dest="lab", required=True, metavar="LAB")
    for name in LABS:
        command = commands.add_parser(name, help=f"see: python -m engine {name} --help")
        if name in argv:
            params_class = _lab(name)[1]
            command.description = params_class.__doc__
            for field in fields(params_class):
                _add_option(command, field)
        command.set_defaults(figure=None)
        if name in PAGES:
            command.add_argument("--figure", metavar="FILE", help="write the pictures of what is asked as one HTML file, and print its numbers")
        command.add_argument("--json", metavar="FILE|-", help="write the whole result as JSON to a file, or - for standard output")
    return parser


def _add_option(command: argparse.ArgumentParser, field) -> None:
    """Add ``--name VALUE``, or ``--name`` and ``--no-name`` for a field that is on or off."""
    kind = {"action": argparse.BooleanOptionalAction} if isinstance(field.default, bool) else {"type": type(field.default)}
    command.add_argument("--" + field.name.replace("_", "-"), dest=field.name, default=field.default, help=f"default: {field.default}", **kind)


def _draw(name: str, params, target: str, file) -> None:
    """Write a page of pictures and print its numbers to ``file``."""
    report = getattr(importlib.import_module(f"engine.{name}"), name)(params, console)
    text = importlib.import_module(f"engine.figures.{name}").page(report)
    Path(target).write_text(text, encoding="utf-8")
    _print(*report.table(), file=file)


def _print(header: list[str], rows: list[list], file=None) -> None:
    """Print a table with columns aligned at the right."""
    cells = [header, *([f"{c:.4g}" if isinstance(c, float) else str(c) for c in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    print("\n".join("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in cells), file=file)


def _write(result, table: tuple[list[str], list[list]], target: str | None) -> None:
    """Print the table, or write the result's fields as JSON."""
    if target is None:
        _print(*table)
        return
    text = json.dumps(plain(asdict(result)), allow_nan=False)
    if target == "-":
        print(text)
    else:
        Path(target).write_text(text + "\n", encoding="utf-8")
