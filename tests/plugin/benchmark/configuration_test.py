import gzip
import shutil
from pathlib import Path

import pytest
from allennlp.common.checks import ConfigurationError

from allennlp_elmo_plugin.commands.elmo_configs import CONFIGS
from allennlp_elmo_plugin.plugin.benchmark.configuration import Configuration
from allennlp_elmo_plugin.plugin.benchmark.task import find_tasks
from tests.support.task_data import FIXTURES
from tests.support.testing import write_random_elmo

VECTORS = Path("vectors.txt")
pytestmark = pytest.mark.usefixtures("folder")


def make(task="sst5", data="data", **changes):
    """The configuration of a task on made data."""
    tasks = find_tasks(Path(data), [task])
    return Configuration(tasks, **{"elmo": "elmo", "folder": CONFIGS / "benchmark", **changes})


def test_models_differ_in_their_words_and_runs_in_their_seeds(monkeypatch):
    monkeypatch.setenv("VECTORS", "theirs.txt")
    monkeypatch.setenv("WORD_DIM", "7")
    zipped = Path("word2vec.gz")
    zipped.write_bytes(gzip.compress(b"2 3\nthe 1 2 3 \nfilm 4 5 6\n"))
    for vectors, models in ((None, []), (VECTORS, ["vectors"]), (zipped, ["vectors"])):
        configuration = make(vectors=vectors)
        assert configuration.models == ["baseline", *models, "elmo"]
        for model in configuration.models:
            params = configuration.params("sst5", model, 4).as_dict(quiet=True)
            words = params["model"]["text_field_embedder"]["token_embedders"]["tokens"]
            path = str(vectors) if vectors and model != "baseline" else None
            expected = (3 if vectors else 50, path)
            assert (words["embedding_dim"], words.get("pretrained_file")) == expected
            assert {params[f"{name}_seed"] for name in ("random", "numpy", "pytorch")} == {4}
            assert ("elmo" in str(params)) == (model == "elmo")


def test_digests_depend_on_contents_not_on_places():
    before = make(vectors=VECTORS).digests("sst5", "elmo")
    assert list(before) == ["config", "data", "elmo", "vectors"]
    assert list(make("srl").digests("srl", "baseline")) == ["config", "data"]
    Path("moved").mkdir()
    for name in ("elmo", "data", "vectors.txt"):
        Path(name).rename(Path("moved", name))

    def changed(**changes):
        moved = {"elmo": "moved/elmo", "vectors": Path("moved/vectors.txt"), "data": "moved/data"}
        digests = make(**{**moved, **changes}).digests("sst5", "elmo")
        return {name for name, value in digests.items() if value != before[name]}

    assert changed() == set()
    assert changed(overrides='{"trainer.num_epochs": 1}') == {"config"}
    assert changed(vectors=None) == {"config", "vectors"}
    with Path("moved/vectors.txt").open("a") as file:
        file.write("a 1 2 3\n")
    assert changed() == {"vectors"}
    write_random_elmo("moved/elmo", seed=1)
    assert changed() == {"vectors", "elmo"}
    Path("moved/data/sst5/test.txt").write_text("(4 fine)", encoding="utf-8")
    assert changed() == {"vectors", "elmo", "data"}
    # A folder of files
    srl = make("srl", "moved/data", elmo="tiny")
    before = srl.digests("srl", "baseline")
    Path("moved/data/srl/test/made.gold_conll").write_text("")
    assert srl.digests("srl", "baseline")["data"] != before["data"]


@pytest.mark.parametrize(
    "task, split, text, message",
    [
        ("ner", "train", "-DOCSTART- -X- -X- O\n\n", "finds no instances in it"),
        ("chunking", "dev", "It PRP B-NP\n\nIt PRP I-NP\n", "fails after 1 instances: InvalidTag"),
        ("sst5", "dev", "(3 good", "fails after 0 instances: ValueError: "),
    ],
)
def test_bad_data_are_found_before_training(task, split, text, message):
    make(task).check([next(iter(make(task).tasks))])
    (file,) = Path("data").glob(f"{task}*/{split}*")
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigurationError, match=rf"{file}: AllenNLP's reader '\w+' {message}"):
        make(task).check([file.parent.name])


@pytest.mark.parametrize(
    "text, place",
    [
        ("(3 fine)\n(3 I like it ( a lot ) .)\n", "line 2: '( a'"),
        ("\n(3 (2 so) (7 good))\n", "line 2: '(7'"),
        ("((3 good) (2 film))\n", "line 1: '('"),
    ],
)
def test_words_that_would_be_read_as_labels_are_found(text, place):
    Path("data/sst5/dev.txt").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigurationError) as raised:
        make().check(["sst5"])
    fix = "has no label from 0 to 4; write brackets of the text as -LRB- and -RRB-"
    assert str(raised.value) == f"data/sst5/dev.txt, {place} {fix}"


@pytest.mark.parametrize("text", [b"", b"the 1 2\n", b"PK\x03\n\xff\xfe 1", b"a b c\nd e f\n"])
def test_what_are_no_word_vectors(text):
    VECTORS.write_bytes(text)
    with pytest.raises(ConfigurationError, match="vectors.txt, line 2: is not a word and its"):
        make(vectors=VECTORS)


def test_own_configs_without_test_data_are_found_before_training():
    Path("own").mkdir()
    for name in ("sst5", "sst5_elmo"):
        source = f"(import 'benchmark/{name}.jsonnet')"
        text = f"local config = {source}; std.prune(config {{ test_data_path: null }})"
        Path("own", f"{name}.jsonnet").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigurationError, match="own/sst5.jsonnet: has no test data.*TEST_DATA"):
        make(folder=Path("own")).check(["sst5"])


def test_validation_and_test_data_may_have_a_reader_of_their_own():
    for name in ("dev", "test"):
        shutil.copy(FIXTURES / "snli.jsonl", f"data/sst5/{name}.txt")
    reader = '{"validation_dataset_reader": {"type": "snli", "tokenizer": "whitespace"}}'
    make(overrides=reader).check(["sst5"])


def test_a_damaged_elmo_is_found_before_training():
    Path("elmo", "weights.hdf5").write_bytes(b"")
    with pytest.raises(ValueError, match="weights.hdf5"):
        make().check(["sst5"])
