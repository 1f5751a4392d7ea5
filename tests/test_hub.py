"""`torch.hub`: folders, repositories that are served here in GitHub's place, downloads."""

import hashlib
import http.server
import io
import json
import threading
import zipfile

import pytest

from torchgrad_jax import hub

pytestmark = pytest.mark.operators

HUBCONF = '''
dependencies = ["math"]
import beside_hubconf
def model(n=2, pretrained=False):
    """Docs of model."""
    return beside_hubconf.made(n), pretrained
def _hidden():
    pass
const = 3
'''


@pytest.fixture
def repository(tmp_path, monkeypatch):
    folder = tmp_path / "repository"
    folder.mkdir()
    (folder / "hubconf.py").write_text(HUBCONF)
    (folder / "beside_hubconf.py").write_text("def made(n):\n    return [n]\n")
    monkeypatch.delitem(__import__("sys").modules, "beside_hubconf", raising=False)
    return folder


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(hub, "_hub_dir", None)
    return tmp_path / "home" / "hub"


@pytest.fixture
def served(repository, monkeypatch):
    """What an address gives, by path; the hub is told that GitHub is here."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for file in repository.iterdir():
            if file.is_file():
                archive.write(file, f"name-0123abc/{file.name}")
    commit = {"name": "main", "commit": {"sha": "0123abcdef"}}
    pages = {
        "/owner/name/tree/main/": b"",
        "/owner/name/zipball/main": packed.getvalue(),
        "/api/owner/name/branches?per_page=100&page=1": json.dumps([commit]).encode(),
        "/weights.bin": b"12345" * 100,
    }
    asked = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append((self.path, self.headers["User-Agent"]))
            found = pages.get(self.path, b"[]" if "/api/" in self.path else None)
            self.send_response(404 if found is None else 200)
            self.send_header("Content-Length", str(len(found or b"")))
            self.end_headers()
            self.wfile.write(found or b"")

        def log_message(self, *args):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_address[1]}"
    monkeypatch.setattr(hub, "_GITHUB", address)
    monkeypatch.setattr(hub, "_GITHUB_API", f"{address}/api")
    yield address, asked
    server.shutdown()
    server.server_close()


def test_a_folder(repository):
    assert hub.load(str(repository), "model", 3, pretrained=True, source="local") == ([3], True)
    with pytest.raises(RuntimeError, match="^Cannot find callable const in hubconf$"):
        hub.load(str(repository), "const", source="local")
    with pytest.raises(ValueError, match='^Unknown source: "folder". Allowed values: "github" | "local".$'):
        hub.load(str(repository), "model", source="folder")
    with pytest.raises(ValueError, match="should be a string"):
        hub.load(str(repository), 3, source="local")
    (repository / "hubconf.py").write_text('dependencies = ["no_such_1", "no_such_2"]\ndef model(): pass\n')
    with pytest.raises(RuntimeError, match="^Missing dependencies: no_such_1, no_such_2$"):
        hub.load(str(repository), "model", source="local")


def test_where_things_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(hub, "_hub_dir", None)
    monkeypatch.delenv("TORCH_HOME", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert hub.get_dir() == f"{tmp_path}/torch/hub"
    hub.set_dir(tmp_path / "mine")
    assert hub.get_dir() == f"{tmp_path}/mine"


def test_a_repository_is_fetched_once_and_kept(home, served, capsys):
    address, asked = served
    assert hub.load("owner/name", "model", trust_repo=True) == ([2], False)
    assert capsys.readouterr().err == f'Downloading: "{address}/owner/name/zipball/main" to {home}/main.zip\n'
    assert sorted(p.name for p in home.iterdir()) == ["owner_name_main", "trusted_list"] and (home / "trusted_list").read_text() == "owner_name\n"
    count = len(asked)
    assert hub.list("owner/name:main") == ["model"] and hub.help("owner/name:main", "model") == "Docs of model."
    assert len(asked) == count and capsys.readouterr().err == f"Using cache found in {home}/owner_name_main\n" * 2
    assert hub.list("owner/name:main", verbose=False, force_reload=True) == ["model"] and len(asked) > count


def test_who_is_trusted_is_asked(home, served, monkeypatch):
    questions = []
    monkeypatch.setattr("builtins.input", lambda question: questions.append(question) or "n")
    with pytest.raises(Exception, match="^Untrusted repository.$"):
        hub.load("owner/name:main", "model")
    assert questions[0].startswith("The repository owner_name does not belong to the list of trusted repositories") and not served[1]
    monkeypatch.setattr("builtins.input", lambda question: "y")
    assert hub.load("owner/name:main", "model") == ([2], False)
    monkeypatch.setattr("builtins.input", lambda question: pytest.fail("asked again"))
    assert hub.load("owner/name:main", "model") == ([2], False)


def test_a_ref_of_a_fork_is_refused(home, served):
    with pytest.raises(ValueError, match="^Cannot find fork in http://.*/owner/name. If it's a commit from a forked repo"):
        hub.load("owner/name:fork", "model", trust_repo=True)


def test_without_network(home, monkeypatch):
    monkeypatch.setattr(hub, "_GITHUB", "http://127.0.0.1:1")
    with pytest.raises(RuntimeError, match="no internet connection and the repo could not be found in the cache"):
        hub.load("owner/name", "model", trust_repo=True)


def test_downloads_are_whole_or_not_there(tmp_path, served):
    address, asked = served
    content = b"12345" * 100
    digest = hashlib.sha256(content).hexdigest()
    hub.download_url_to_file(f"{address}/weights.bin", str(tmp_path / "w"), digest[:8], progress=False)
    assert (tmp_path / "w").read_bytes() == content and asked[-1] == ("/weights.bin", "torch.hub")
    with pytest.raises(RuntimeError, match=f'^invalid hash value \\(expected "0000", got "{digest}"\\)$'):
        hub.download_url_to_file(f"{address}/weights.bin", str(tmp_path / "x"), "0000", progress=False)
    assert sorted(p.name for p in tmp_path.iterdir() if p.is_file()) == ["w"]


def test_weights_are_fetched_once(home, served, monkeypatch, capsys):
    address, asked = served
    loaded = []
    monkeypatch.setattr("torchgrad_jax.load", lambda file, **options: loaded.append((file, options)) or "weights", raising=False)
    for _ in range(2):
        assert hub.load_state_dict_from_url(f"{address}/weights.bin", progress=False, map_location="cpu") == "weights"
    assert loaded == [(f"{home}/checkpoints/weights.bin", {"map_location": "cpu", "weights_only": False})] * 2 and len(asked) == 1
    digest = hashlib.sha256(b"12345" * 100).hexdigest()[:10]
    with pytest.raises(RuntimeError, match="invalid hash value"):
        hub.load_state_dict_from_url(f"{address}/weights.bin", file_name="w-0123456789.bin", check_hash=True, progress=False)
    hub.load_state_dict_from_url(f"{address}/weights.bin", file_name=f"w-{digest}.bin", check_hash=True, progress=False)
    assert sorted(p.name for p in (home / "checkpoints").iterdir()) == [f"w-{digest}.bin", "weights.bin"]
