"""Tiny models on one thread: threads that wait for each other take longer than the arithmetic."""

import pytest
import torch

from tests.engine.models.stub_hub import StubHub
from tests.engine.models.tiny import case


@pytest.fixture(autouse=True, scope="package")
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def hub(tmp_path, monkeypatch):
    """A stub hub that this process's client library asks instead of the real one, and an empty cache."""
    from huggingface_hub import constants

    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no-token"))
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    with StubHub() as stub:
        monkeypatch.setattr(constants, "ENDPOINT", stub.endpoint)
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", stub.endpoint + "/{repo_id}/resolve/{revision}/{filename}")
        yield stub


@pytest.fixture(scope="package")
def tiny_files(tmp_path_factory) -> dict[str, bytes]:
    """The files of a tiny Llama, by name."""
    folder = tmp_path_factory.mktemp("tiny")
    case("llama grouped wide biased").build().save_pretrained(folder)
    return {path.name: path.read_bytes() for path in folder.iterdir()}
