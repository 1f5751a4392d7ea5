"""`torch.hub`: models by the functions of a repository's `hubconf.py`, and weights from the network.

A repository is a folder, or one of GitHub's as ``owner/name[:ref]``, which is fetched once and kept below `get_dir()`. Its code is executed: the user
is asked first whether he trusts an owner whom he has not trusted yet.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import importlib.util
import json
import os
import re
import shutil
import sys
import tempfile
import warnings
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlparse
from urllib.request import Request, urlopen

import torchgrad_jax

__all__ = ["download_url_to_file", "get_dir", "help", "list", "load", "load_state_dict_from_url", "set_dir"]

ENV_GITHUB_TOKEN, ENV_TORCH_HOME, ENV_XDG_CACHE_HOME, DEFAULT_CACHE_DIR = "GITHUB_TOKEN", "TORCH_HOME", "XDG_CACHE_HOME", "~/.cache"
VAR_DEPENDENCY, MODULE_HUBCONF = "dependencies", "hubconf.py"
READ_DATA_CHUNK = 128 * 1024
# The hash that a name such as ``resnet18-bf5a770e.pth`` says.
HASH_REGEX = re.compile(r"-([a-f0-9]*)\.")
_GITHUB, _GITHUB_API = "https://github.com", "https://api.github.com/repos"
_TRUSTED_OWNERS = ("facebookresearch", "facebookincubator", "pytorch", "fairinternal")
_UNTRUSTED = "The repository {} does not belong to the list of trusted repositories and as such cannot be downloaded. "
_hub_dir: str | None = None


# ---------------------------------------------------------------------- folders


def _get_torch_home() -> str:
    cache = os.getenv(ENV_XDG_CACHE_HOME, DEFAULT_CACHE_DIR)
    return os.path.expanduser(os.getenv(ENV_TORCH_HOME, os.path.join(cache, "torch")))


def get_dir() -> str:
    """The folder of all that is fetched: what `set_dir` was given, or $TORCH_HOME/hub, $XDG_CACHE_HOME/torch/hub, ~/.cache/torch/hub."""
    if os.getenv("TORCH_HUB"):
        warnings.warn("TORCH_HUB is deprecated, please use env TORCH_HOME instead", stacklevel=2)
    return _hub_dir if _hub_dir is not None else os.path.join(_get_torch_home(), "hub")


def set_dir(d: str | os.PathLike[str]) -> None:
    """Let another folder be that of all that is fetched."""
    global _hub_dir
    _hub_dir = os.path.expanduser(d)


# ---------------------------------------------------------------------- repositories


def list(github: str, force_reload: bool = False, skip_validation: bool = False, trust_repo: Any = "check", verbose: bool = True) -> Any:
    """The names of the functions that a repository offers. See `load` for the arguments."""
    module = _module_of(_fetched(github, force_reload, "list", trust_repo, verbose, skip_validation))
    return [name for name in dir(module) if callable(getattr(module, name)) and not name.startswith("_")]


def help(github: str, model: str, force_reload: bool = False, skip_validation: bool = False, trust_repo: Any = "check") -> str | None:
    """The docstring of a function that a repository offers. RuntimeError where there is none of the name."""
    return _entry(_module_of(_fetched(github, force_reload, "help", trust_repo, True, skip_validation)), model).__doc__


def load(
    repo_or_dir: str, model: str, *args: Any, source: str = "github", trust_repo: Any = "check", force_reload: bool = False, verbose: bool = True,
    skip_validation: bool = False, **kwargs: Any,
) -> Any:  # fmt: skip
    """What the function `model` of a repository's hubconf.py returns for the arguments.

    source: "github" for ``owner/name[:ref]``, "local" for a folder. trust_repo: "check" asks where the repository has not been trusted yet, True
    trusts it from now on, False always asks. force_reload: fetch it though it is there. skip_validation: do not ask GitHub whether `ref` is the
    repository's own and not that of a fork. ValueError for another source, RuntimeError for a missing function and for missing dependencies.
    """
    source = source.lower()
    if source not in ("github", "local"):
        raise ValueError(f'Unknown source: "{source}". Allowed values: "github" | "local".')
    if source == "github":
        repo_or_dir = _fetched(repo_or_dir, force_reload, "load", trust_repo, verbose, skip_validation)
    return _entry(_module_of(repo_or_dir), model)(*args, **kwargs)


def _module_of(folder: str) -> ModuleType:
    """The repository's hubconf.py as a module, which may import what lies beside it."""
    with _importing_from(folder):
        spec = importlib.util.spec_from_file_location(MODULE_HUBCONF, os.path.join(folder, MODULE_HUBCONF))
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return module


@contextlib.contextmanager
def _importing_from(folder: str) -> Iterator[None]:
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)


def _entry(module: ModuleType, model: Any) -> Callable[..., Any]:
    if not isinstance(model, str):
        raise ValueError("Invalid input: model should be a string of function name")
    missing = [name for name in getattr(module, VAR_DEPENDENCY, None) or () if not _is_installed(name)]
    if missing:
        raise RuntimeError(f"Missing dependencies: {', '.join(missing)}")
    found = getattr(module, model, None)
    if not callable(found):
        raise RuntimeError(f"Cannot find callable {model} in hubconf")
    return found


def _is_installed(name: str) -> bool:
    return name in sys.modules or importlib.util.find_spec(name) is not None


def _parse_repo_info(github: str) -> tuple[str, str, str]:
    """Owner, name and ref of ``owner/name[:ref]``; without a ref GitHub is asked whether there is a branch main, else it is master."""
    repository, _, ref = github.partition(":")
    owner, name = repository.split("/")
    if ref:
        return owner, name, ref
    try:
        with urlopen(f"{_GITHUB}/{owner}/{name}/tree/main/"):
            return owner, name, "main"
    except HTTPError as error:
        if error.code != 404:
            raise
        return owner, name, "master"
    except URLError as error:
        for ref in ("main", "master"):
            if os.path.exists(os.path.join(get_dir(), "_".join((owner, name, ref)))):
                return owner, name, ref
        raise RuntimeError(f"It looks like there is no internet connection and the repo could not be found in the cache ({get_dir()})") from error


def _fetched(github: str, force_reload: bool, calling: str, trust_repo: Any, verbose: bool, skip_validation: bool) -> str:
    """The folder of a repository of GitHub's, fetched unless it is there. Exception where the user does not trust it."""
    hub_dir = get_dir()
    os.makedirs(hub_dir, exist_ok=True)
    owner, name, ref = _parse_repo_info(github)
    # A branch may have slashes, and a file's name no more than one part.
    folder = os.path.join(hub_dir, "_".join((owner, name, ref.replace("/", "_").replace("\\", "_"))))
    _check_trusted(owner, name, trust_repo, calling)
    if os.path.exists(folder) and not force_reload:
        if verbose:
            sys.stderr.write(f"Using cache found in {folder}\n")
        return folder
    if not skip_validation:
        _check_ref(owner, name, ref)
    url = f"{_GITHUB}/{owner}/{name}/zipball/{ref}"
    sys.stderr.write(f'Downloading: "{url}" to {hub_dir}/{ref}.zip\n')
    with tempfile.TemporaryDirectory(dir=hub_dir) as scratch:
        archive = os.path.join(scratch, "archive.zip")
        download_url_to_file(url, archive, progress=False)
        with zipfile.ZipFile(archive) as content:
            content.extractall(scratch)
            top = content.infolist()[0].filename.split("/")[0]
        shutil.rmtree(folder, ignore_errors=True)
        shutil.move(os.path.join(scratch, top), folder)
    return folder


def _check_ref(owner: str, name: str, ref: str) -> None:
    """ValueError where `ref` is no branch, tag or beginning of a tip's hash of the repository: GitHub finds commits of its forks by its name, too."""
    headers = {"Accept": "application/vnd.github.v3+json", "User-Agent": "torch.hub"}
    if token := os.getenv(ENV_GITHUB_TOKEN):
        headers["Authorization"] = f"token {token}"
    for kind in ("branches", "tags"):
        page, found = 0, None
        while found is None or found:
            page += 1
            with urlopen(Request(f"{_GITHUB_API}/{owner}/{name}/{kind}?per_page=100&page={page}", headers=headers)) as answer:
                found = json.loads(answer.read())
            if any(ref == one["name"] or one["commit"]["sha"].startswith(ref) for one in found):
                return
    raise ValueError(
        f"Cannot find {ref} in {_GITHUB}/{owner}/{name}. If it's a commit from a forked repo, please call hub.load() with forked repo directly."
    )


def _check_trusted(owner: str, name: str, trust_repo: Any, calling: str) -> None:
    """Ask the user where that is wanted. Exception where he says no."""
    hub_dir, repository = Path(get_dir()), f"{owner}_{name}"
    file = hub_dir / "trusted_list"
    file.touch()
    trusted = file.read_text().split("\n")
    # What was fetched before there was a list is trusted.
    trusted += ["_".join(found.name.split("_")[:2]) for found in hub_dir.iterdir()]
    known = repository in trusted or owner in _TRUSTED_OWNERS
    if trust_repo is None and not known:
        warnings.warn(
            f"You are about to download and run code from an untrusted repository. In a future release, this won't be allowed. To add the repository "
            f"to your trusted list, change the command to {calling}(..., trust_repo=False) and a command prompt will appear asking for an explicit "
            f"confirmation of trust, or {calling}(..., trust_repo=True), which will assume that the prompt is to be answered with 'yes'. You can "
            f"also use {calling}(..., trust_repo='check') which will only prompt for confirmation if the repo is not already trusted. This will "
            "eventually be the default behaviour",
            stacklevel=3,
        )
        return
    if trust_repo is False or (trust_repo == "check" and not known):
        question = "Do you trust this repository and wish to add it to the trusted list of repositories (y/N)?"
        answer = input(_UNTRUSTED.format(repository) + question).lower()
        if answer in ("y", "yes"):
            if known:
                print("The repository is already trusted.")
        elif answer in ("n", "no", ""):
            raise Exception("Untrusted repository.")
        else:
            raise ValueError(f"Unrecognized response {answer}.")
    if trust_repo is not None and not known:
        with file.open("a") as out:
            out.write(repository + "\n")


# ---------------------------------------------------------------------- files


def download_url_to_file(url: str, dst: str, hash_prefix: str | None = None, progress: bool = True) -> None:
    """Fetch `url` into the file `dst`, which is there whole or not at all. hash_prefix: the beginning of its SHA-256, in hexadecimal digits, else
    RuntimeError. progress: show a bar where `tqdm` is installed."""
    with urlopen(Request(url, headers={"User-Agent": "torch.hub"})) as answer:
        length = answer.headers.get("Content-Length")
        digest = hashlib.sha256()
        scratch = _scratch_beside(os.path.expanduser(dst))
        try:
            with os.fdopen(scratch[0], "wb") as out, _bar(int(length) if length else None, progress) as advance:
                while chunk := answer.read(READ_DATA_CHUNK):
                    out.write(chunk)
                    digest.update(chunk)
                    advance(len(chunk))
            found = digest.hexdigest()
            if hash_prefix is not None and found[: len(hash_prefix)] != hash_prefix:
                raise RuntimeError(f'invalid hash value (expected "{hash_prefix}", got "{found}")')
            shutil.move(scratch[1], os.path.expanduser(dst))
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.remove(scratch[1])


def _scratch_beside(dst: str) -> tuple[int, str]:
    """A new file in the folder of `dst`, so that moving it there is one step, with the rights that `open` would give it."""
    for _ in range(tempfile.TMP_MAX):
        path = f"{dst}.{os.urandom(16).hex()}.partial"
        with contextlib.suppress(FileExistsError):
            return os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666), path
    raise FileExistsError(errno.EEXIST, "No usable temporary file name found")


@contextlib.contextmanager
def _bar(total: int | None, wanted: bool) -> Iterator[Callable[[int], Any]]:
    if not wanted or importlib.util.find_spec("tqdm") is None:
        yield lambda count: None
        return
    from tqdm import tqdm

    with tqdm(total=total, unit="B", unit_scale=True, unit_divisor=1024) as bar:
        yield bar.update


def load_state_dict_from_url(
    url: str, model_dir: str | None = None, map_location: Any = None, progress: bool = True, check_hash: bool = False, file_name: str | None = None,
    weights_only: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """What `torch.load` makes of the file at `url`, which is fetched once and kept in `model_dir` (`get_dir()`/checkpoints without).

    check_hash: the file's name says the beginning of its SHA-256, as in ``name-0123abcd.pth``, which is compared. The others are `torch.load`'s.
    """
    if os.getenv("TORCH_MODEL_ZOO"):
        warnings.warn("TORCH_MODEL_ZOO is deprecated, please use env TORCH_HOME instead", stacklevel=2)
    if model_dir is None:
        model_dir = os.path.join(get_dir(), "checkpoints")
    os.makedirs(model_dir, exist_ok=True)
    name = file_name if file_name is not None else os.path.basename(urlparse(url).path)
    cached = os.path.join(model_dir, name)
    if not os.path.exists(cached):
        sys.stderr.write(f'Downloading: "{url}" to {cached}\n')
        said = HASH_REGEX.search(name) if check_hash else None
        download_url_to_file(url, cached, said.group(1) if said else None, progress=progress)
    return torchgrad_jax.load(cached, map_location=map_location, weights_only=weights_only)  # type: ignore[attr-defined] - gathered when imported
