"""``python -m engine``: the contract for scripts, and one sentence for everything that is not right."""

import json
import math
import subprocess
import sys

import numpy as np
import pytest

from engine.cli import LABS, main, plain
from tests.conftest import ROOT


def test_the_contract_for_scripts(tiny_llama, capsys):
    assert main(["spectra", "--model", str(tiny_llama), "--json", "-"]) == 0
    result = json.loads(capsys.readouterr().out)
    shape = {"family": "llama", "n_layers": 3, "n_heads": 4, "n_kv_heads": 2, "d_model": 24, "d_head": 8}
    assert {key: result[key] for key in shape} == shape
    for circuit in ("ov", "qk"):
        values = np.array(result[f"{circuit}_singular_values"])
        assert values.shape == (3, 4, 8)
        energy = values**2 / (values**2).sum(-1, keepdims=True)
        assert np.array(result[f"{circuit}_effective_rank"]) == pytest.approx(np.exp(-(energy * np.log(energy)).sum(-1)))


def test_it_runs_as_a_module_and_writes_a_file(tmp_path):
    target = tmp_path / "fable.json"
    command = [sys.executable, "-m", "engine", "spectra", "--json", str(target)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    assert json.loads(target.read_text())["model"] == "fable"


def test_the_table_is_short(capsys):
    assert main(["spectra"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 1 + 4 * 8
    assert max(map(len, lines)) < 100


BAD = [
    ([], "required"),
    (["nonsense"], "nonsense"),
    (["spectra", "--layer", "x"], "--layer"),
    (["spectra", "--layer", "-1"], "count from 0"),
    (["spectra", "--layer", "99"], "layers 0 to 3"),
    (["spectra", "--circuit", "<b>"], "accepted are ov, qk"),
    (["spectra", "--model", "no/such/folder"], "neither a folder"),
    (["spectra", "--model", ""], "neither a folder"),
    (["spectra", "--model", "\0"], "neither a folder"),
    (["spectra", "--model", "x" * 10_000], "neither a folder"),
    (["spectra", "--json", "/no/such/folder/file.json"], "No such file"),
    (["spectra", "--bogus", "1"], "bogus"),
]


@pytest.mark.parametrize(("arguments", "said"), BAD)
def test_a_bad_value_is_one_sentence_and_status_2(arguments, said, capsys):
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert len(err.strip().splitlines()) == 1
    assert len(err) < 400


def test_non_finite_numbers_are_null():
    assert plain({"a": np.array([1.0, math.nan]), "b": (math.inf, np.float64(2))}) == {"a": [1.0, None], "b": [None, 2.0]}


@pytest.mark.parametrize("lab", LABS)
def test_every_lab_helps(lab, capsys):
    with pytest.raises(SystemExit) as stopped:
        main([lab, "--help"])
    assert stopped.value.code == 0
    assert "--json" in capsys.readouterr().out
