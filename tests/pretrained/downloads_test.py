"""What an address or a short name gives with and without a connection."""

import hashlib
import json
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import requests
from cached_path.util import resource_to_filename

from allennlp_elmo_plugin import Elmo
from allennlp_elmo_plugin.pretrained.downloads import cached_path
from allennlp_elmo_plugin.pretrained.find_model import BUNDLED_MODEL

ADDRESS = "http://localhost:9/elmo_options.json"


class Hub(BaseHTTPRequestHandler):
    """A Hugging Face Hub that has the bundled model as `user/model`."""

    def do_GET(self):
        name = self.path.split("/")[-1]
        content = b""
        names = [*(path.name for path in BUNDLED_MODEL.iterdir()), "model.bin"]
        if self.path.startswith("/api/models/user/model/revision/main"):
            files = [{"rfilename": name} for name in names]
            content = json.dumps({"id": "user/model", "sha": "5" * 40, "siblings": files}).encode()
        elif self.path.startswith("/api/models/user/model/tree/"):  # asked by later versions
            files = [{"type": "file", "path": name, "size": 1, "oid": name} for name in names]
            content = json.dumps(files).encode()
        elif self.path.startswith("/user/model/resolve/") and (BUNDLED_MODEL / name).is_file():
            content = (BUNDLED_MODEL / name).read_bytes()
        self.send_response(200 if content else 404)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("ETag", f'"{hashlib.sha1(content).hexdigest()}"')
        self.send_header("X-Repo-Commit", "5" * 40)
        self.send_header("X-Error-Code", "" if content else "RepoNotFound")
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    do_HEAD = do_GET


def test_a_model_on_the_hub(tmp_path, subprocess_environment):
    """By its name, and by that of its options; then without a connection."""
    with ThreadingHTTPServer(("localhost", 0), Hub) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        hub = {"HF_ENDPOINT": f"http://localhost:{server.server_port}", "HF_HOME": str(tmp_path)}
        environment = {**subprocess_environment, **hub}
        program = """
import numpy as np
from allennlp_elmo_plugin import ElmoEmbedder

expected = ElmoEmbedder("tiny").embed_sentence(["A", "sentence"])
for name in ("hf://user/model", "hf://user/model/options.json"):
    assert np.array_equal(ElmoEmbedder(name).embed_sentence(["A", "sentence"]), expected)
try:
    ElmoEmbedder("hf://user/other")
except ValueError as error:
    assert "cannot download hf://user/other (RepositoryNotFoundError: " in str(error), error
"""
        subprocess.run([sys.executable, "-c", program], env=environment, check=True)
        server.shutdown()
    downloaded = {path.name for path in Path(tmp_path).rglob("snapshots/*/*")}
    assert {"options.json", "weights.hdf5"} <= downloaded and "model.bin" not in downloaded
    program, _ = program.split("try:")
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)


@pytest.mark.parametrize("value", ["small", ADDRESS])
def test_offline(monkeypatch, value):
    def cached_path(address, cache_dir):
        raise requests.exceptions.ConnectionError("no route to host")

    monkeypatch.setattr("requests.head", lambda *_, **__: None)
    monkeypatch.setattr("cached_path.cached_path", cached_path)
    message = "^cannot download http.*no route to host.*Without a connection"
    with pytest.raises(ValueError, match=message):
        Elmo(value)


def test_an_earlier_download_is_used_at_once(tmp_path, monkeypatch, caplog):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("time.sleep", lambda _: pytest.fail("waits"))
    monkeypatch.setattr("allennlp.common.file_utils.CACHE_DIRECTORY", str(tmp_path))
    path = tmp_path / resource_to_filename(ADDRESS, "an etag")
    path.write_text("{}", encoding="utf-8")
    assert cached_path(ADDRESS) == str(path)
    assert "as it was downloaded before" in caplog.text


def test_without_the_package_cached_path(tmp_path, monkeypatch):
    """Each file is downloaded once, by torch."""
    asked = []

    def download(address, path):
        asked.append(address)
        Path(path).touch()

    monkeypatch.setitem(sys.modules, "cached_path", None)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setattr("torch.hub.download_url_to_file", download)
    (path,) = {cached_path(ADDRESS) for _ in range(2)}
    assert asked == [ADDRESS] and Path(path).is_relative_to(tmp_path)
    with pytest.raises(ValueError, match="only http.s. is read without cached_path: pip"):
        cached_path("s3://bucket/options.json")


@pytest.mark.parametrize(
    "address, package", [("hf://user/model", "huggingface_hub"), ("s3://a/b", "cached_path")]
)
def test_a_missing_package_is_named(monkeypatch, address, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ValueError, match=rf"{package}\b.*: pip install {package}"):
        cached_path(address)
