"""Downloads, from a stub of the hub on this machine: what is taken, how it goes on, and a sentence for what goes wrong."""

import errno
import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from engine.errors import Abandoned, ModelError
from engine.models import catalog
from engine.models import hub as hub_module
from engine.models.catalog import checkpoint_folder, identity
from engine.models.weights import model_shape, read_layers
from tests.engine.models.stub_hub import Repository, StubHub, commit

REPO = "someone/tiny"
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def served(hub, tiny_files):
    hub.repositories[REPO] = Repository({**tiny_files, "pytorch_model.bin": b"pickled", "modeling_tiny.py": b"print()"}, revisions=("main", "step10"))
    return hub


def test_a_download_takes_weights_and_text_and_nothing_that_runs(served):
    folder = checkpoint_folder(REPO)
    assert {path.name for path in folder.iterdir()} == {"config.json", "model.safetensors"}
    assert len(list(read_layers(REPO))) == 2
    before = len(served.served)
    assert checkpoint_folder(REPO) == folder
    assert len(served.served) == before, "a second call downloads nothing"


def test_the_shape_and_the_identity_need_only_config_json(served):
    assert model_shape(REPO).n_heads == 4
    assert identity(REPO) == (REPO, commit(REPO))
    assert identity(f"{REPO}@step10") == (REPO, commit(REPO))
    assert {name for name, _ in served.served} == {"config.json"}


def test_progress_counts_bytes_up_to_the_total(served, tiny_files):
    steps = []
    checkpoint_folder(REPO, lambda done, total, message: steps.append((done, total, message)))
    total = len(tiny_files["config.json"]) + len(tiny_files["model.safetensors"])
    assert steps[-1][:2] == (total, total)
    assert {step[1] for step in steps} == {total}
    assert [step[0] for step in steps] == sorted(step[0] for step in steps)
    assert REPO in steps[0][2]


def test_a_visitor_who_leaves_stops_the_download(served):
    def leave(done, total, message):
        raise Abandoned

    with pytest.raises(Abandoned):
        checkpoint_folder(REPO, leave)
    assert len(list(read_layers(REPO))) == 2


def test_an_interrupted_download_goes_on_where_it_stopped(served, tiny_files, monkeypatch):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 1000)  # it keeps whole chunks, of 10 MB otherwise
    size = len(tiny_files["model.safetensors"])
    served.cut["model.safetensors"] = size // 2 // 1000 * 1000
    folder = checkpoint_folder(REPO)
    assert (folder / "model.safetensors").read_bytes() == tiny_files["model.safetensors"]
    sent = [n for name, n in served.served if name == "model.safetensors"]
    assert len(sent) > 1
    assert sum(sent) == size


def test_a_pickled_model_is_refused_before_any_weight_is_sent(hub, tiny_files):
    hub.repositories[REPO] = Repository({"config.json": tiny_files["config.json"], "pytorch_model.bin": b"pickled"})
    with pytest.raises(ModelError, match=r"only pickled weights \(pytorch_model.bin\)"):
        checkpoint_folder(REPO)
    assert {name for name, _ in hub.served} == {"config.json"}


def test_a_family_that_is_not_understood_is_refused_before_any_weight_is_sent(hub, tiny_files):
    hub.repositories[REPO] = Repository({**tiny_files, "config.json": json.dumps({"model_type": "falcon"}).encode()})
    with pytest.raises(ModelError, match="'falcon' is not understood"):
        checkpoint_folder(REPO)
    assert {name for name, _ in hub.served} == {"config.json"}


def test_gated_without_and_with_token(hub, tiny_files, monkeypatch):
    hub.repositories[REPO] = Repository(tiny_files, gated=True)
    with pytest.raises(ModelError, match=r"someone/tiny is gated and no token is set: accept its licence .* then set HF_TOKEN"):
        checkpoint_folder(REPO)
    monkeypatch.setenv("HF_TOKEN", "hf_something")
    assert len(list(read_layers(REPO))) == 2


def test_unknown_repository_revision_and_missing_config(served):
    with pytest.raises(ModelError, match=r"no public model EleutherAI/pythia-70; .* did you mean EleutherAI/pythia-70m\?"):
        checkpoint_folder("EleutherAI/pythia-70")
    with pytest.raises(ModelError, match="no such revision"):
        checkpoint_folder(f"{REPO}@step11")
    served.repositories["a/b"] = Repository({"weights.txt": b""})
    with pytest.raises(ModelError, match=r"no config.json"):
        checkpoint_folder("a/b")


def test_offline_says_so_at_once_and_uses_what_is_here(served, monkeypatch):
    from huggingface_hub import constants

    checkpoint_folder(REPO)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert len(list(read_layers(REPO))) == 2
    with pytest.raises(ModelError, match="not on this machine and the hub cannot be reached"):
        checkpoint_folder("someone/else")


def test_no_network_says_so_at_once(hub, monkeypatch):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(ModelError, match="hub cannot be reached"):
        checkpoint_folder(REPO)


def test_a_model_that_does_not_fit_on_the_disk(served, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda place: shutil._ntuple_diskusage(10**9, 10**9, 1000))
    with pytest.raises(ModelError, match=r"needs 0\.\d MB on disk and .* has 0\.0 MB left"):
        checkpoint_folder(REPO)


def test_a_disk_that_fills_during_the_download(served, monkeypatch):
    import huggingface_hub

    real = huggingface_hub.hf_hub_download

    def full(repo, name, **options):
        if name.endswith(".safetensors"):
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(repo, name, **options)

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", full)
    with pytest.raises(ModelError, match=r"The disk filled up while someone/tiny was downloaded .* goes on where it stopped"):
        checkpoint_folder(REPO)


def test_two_processes_download_the_same_model(tmp_path, tiny_files):
    script = f"from engine.models.weights import read_layers; print(len(list(read_layers({REPO!r}))))"
    with StubHub({REPO: Repository(tiny_files)}) as stub:
        settings = {"HF_ENDPOINT": stub.endpoint, "HF_HOME": str(tmp_path), "HF_HUB_CACHE": str(tmp_path / "hub"), "OMP_NUM_THREADS": "1"}
        environment = {key: value for key, value in os.environ.items() if "proxy" not in key.lower()} | settings
        both = [subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, env=environment, stdout=-1, stderr=-1, text=True) for _ in range(2)]
        answers = [process.communicate(timeout=120) for process in both]
    assert [out.strip() for out, _ in answers] == ["2", "2"], answers
    blobs = [path for path in (tmp_path / "hub").rglob("blobs/*") if path.is_file()]
    assert sorted(path.stat().st_size for path in blobs) == sorted(len(tiny_files[name]) for name in ("config.json", "model.safetensors"))


def test_two_threads_download_the_same_model(served):
    with ThreadPoolExecutor(2) as both:
        answers = list(both.map(lambda _: len(list(read_layers(REPO))), range(2)))
    assert answers == [2, 2]


def test_the_catalogue_imports_neither_torch_nor_transformers():
    script = "import sys, engine.models.catalog; print([name for name in ('torch', 'transformers', 'huggingface_hub') if name in sys.modules])"
    answer = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)
    assert answer.stdout.strip() == "[]"


def test_the_forms_of_a_hub_id():
    accepted = ["EleutherAI/pythia-70m", "EleutherAI/pythia-70m@step3000", "a/b@refs/pr/1"]
    refused = ["gpt2", "a/b/c", "a/../b", "../b", "a/b@", "a b/c", "https://huggingface.co/a/b", "a/b\n"]
    assert all(hub_module.is_hub_id(name) for name in accepted)
    assert not any(hub_module.is_hub_id(name) for name in refused)


def test_hub_ids_of_the_catalogue_are_well_formed_and_pinned_to_nothing():
    ids = [entry.hub_id for entry in catalog.CATALOG.values() if entry.hub_id]
    assert len(ids) == 10
    assert all(hub_module.is_hub_id(hub_id) and "@" not in hub_id for hub_id in ids)
