"""Checkpoints from the Hugging Face hub: found in its cache, or downloaded into it; safetensors and text only.

The client library keeps what it needs: resumed downloads, file locks between processes, ``HF_HUB_OFFLINE``, ``HF_HOME`` and
the token from the environment. Code from a repository is never run, pickled weights are never downloaded.
"""

import errno
import io
import re
import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies

from engine.errors import Abandoned, LabError, ModelError
from engine.models.configuration import shape_of
from engine.models.files import INDEX, PICKLES, SINGLE, read_json, readable_bytes, weight_files
from engine.progress import OnStep, silent

WANTED = ("config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "vocab.*", "merges.txt", INDEX)
WEIGHTS = (SINGLE, "model-?????-of-?????.safetensors")
HUB_ID = re.compile(r"[\w.-]{1,96}/[\w.-]{1,96}(@[\w./-]{1,100})?", re.ASCII)
UNREACHABLE = "{repo} is not on this machine and the hub cannot be reached; connect and try again, or choose fable or a local folder."


def is_hub_id(model: str) -> bool:
    """Whether a text has the form owner/name or owner/name@revision."""
    return HUB_ID.fullmatch(model) is not None and ".." not in model


def config_folder(model: str) -> Path:
    """Return the cached folder that holds the config.json of owner/name[@revision], downloading that one file if needed.

    The folder is named by the commit that the revision stands for; it may hold no weights yet.
    Raises ModelError in one sentence if the model is unknown, gated, or the hub cannot be reached.
    """
    from huggingface_hub import hf_hub_download, try_to_load_from_cache

    repo, revision = _parts(model)
    cached = try_to_load_from_cache(repo, "config.json", cache_dir=_cache(), revision=revision)
    if isinstance(cached, str):
        return Path(cached).parent
    _check_reachable(repo)
    with _one_sentence(repo):
        path = hf_hub_download(repo, "config.json", revision=revision, cache_dir=_cache(), tqdm_class=_bar(silent, 0, 1, ""))
    return Path(path).parent


def fetch(model: str, on_step: OnStep = silent) -> Path:
    """Return the folder of owner/name[@revision] with its weights, downloading what the cache lacks of that commit.

    The family is checked before any weight is downloaded, the disk before a file that would not fit; ``on_step`` gets bytes.
    Two processes may do this at once. Raises ModelError in one sentence.
    """
    folder = config_folder(model)
    if is_complete(folder):
        return folder
    shape_of(read_json(folder / "config.json"))
    repo, commit = _parts(model)[0], folder.name
    _check_reachable(repo)
    sizes = _files(repo, commit)
    _check_disk(repo, sum(size for name, size in sizes.items() if not (folder / name).is_file()))
    _download(repo, commit, sizes, on_step)
    weight_files(folder)
    return folder


def is_complete(folder: Path) -> bool:
    """Whether a folder holds a config.json and every weight file that it should."""
    try:
        weight_files(folder)
    except ModelError:
        return False
    return (folder / "config.json").is_file()


def _parts(model: str) -> tuple[str, str]:
    repo, _, revision = model.partition("@")
    return repo, revision or "main"


def _cache() -> str:
    from huggingface_hub import constants

    return constants.HF_HUB_CACHE


def _check_reachable(repo: str) -> None:
    """Raise ModelError at once where the hub cannot be reached: the client library alone would retry for half a minute."""
    from huggingface_hub import constants

    place = urlsplit(constants.ENDPOINT)
    reachable = not constants.is_offline_mode()
    if reachable and not getproxies():
        try:
            socket.create_connection((place.hostname, place.port or (443 if place.scheme == "https" else 80)), timeout=5).close()
        except OSError:
            reachable = False
    if not reachable:
        raise ModelError(UNREACHABLE.format(repo=repo))


def _files(repo: str, commit: str) -> dict[str, int]:
    """Return name -> bytes of the files of a commit that are wanted; raise ModelError if it has no safetensors."""
    from huggingface_hub import HfApi

    with _one_sentence(repo):
        listed = HfApi().model_info(repo, revision=commit, files_metadata=True).siblings or []
    sizes = {file.rfilename: file.size or 0 for file in listed}
    if not any(fnmatch(name, pattern) for name in sizes for pattern in WEIGHTS):
        pickled = next((name for name in sizes if name.endswith(PICKLES)), None)
        why = f"only pickled weights ({pickled[:60]}), which can run code and are not opened" if pickled else "no safetensors weights"
        raise ModelError(f"{repo} has {why}; choose a checkpoint in safetensors.")
    sharded = INDEX in sizes and SINGLE not in sizes
    patterns = (*WANTED, WEIGHTS[sharded])
    return {name: size for name, size in sizes.items() if any(fnmatch(name, pattern) for pattern in patterns)}


def _download(repo: str, commit: str, sizes: dict[str, int], on_step: OnStep) -> None:
    """Download the files one after the other, the weights last, reporting bytes."""
    from huggingface_hub import hf_hub_download

    done, total = 0, sum(sizes.values())
    for name in sorted(sizes, key=sizes.get):
        message = f"Downloading {repo} ({readable_bytes(total)})"
        on_step(done, total, message)
        with _one_sentence(repo):
            hf_hub_download(repo, name, revision=commit, cache_dir=_cache(), tqdm_class=_bar(on_step, done, total, message))
        done += sizes[name]
    on_step(total, total, f"Downloaded {repo}")


def _bar(on_step: OnStep, before: int, total: int, message: str) -> type:
    """Return a progress bar class that draws nothing and tells ``on_step`` how many bytes of all files are here."""
    from tqdm import tqdm

    caller = threading.get_ident()

    class Bar(tqdm):
        def __init__(self, *args, **options):
            super().__init__(*args, **{**options, "file": io.StringIO(), "disable": False})

        def update(self, n=1):
            shown = super().update(n)
            if threading.get_ident() == caller:  # a callback may raise Abandoned, and does so where it can be caught
                on_step(min(before + int(self.n), total), total, message)
            return shown

    return Bar


def _check_disk(repo: str, needed: int) -> None:
    """Raise ModelError if the files do not fit on the disk of the cache."""
    place = next(path for path in (Path(_cache()), *Path(_cache()).parents) if path.is_dir())
    free = shutil.disk_usage(place).free
    if needed > free:
        raise ModelError(
            f"{repo} needs {readable_bytes(needed)} on disk and {place} has {readable_bytes(free)} left; free some, or set HF_HOME to another disk."
        )


@contextmanager
def _one_sentence(repo: str) -> Iterator[None]:
    """Turn what the client library raises into a ModelError that says what to do next."""
    try:
        yield
    except (LabError, Abandoned):
        raise
    except Exception as error:
        message = _explained(error, repo)
        if message is None:
            raise
        raise ModelError(message) from error


def _explained(error: Exception, repo: str) -> str | None:
    from huggingface_hub import errors, get_token

    status = getattr(getattr(error, "response", None), "status_code", None)
    chain = (error, error.__cause__, error.__context__)
    if any(isinstance(link, OSError) and link.errno == errno.ENOSPC for link in chain):
        return f"The disk filled up while {repo} was downloaded to {_cache()}; free some space and try again, the download goes on where it stopped."
    if isinstance(error, errors.GatedRepoError) or status == 403:
        have = "your token has no access yet" if get_token() else "no token is set"
        return f"{repo} is gated and {have}: accept its licence at huggingface.co/{repo}, then set HF_TOKEN to a token of that account."
    if isinstance(error, errors.RevisionNotFoundError):
        return f"{repo} has no such revision on the hub; leave out what follows @ for its newest one."
    if isinstance(error, errors.RepositoryNotFoundError) or status == 401:
        return f"The hub has no public model {repo}; check its name or, if it is private, set HF_TOKEN to a token that may read it."
    if isinstance(error, errors.RemoteEntryNotFoundError):
        return f"{repo} on the hub has no config.json in its main folder, so it is not a transformers checkpoint."
    if isinstance(error, errors.LocalEntryNotFoundError | errors.OfflineModeIsEnabled) or type(error).__module__.startswith("httpx"):
        return UNREACHABLE.format(repo=repo)
    return f"The hub answered {status} for {repo}; try again later." if status else None
