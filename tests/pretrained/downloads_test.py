"""What an address or a short name gives with and without a connection."""

import sys
from pathlib import Path
from unittest.mock import create_autospec

import numpy as np
import pytest
import requests
from cached_path.util import resource_to_filename

from allennlp_elmo_plugin import Elmo, ElmoEmbedder
from allennlp_elmo_plugin.pretrained.downloads import cached_path
from allennlp_elmo_plugin.pretrained.file_names import PATTERNS
from allennlp_elmo_plugin.pretrained.find_model import BUNDLED_MODEL

ADDRESS = "http://localhost:9/elmo_options.json"


def test_a_model_on_the_hub(monkeypatch):
    """By its name, and by that of its options; only the files of models are asked for."""
    hub = pytest.importorskip("huggingface_hub")
    folder = f"{BUNDLED_MODEL}/"
    whole = create_autospec(hub.snapshot_download, return_value=folder)
    one = create_autospec(hub.hf_hub_download, side_effect=lambda _, name: folder + name[2:])
    monkeypatch.setattr(hub, "snapshot_download", whole)
    monkeypatch.setattr(hub, "hf_hub_download", one)
    layers = ElmoEmbedder("tiny").embed_sentence(["A", "sentence"])
    for name in ("hf://user/model", "hf://user/model/a/options.json"):
        assert np.array_equal(ElmoEmbedder(name).embed_sentence(["A", "sentence"]), layers)
    whole.assert_called_once_with("user/model", allow_patterns=[*PATTERNS])
    files = {call.args for call in one.mock_calls}
    assert files == {("user/model", "a/options.json"), ("user/model", "a/weights.hdf5")}
    whole.side_effect = OSError("unknown")
    with pytest.raises(ValueError, match="^cannot download hf://user/other .OSError: unknown"):
        ElmoEmbedder("hf://user/other")


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


@pytest.mark.parametrize(
    "address, package", [("hf://user/model", "huggingface_hub"), ("s3://a/b", "cached_path")]
)
def test_a_missing_package_is_named(monkeypatch, address, package):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ValueError, match=rf"{package}\b.*: pip install {package}"):
        cached_path(address)
