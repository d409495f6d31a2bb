"""Labs without the app: one subcommand per lab, its options made from the fields of its parameter object."""

import argparse
import importlib
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path

from engine.errors import InputError, LabError
from engine.params import plain
from engine.progress import console

LABS = {
    "projections": ("ProjectionsParams", "report"),
    "ffn": ("FfnParams", "report"),
    "rope": ("RopeParams", "report"),
    "norms": ("NormsParams", "report"),
    "lora": ("LoraParams", "report"),
    "spectra": ("SpectraParams", "report"),
}
"""Lab -> its parameter class and the function that its subcommand runs, both in ``engine.LAB``."""

PAGES = {"spectra": ("head_report", ("prompt", "latent", "off"))}
"""Lab -> (NAME of one page, options that ask for it as ``--figure`` does): function NAME of ``engine.NAME`` computes it, with
``table()`` for a terminal and ``data()`` for JSON; ``engine.figures.NAME.page`` makes it HTML."""


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
        named = {f.name: getattr(options, f.name) for f in fields(params_class) if hasattr(options, f.name)}
        params = params_class(**named)
        _check_targets(figure=options.figure, json=options.json)
        page, asks_for_it = PAGES.get(options.lab, (None, ()))
        if options.figure is not None or not named.keys().isdisjoint(asks_for_it):
            _report(page, params, options.figure, options.json)
        else:
            result = function(params, console)
            _write(asdict(result), module.table(result), options.json)
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
            asks_for_it = " or ".join(f"--{option}" for option in PAGES[name][1])
            what = f"write pictures of one head as an HTML file; this, {asks_for_it} print its numbers in place of the table of all"
            command.add_argument("--figure", metavar="FILE", help=what)
        command.add_argument("--json", metavar="FILE|-", help="write the whole result as JSON to a file, or - for standard output")
    return parser


def _numbers(text: str) -> tuple[float, ...]:
    """Return the numbers of a comma list; one that begins with a minus sign is given as ``--name=-1,2``."""
    try:
        return tuple(float(word) for word in text.split(",") if word.strip())
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not a list of numbers with commas between") from None


_TYPES = {tuple: _numbers}


def _add_option(command: argparse.ArgumentParser, field) -> None:
    """Add ``--name VALUE``, or ``--name`` and ``--no-name`` for a field that is on or off."""
    of = type(field.default)
    kind = {"action": argparse.BooleanOptionalAction} if of is bool else {"type": _TYPES.get(of, of)}
    command.add_argument("--" + field.name.replace("_", "-"), dest=field.name, default=argparse.SUPPRESS, help=f"default: {field.default}", **kind)


def _check_targets(**targets: str | None) -> None:
    """Raise InputError for a file that cannot be written, before anything is computed for it."""
    for option, target in targets.items():
        if target is None or (option, target) == ("json", "-"):
            continue
        folder = Path(target).parent
        if not folder.is_dir():
            raise InputError(f"No such file or directory: {str(folder)[:200]!r}; --{option} takes a file in a folder that exists.")
        if Path(target).is_dir() or not os.access(Path(target) if Path(target).exists() else folder, os.W_OK):
            raise InputError(f"--{option} takes a file that can be written; {target[:200]!r} is a folder or may not be written.")


def _report(name: str, params, figure: str | None, target: str | None) -> None:
    """Write a page of pictures, print its numbers (to the error output beside JSON), write them as JSON: what was asked of these."""
    report = getattr(importlib.import_module(f"engine.{name}"), name)(params, console)
    if figure is not None:
        Path(figure).write_text(importlib.import_module(f"engine.figures.{name}").page(report), encoding="utf-8")
    if target is not None and figure is not None:
        _print(*report.table(), file=sys.stderr)
    _write(report.data(), report.table(), target)


def _print(header: list[str], rows: list[list], file=None) -> None:
    """Print a table with columns aligned at the right."""
    cells = [header, *([f"{c:.4g}" if isinstance(c, float) else str(c) for c in row] for row in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    print("\n".join("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in cells), file=file)


def _write(data: dict, table: tuple[list[str], list[list]], target: str | None) -> None:
    """Print the table, or write the data as JSON."""
    if target is None:
        _print(*table)
        return
    text = json.dumps(plain(data), allow_nan=False)
    if target == "-":
        print(text)
    else:
        Path(target).write_text(text + "\n", encoding="utf-8")
