import json
import os

import pytest

from allennlp_elmo_plugin.files.json_file import MAX_BYTES, escaped, read_json_object, to_json


@pytest.mark.parametrize(
    "text, message",
    [
        (b'{"lstm": {"dim": 1e999}}', r"\(1e999 is not a finite number"),
        (b'{"a": [1, [-Infinity]]}', r"\(-Infinity is not a finite number"),
        (b'{"dim": -' + b"9" * 4_000_000 + b"}", "Exceeds the limit"),
        (b'{"a": 1, "b": {"\\u001b": 1, "\\u001b": 2}}', r'the key "\\u001b" is there twice'),
        (b'{"a":' * 100_000, "(recursion|Stack overflow)"),
        (b'{"a": "\xff"}', "invalid start byte"),
        (b'{"a": std.extVar("HOME")}', "Expecting value"),
    ],
)
def test_errors_name_the_file(text, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my.json").write_bytes(text)
    with pytest.raises(ValueError, match=r"^my.json: not a JSON file .*" + message) as caught:
        read_json_object("my.json")
    assert len(str(caught.value)) < 300 and str(caught.value).isprintable()


def test_what_is_read(tmp_path):
    path = tmp_path / "options.json"
    path.write_bytes(b'\xef\xbb\xbf{"a": [9223372036854775807, -1, 1e300, "\\ud800"], "b": null}')
    assert read_json_object(path) == {"a": [2**63 - 1, -1, 1e300, "\ud800"], "b": None}
    path.write_text('[{"a": 1}]')
    with pytest.raises(ValueError, match="options.json: .*must be a JSON object"):
        read_json_object(path)
    path.write_text("{}".ljust(MAX_BYTES))
    assert read_json_object(path) == {}
    path.write_text("{}".ljust(MAX_BYTES + 1))
    os.mkfifo(tmp_path / "pipe")
    for name in (path, tmp_path, tmp_path / "pipe", "/dev/zero"):
        with pytest.raises(ValueError, match=f"{name}: not a JSON file of at most 4,194,304 bytes"):
            read_json_object(name)


def test_letters_in_files_and_in_errors():
    values = {"東京": ["naïve", "\udce9", '"\\', "😀"]}
    text = to_json(values)
    assert "東京" in text and '"\\udce9"' in text and "😀" in text
    assert json.loads(text.encode("utf-8")) == values
    assert to_json({"a": 1}) == '{\n  "a": 1\n}'
    assert escaped("naïve\n\x1b") == "na\\u00efve\\n\\u001b"
    assert escaped("x" * 60) == "x" * 60 and escaped("xy" * 31) == "xy" * 30 + "..."
