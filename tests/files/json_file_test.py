import json
import os
import time

import pytest

from allennlp_elmo_plugin.files.json_file import parse_json, read_json_object, shown, to_json


@pytest.mark.parametrize(
    "text, message",
    [
        (b'{"lstm": {"dim": 1e999}}', '"lstm.dim" is not a finite number'),
        (b'{"dropout": NaN}', '"dropout" is not a finite number'),
        (b'{"a": [1, [-Infinity]]}', '"a" is not a finite number'),
        (b'{"dim": ' + b"9" * 400 + b"}", '"dim" is not a finite number'),
        (b'{"dim": ' + b"9" * 5_000_000 + b"}", '"dim" is not a finite number'),
        (b'{"dim": -9223372036854775809}', '"dim" is not a finite number'),
        (b'{"a": 1, "b": {"c": 1, "c": 2}}', 'the key "c" is there twice'),
        (b'{"\\u001b[31m": NaN}', r'"\\u001b\[31m" is not'),
        (b'{"' + b"x" * 1000 + b'": NaN}', r'"x{60}\.\.\." is not'),
        (b"[" * 100_000, "nested more than 64 deep"),
        (b'{"a":' * 100_000, "nested more than 64 deep"),
        (b"[" * 100 + b"]" * 100, "nested more than 64 deep"),
        (b"", "not a JSON file"),
        (b"{", "not a JSON file"),
        (b'{"a": 01}', "not a JSON file"),
        (b'{"a": "\xff"}', "not a JSON file .*invalid start byte"),
        ("{}".encode("utf-16"), "not a JSON file"),
        (b'import "/etc/passwd"', "not a JSON file"),
        (b'{"a": std.extVar("HOME")}', "not a JSON file"),
        (b"local f(x) = f(x + 1); f(0)", "not a JSON file"),
    ],
)
def test_errors_name_the_file_and_the_key(text, message):
    started = time.monotonic()
    with pytest.raises(ValueError, match="^my.json: .*" + message) as caught:
        parse_json(text, "my.json")
    assert len(str(caught.value)) < 300 and str(caught.value).isprintable()
    assert time.monotonic() - started < 5


def test_what_is_read(tmp_path):
    path = tmp_path / "options.json"
    path.write_bytes(b'\xef\xbb\xbf{"a": [9223372036854775807, -1, 1e300, "\\ud800"], "b": null}')
    expected = {"a": [2**63 - 1, -1, 1e300, "\ud800"], "b": None}
    assert read_json_object(path) == expected
    path.write_text('[{"a": 1}]')
    with pytest.raises(ValueError, match="options.json: .*must be a JSON object"):
        read_json_object(path)
    with pytest.raises(ValueError, match="^shown: "):
        read_json_object(path, "shown")


def test_files_that_are_too_large_or_none(tmp_path):
    path = tmp_path / "options.json"
    with open(path, "wb") as file:
        file.truncate(2**40)
    with pytest.raises(ValueError, match="options.json: not a JSON file of options"):
        read_json_object(path)
    with pytest.raises(ValueError, match="not a file"):
        read_json_object(tmp_path)
    with pytest.raises(ValueError, match="/dev/zero: not a file"):
        read_json_object("/dev/zero")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="pipe: not a file"):
        read_json_object(tmp_path / "pipe")
    with pytest.raises(FileNotFoundError):
        read_json_object(tmp_path / "nothing")


def test_shown():
    assert shown("naïve\n\x1b") == "na\\u00efve\\n\\u001b"


def test_to_json() -> None:
    values = {"東京": ["naïve", "\udce9", '"\\', "😀"]}
    text = to_json(values, indent=None)
    assert text == '{"東京": ["naïve", "\\udce9", "\\"\\\\", "😀"]}'
    assert json.loads(text.encode("utf-8")) == values
    assert to_json({"a": 1}) == '{\n  "a": 1\n}'
