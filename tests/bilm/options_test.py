import copy
import json
from dataclasses import replace

import pytest

from allennlp_elmo_plugin.bilm.options import BiLmOptions

OPTIONS = {
    "bidirectional": True,
    "char_cnn": {
        "activation": "relu",
        "embedding": {"dim": 4},
        "filters": [[1, 4], [2, 8]],
        "max_characters_per_token": 50,
        "n_characters": 261,
        "n_highway": 1,
    },
    "dropout": 0.1,
    "lstm": {
        "cell_clip": 3,
        "dim": 16,
        "n_layers": 2,
        "proj_clip": 3,
        "projection_dim": 8,
        "use_skip_connections": True,
    },
    "all_clip_norm_val": 10.0,
    "n_tokens_vocab": 50,
    "unroll_steps": 20,
}


def changed(path, value):
    options = copy.deepcopy(OPTIONS)
    section = options
    *names, last = path.split(".")
    for name in names:
        section = section[name]
    if value is None:
        del section[last]
    else:
        section[last] = value
    return options


def test_reads_and_writes_what_bilm_tf_writes(tmp_path):
    options = BiLmOptions.from_dict(OPTIONS)
    assert (options.lstm_dim, options.projection_dim, options.n_layers) == (16, 8, 2)
    assert (options.cell_clip, options.proj_clip, options.dropout) == (3.0, 3.0, 0.1)
    assert options.char_cnn.n_filters == 12 and options.char_cnn.filters == ((1, 4), (2, 8))
    assert options.to_dict()["char_cnn"]["filters"] == [[1, 4], [2, 8]]
    assert options.directions == ["forward", "backward"]
    options.write(tmp_path / "options.json")
    assert BiLmOptions.from_file(tmp_path / "options.json") == options
    written = json.loads((tmp_path / "options.json").read_text())
    assert written["char_cnn"].pop("n_characters") == 262
    expected = copy.deepcopy(OPTIONS)
    expected["char_cnn"].pop("n_characters")
    assert {key: written[key] for key in expected} == expected


def test_missing_keys_mean_bilm_tfs_defaults():
    options = BiLmOptions.from_dict({"lstm": {"dim": 8, "projection_dim": 8}})
    assert options.n_layers == 1 and not options.use_skip_connections
    assert options.cell_clip is None and options.proj_clip is None
    assert options.bidirectional and options.dropout == 0.0 and options.training == {}
    assert BiLmOptions.from_dict(changed("char_cnn.n_highway", None)).char_cnn.n_highway == 0
    assert BiLmOptions.from_dict(changed("char_cnn.activation", None)).char_cnn.activation == "relu"
    null = BiLmOptions.from_dict({**OPTIONS, "dropout": None, "char_cnn": None})
    assert null.dropout == 0.0 and null.char_cnn is None


def test_projections_are_there_where_sizes_differ_or_it_is_said():
    options = BiLmOptions.from_dict(OPTIONS)
    assert options.projects_lstm and options.projects_characters
    same = replace(options, projection_dim=16, char_cnn=None)
    assert not same.projects_lstm and not same.projects_characters
    said = replace(same, project_lstm=True, project_characters=True)
    assert said.projects_lstm and said.projects_characters
    assert not replace(options, projection_dim=12).projects_characters


def test_bounds_are_included():
    for path, value in (
        ("char_cnn.max_characters_per_token", 3),
        ("char_cnn.max_characters_per_token", 1000),
        ("char_cnn.filters", [[50, 1]]),
        ("char_cnn.n_highway", 0),
        ("lstm.projection_dim", 16),
        ("lstm.n_layers", 1),
        ("lstm.cell_clip", 1e-9),
        ("dropout", 0),
    ):
        BiLmOptions.from_dict(changed(path, value))


def test_the_architecture_is_what_the_layers_depend_on():
    own = BiLmOptions.from_dict(OPTIONS).architecture
    for path, value in (("dropout", 0.5), ("n_tokens_vocab", 7), ("char_cnn.n_characters", 262)):
        assert BiLmOptions.from_dict(changed(path, value)).architecture == own
    for path, value in (("lstm.cell_clip", 4), ("bidirectional", False), ("char_cnn", None)):
        assert BiLmOptions.from_dict(changed(path, value)).architecture != own
    assert replace(BiLmOptions.from_dict(OPTIONS), project_lstm=False).architecture != own


def test_published_options_are_bidirectional_and_training_options_say_so():
    training = changed("bidirectional", None)
    assert not BiLmOptions.from_dict(training).bidirectional
    del training["unroll_steps"]
    assert BiLmOptions.from_dict(training).bidirectional


WHOLE = "must be a whole number from 1 to 2147483647, but is"
CLIP = "must be a number above 0, or null, but is"
PAIRS = r"must be a list of \[width, number\] pairs, whole numbers from 1"


@pytest.mark.parametrize(
    "path, value, message",
    [
        ("lstm", 3, '"lstm" must be a JSON object'),
        ("lstm.dim", None, '"lstm.dim" is missing'),
        *(
            ("lstm.dim", value, f'"lstm.dim" {WHOLE}')
            for value in ("16", True, 0, -16, 16.5, float("inf"), float("nan"), 10**400, 2**31)
        ),
        ("lstm.dim", [1] * 10**6, rf'"lstm.dim" {WHOLE} \[1.*\.\.\.\]$'),
        *(
            ("lstm.cell_clip", value, f'"lstm.cell_clip" {CLIP}')
            for value in (0, -1, float("inf"), 10**400, True)
        ),
        ("lstm.proj_clip", "3", f'"lstm.proj_clip" {CLIP}'),
        ("char_cnn.max_characters_per_token", 1001, "must be a whole number from 3 to 1000"),
        ("char_cnn.max_characters_per_token", 2, "must be a whole number from 3 to 1000"),
        *(
            ("char_cnn.filters", value, f'"char_cnn.filters" {PAIRS}')
            for value in ([], [[1, 2**31]], [[1, True]], [[0, 4]], "[[1, 4]]", [[1, 2, 3]], [1])
        ),
        ("char_cnn.filters", [[51, 2], [1, 2]], "has width 51, more than 50 characters"),
        ("char_cnn.embedding", [4], '"char_cnn.embedding" must be a JSON object'),
        ("char_cnn.embedding", {}, '"char_cnn.embedding.dim" is missing'),
        ("char_cnn.n_characters", 300, '"char_cnn.n_characters" must be 261 .in training. or 262'),
        ("char_cnn.n_highway", -1, "must be a whole number from 0 to"),
        ("char_cnn.activation", "gelu", '"char_cnn.activation" must be "relu" or "tanh"'),
        *(
            ("dropout", value, '"dropout" must be a number, at least 0 and below 1')
            for value in (float("nan"), True, 1.0, -0.1)
        ),
        ("n_negative_samples_batch", -1, f'"n_negative_samples_batch" {WHOLE}'),
        ("lstm.\x1b[31m", 3, r'"lstm.\\u001b\[31m" is not known'),
        ("lstm.cell_clp", 3, '"lstm.cell_clp" is not known'),
        ("char_cnn.filter", [], '"char_cnn.filter" is not known'),
        ("lstm.projection_dim", 17, '"lstm.projection_dim" .17. must not exceed "lstm.dim" .16.'),
        ("lstm.use_skip_connections", 1, "must be true or false"),
        ("share_embedding_softmax", True, "needs a token embedding"),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_errors_name_source_and_key(path, value, message):
    with pytest.raises(ValueError, match="^my.json: .*" + message):
        BiLmOptions.from_dict(changed(path, value), source="my.json")


def test_an_unknown_key_at_the_top_is_warned_about(caplog):
    BiLmOptions.from_dict(changed("n_negative_samples", 3))
    assert "n_negative_samples" in caplog.text


@pytest.mark.parametrize(
    "text, message",
    [
        ("\xff{", "not a JSON file"),
        ("[1]", "must be a JSON object"),
        ('{"lstm": {"dim": 1e999}}', "is not a finite number"),
        ('{"lstm": {"dim": NaN}}', "is not a finite number"),
        ("[" * 100_000, "not a JSON file"),
        ('{"lstm": {"dim": 1, "dim": 2}}', 'the key "dim" is there twice'),
    ],
)
def test_a_file_that_is_no_options(text, message, tmp_path):
    path = tmp_path / "options.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(ValueError, match=f"options.json: .*{message}"):
        BiLmOptions.from_file(path)
