"""What an address or a short name gives with and without a connection."""

import sys
from pathlib import Path
from unittest.mock import create_autospec

import huggingface_hub
import numpy as np
import pytest
import requests
from allennlp.common.checks import ConfigurationError
from cached_path.util import resource_to_filename

from allennlp_elmo_plugin import Elmo, ElmoEmbedder
from allennlp_elmo_plugin.pretrained.downloads import cached_path
from allennlp_elmo_plugin.pretrained.file_names import PATTERNS
from allennlp_elmo_plugin.pretrained.find_model import BUNDLED_MODEL

ADDRESS = "http://localhost:9/elmo_options.json"


def test_a_model_on_the_hub(monkeypatch):
    """By its name, with no other files than a model's, and by that of its options."""
    names = {"snapshot_download": lambda *_, **__: str(BUNDLED_MODEL)}
    names["hf_hub_download"] = lambda _, name: str(BUNDLED_MODEL / name)
    for name, download in names.items():
        download = create_autospec(getattr(huggingface_hub, name), side_effect=download)
        monkeypatch.setattr(huggingface_hub, name, download)
    expected = ElmoEmbedder("tiny").embed_sentence(["A", "sentence"])
    for name in ("hf://user/model", "hf://user/model/options.json"):
        assert np.array_equal(ElmoEmbedder(name).embed_sentence(["A", "sentence"]), expected)
    snapshots = huggingface_hub.snapshot_download
    snapshots.assert_called_once_with("user/model", allow_patterns=[*PATTERNS])
    files = [call.args for call in huggingface_hub.hf_hub_download.call_args_list]
    assert files == [("user/model", "options.json"), ("user/model", "weights.hdf5")]


@pytest.mark.parametrize("value", ["small", ADDRESS])
def test_offline(monkeypatch, value):
    def cached_path(address, cache_dir):
        raise requests.exceptions.ConnectionError("no route to host")

    monkeypatch.setattr("requests.head", lambda *_, **__: None)
    monkeypatch.setattr("cached_path.cached_path", cached_path)
    message = "^cannot download http.*no route to host.*Without a connection"
    with pytest.raises(ConfigurationError, match=message):
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
    with pytest.raises(ValueError, match="only http.s. can be read without the package cached_pat"):
        cached_path("s3://bucket/options.json")
