"""The import rules of CONTRIBUTING.md, read off the syntax trees, and the house style."""

import ast
import json
import subprocess
import sys

import pytest

from engine.cli import LABS as COMMANDS
from pages.shared.navigation import LABS as PAGES
from tests.conftest import ROOT

MODULES = sorted([*ROOT.glob("engine/**/*.py"), *ROOT.glob("pages/**/*.py"), ROOT / "streamlit_app.py"])
NAMES = {path: path.relative_to(ROOT).as_posix() for path in MODULES}


def imports(path, top_level_only=False):
    """Yield the first name of every module that a file imports."""
    tree = ast.parse(path.read_text())
    inside = {id(n) for f in ast.walk(tree) if isinstance(f, (ast.FunctionDef, ast.AsyncFunctionDef)) for n in ast.walk(f)}
    for node in ast.walk(tree):
        if top_level_only and id(node) in inside:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module.split(".")[0]


def test_streamlit_only_in_pages():
    offenders = [NAMES[p] for p in MODULES if NAMES[p].startswith("engine/") and "streamlit" in imports(p)]
    assert offenders == []


def test_plotly_only_in_figures():
    offenders = [NAMES[p] for p in MODULES if not NAMES[p].startswith("engine/figures/") and "plotly" in imports(p)]
    assert offenders == []


def test_transformers_only_inside_functions_of_models():
    anywhere = [NAMES[p] for p in MODULES if not NAMES[p].startswith("engine/models/") and "transformers" in imports(p)]
    on_top = [NAMES[p] for p in MODULES if "transformers" in imports(p, top_level_only=True)]
    assert (anywhere, on_top) == ([], [])


@pytest.mark.parametrize("device", ["cuda", "mps"])
def test_device_names_only_in_device_module(device):
    def mentions(path):
        nodes = list(ast.walk(ast.parse(path.read_text())))
        attributes = {n.attr for n in nodes if isinstance(n, ast.Attribute)}
        return device in attributes or device in {n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)}

    assert [NAMES[p] for p in MODULES if NAMES[p] != "engine/device.py" and mentions(p)] == []


def test_home_imports_neither_torch_nor_plotly():
    """Beyond what ``import streamlit`` brings by itself, which includes parts of plotly."""
    code = """
import json, sys
from streamlit.testing.v1 import AppTest
before = set(sys.modules)
app = AppTest.from_file("streamlit_app.py", default_timeout=60).run()
print(json.dumps({"errors": [e.value for e in app.exception], "text": [m.value for m in app.markdown],
                  "imported": sorted({m.split(".")[0] for m in set(sys.modules) - before})}))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120, check=True)
    seen = json.loads(done.stdout.strip().splitlines()[-1])
    assert seen["errors"] == []
    assert any("Bare Weights" in text for text in seen["text"])
    assert "pages" in seen["imported"]
    assert not {"torch", "plotly", "transformers"} & set(seen["imported"])


@pytest.mark.parametrize("lab", PAGES)
def test_every_lab_has_all_its_parts(lab):
    parts = [f"pages/{lab}.py", f"engine/{lab}.py", f"engine/figures/{lab}.py", f"assets/labs/{lab}.json", f"assets/notes/{lab}.md"]
    parts += [f"assets/thumbnails/{lab}.svg", f"tests/engine/test_{lab}.py"]
    assert [part for part in parts if not (ROOT / part).is_file()] == []
    assert lab in COMMANDS


def test_functions_and_modules_stay_short():
    long = []
    for path in MODULES:
        lines = path.read_text().count("\n")
        long += [f"{NAMES[path]}: {lines} lines"] if lines > (150 if path.parent.name == "pages" else 300) else []
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and node.end_lineno - node.lineno > 50:
                long.append(f"{NAMES[path]}: {node.name}")
    assert long == []


def test_public_functions_have_docstrings():
    bare = [
        f"{NAMES[path]}: {node.name}"
        for path in MODULES
        for node in ast.parse(path.read_text()).body
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_") and node.name != "main" and not ast.get_docstring(node)
    ]
    assert bare == []


def test_ruff_is_content():
    for command in (["check"], ["format", "--check"]):
        done = subprocess.run([sys.executable, "-m", "ruff", *command, "."], cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout
