import copy
import json

import pytest

from allennlp_elmo_plugin.bilm.options import BiLmOptions
from tests.support.bilm_tf import REFERENCE

OPTIONS = json.loads((REFERENCE / "checkpoint" / "options.json").read_text())


def changed(path, value):
    section = options = copy.deepcopy(OPTIONS)
    *names, last = path.split(".")
    for name in names:
        section = section[name]
    section[last] = value
    return options


def test_reads_and_writes_what_bilm_tf_writes(tmp_path):
    options = BiLmOptions.from_dict(OPTIONS)
    options.write(tmp_path / "options.json")
    assert BiLmOptions.from_file(tmp_path / "options.json") == options
    written = json.loads((tmp_path / "options.json").read_text())
    expected = json.loads((REFERENCE / "checkpoint" / "options_inference.json").read_text())
    assert written == {**expected, "share_embedding_softmax": False}
    assert (options.lstm_dim, options.projection_dim, options.n_layers) == (16, 8, 2)
    assert options.char_cnn.n_filters == 28 and options.char_cnn.filters[1:] == ((2, 8), (3, 16))
    assert options.architecture["projects"] == [True, True]


def test_missing_keys_mean_bilm_tfs_defaults():
    options = BiLmOptions.from_dict({"lstm": {"dim": 8, "projection_dim": 8}})
    assert options == BiLmOptions(
        *(8, 8, 1, None, None, False, None, True, 0.0, None, True, 8192, False), training={}
    )
    assert BiLmOptions.from_dict(changed("char_cnn.n_highway", None)).char_cnn.n_highway == 0
    assert BiLmOptions.from_dict(changed("char_cnn.activation", None)).char_cnn.activation == "relu"
    null = BiLmOptions.from_dict({**OPTIONS, "dropout": None, "char_cnn": None})
    assert null.dropout == 0.0 and null.char_cnn is None
    # Published options are of both directions; those of a training say so.
    training = changed("bidirectional", None)
    assert BiLmOptions.from_dict(training).directions == ["forward"]
    del training["unroll_steps"]
    assert BiLmOptions.from_dict(training).directions == ["forward", "backward"]


WHOLE = "must be a whole number from 1 to 2147483647, but is"
PAIRS = r"must be a list of \[width, number\] pairs, whole numbers from 1"
N_CHARACTERS = "must be 261 .in training. or 262.*such as cl-tohoku's Japanese ELMo"
INFINITE = float("inf"), float("nan"), 10**400
MISTAKES = [
    ("lstm", "must be a JSON object", 3),
    ("lstm.dim", "is missing", None),
    ("lstm.dim", WHOLE, "16", True, 0, -1, 16.5, 2**31, *INFINITE),
    ("lstm.dim", rf"{WHOLE} \[1.*\.\.\.\]$", [1] * 10**6),
    ("lstm.cell_clip", "must be a number above 0, or null, but is", 0, -1, True, *INFINITE),
    ("lstm.projection_dim", r"\(17\) must not exceed .lstm.dim. \(16\)", 17),
    ("lstm.use_skip_connections", "must be true or false", 1),
    ("lstm.cell_clp", "is not known", 3),
    ("char_cnn.max_characters_per_token", "must be a whole number from 3 to 1000, but is", 2, 1001),
    ("char_cnn.filters", PAIRS, [], [[1, 2**31]], [[1, True]], [[0, 4]], "[[1, 4]]", [[1, 2, 3]]),
    ("char_cnn.filters", "has width 51, more than 50 characters", [[51, 2], [1, 2]]),
    ("char_cnn.embedding", "must be a JSON object", [4]),
    ("char_cnn.embedding.dim", "is missing", None),
    ("char_cnn.n_characters", N_CHARACTERS, 260, 263),
    ("char_cnn.n_highway", "must be a whole number from 0 to", -1),
    ("char_cnn.activation", 'must be "relu" or "tanh"', "gelu"),
    ("dropout", "must be a number, at least 0 and below 1, but is", float("nan"), True, 1.0, -0.1),
    ("share_embedding_softmax", "needs a token embedding", True),
]


def test_errors_name_source_and_key(tmp_path):
    for path, message, *values in MISTAKES:
        for value in values:
            with pytest.raises(ValueError, match=f'^my.json: "{path}" {message}'):
                BiLmOptions.from_dict(changed(path, value), source="my.json")
    (tmp_path / "options.json").write_text('{"lstm": {"dim": NaN}}')
    with pytest.raises(ValueError, match="options.json: .*NaN is not a finite number"):
        BiLmOptions.from_file(tmp_path / "options.json")


def test_bounds_are_included_and_unknown_keys_warned_about(caplog):
    lstm = {"dim": 1, "projection_dim": 1, "n_layers": 1, "cell_clip": 1e-9}
    char_cnn = {"filters": [[3, 1]], "embedding": {"dim": 1}, "n_highway": 0}
    char_cnn["max_characters_per_token"] = 3
    BiLmOptions.from_dict({"lstm": lstm, "char_cnn": char_cnn, "dropout": 0})
    BiLmOptions.from_dict(changed("char_cnn.max_characters_per_token", 1000))
    assert not caplog.records
    BiLmOptions.from_dict(changed("n_negative_samples\n", 3))
    assert r"n_negative_samples\\n" in caplog.text
