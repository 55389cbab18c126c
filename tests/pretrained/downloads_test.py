"""What an address or a short name gives with and without a connection."""

import pytest
import requests
from allennlp.common.checks import ConfigurationError
from cached_path.util import resource_to_filename

from allennlp_elmo_plugin import Elmo
from allennlp_elmo_plugin.pretrained.downloads import cached_path

ADDRESS = "http://localhost:9/elmo_options.json"


@pytest.mark.parametrize("value", ["small", ADDRESS])
def test_offline(monkeypatch, value):
    def cached_path(address, cache_dir):
        raise requests.exceptions.ConnectionError("no route to host")

    monkeypatch.setattr("requests.head", lambda *_, **__: None)
    monkeypatch.setattr("cached_path.cached_path", cached_path)
    message = "^cannot download http.*no route to host.*Without a connection"
    with pytest.raises(ConfigurationError, match=message):
        Elmo(value)


def test_without_a_connection_what_was_downloaded_before_is_used_at_once(
    tmp_path, monkeypatch, caplog
):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("time.sleep", lambda _: pytest.fail("waits"))
    monkeypatch.setattr("allennlp.common.file_utils.CACHE_DIRECTORY", str(tmp_path))
    path = tmp_path / resource_to_filename(ADDRESS, "an etag")
    path.write_text("{}", encoding="utf-8")
    assert cached_path(ADDRESS) == str(path)
    assert "as it was downloaded before" in caplog.text
