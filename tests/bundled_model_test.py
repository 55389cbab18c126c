"""The model `tiny` in the package: found by its name, without network and other arguments."""

import logging
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy
import pytest
from allennlp.commands import main
from allennlp.common.checks import ConfigurationError

from allennlp_elmo_plugin import Elmo, ElmoEmbedder, batch_to_ids
from allennlp_elmo_plugin.bilm.checkpoints.saved_variables import open_weights, read_options
from allennlp_elmo_plugin.files.json_file import read_json_object
from allennlp_elmo_plugin.models.model_card import facts_of
from allennlp_elmo_plugin.models.pretrained import read_pretrained
from allennlp_elmo_plugin.modules import ElmoTokenEmbedder, elmo_files
from allennlp_elmo_plugin.modules.configs import elmo_model
from allennlp_elmo_plugin.modules.elmo_files import (
    DEFAULT_WEIGHT_FILE,
    ElmoFiles,
    local_files,
    or_bundled,
)
from tests.support.testing import write_random_elmo

PACKAGED = elmo_files.BUNDLED_MODEL
MAX_BYTES = 6 * 10**6


@pytest.fixture(params=["random", "packaged"])
def tiny(request: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the model, or of a random one in its place; nothing can be downloaded."""
    monkeypatch.setattr("socket.socket.connect", lambda *_: pytest.fail("connected"))
    if request.param == "random":
        (tmp_path / "packaged").mkdir()
        write_random_elmo(tmp_path / "packaged")
        monkeypatch.setattr(elmo_files, "BUNDLED_MODEL", tmp_path / "packaged")
    monkeypatch.chdir(tmp_path)
    return elmo_files.BUNDLED_MODEL


def test_by_its_name(tiny: Path) -> None:
    files = ElmoFiles(str(tiny / "options.json"), str(tiny / "weights.hdf5"))
    for names in (("tiny",), ("tiny", "tiny"), ("tiny", DEFAULT_WEIGHT_FILE)):
        assert ElmoFiles.find(*names) == files
    elmo = Elmo("tiny")
    dim = elmo.get_output_dim()
    (found,) = elmo(batch_to_ids([["A", "sentence"]]))["elmo_representations"]
    assert found.shape == (1, 2, dim)
    assert elmo_model("tiny") == {"options_file": "tiny", "weight_file": "tiny", "dim": dim}
    assert ElmoTokenEmbedder("tiny").get_output_dim() == dim
    assert read_pretrained("tiny").bilm.get_output_dim() == dim
    assert local_files("tiny") == [*files] and not local_files("small")


def test_where_no_model_is_named(tiny: Path, caplog: Any) -> None:
    layers = ElmoEmbedder().embed_sentence(["A", "sentence"])
    (record,) = [each for each in caplog.records if "No model was named" in each.message]
    assert record.levelno == logging.WARNING and '"tiny"' in record.message
    assert '"original"' in record.message
    caplog.clear()
    assert (ElmoEmbedder("tiny").embed_sentence(["A", "sentence"]) == layers).all()
    assert "No model" not in caplog.text


def test_command(tiny: Path, monkeypatch: pytest.MonkeyPatch, caplog: Any) -> None:
    Path("in.txt").write_text("A sentence\n", encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["allennlp", "elmo", "in.txt", "out.hdf5", "--all"])
    main()
    assert 'using "tiny"' in caplog.text
    expected = ElmoEmbedder("tiny").embed_sentence(["A", "sentence"])  # (3, 2, dim)
    with h5py.File("out.hdf5") as file:
        numpy.testing.assert_allclose(file["0"][...], expected, rtol=0, atol=5e-7)


def test_a_folder_of_this_name(tiny: Path) -> None:
    """Who names `tiny` means a model in such a folder; who names nothing doesn't."""
    Path("tiny").mkdir()
    assert ElmoFiles.find("tiny").options_file == str(tiny / "options.json")
    write_random_elmo("tiny", projection_dim=3)
    assert ElmoFiles.find("tiny").options_file == "tiny/options.json"
    assert or_bundled(None, None) == (str(tiny), str(tiny))


def test_who_names_one_file_names_a_model() -> None:
    for names in (("a.json", None), (None, "a.hdf5"), ("a.json", "a.hdf5")):
        assert or_bundled(*names) == names


def test_elmo_needs_a_name() -> None:
    """In a task model, the vectors' size is part of the architecture: nothing is chosen there."""
    with pytest.raises(ConfigurationError, match='"tiny", "original"'):
        Elmo(None)


def test_size_and_card() -> None:
    names = {path.name for path in PACKAGED.iterdir()}
    assert names == {"options.json", "weights.hdf5", "README.md"}
    assert sum(path.stat().st_size for path in PACKAGED.iterdir()) <= MAX_BYTES
    weight_file = PACKAGED / "weights.hdf5"
    with open_weights(weight_file) as variables:
        values = read_json_object(PACKAGED / "options.json")
        options = read_options(values, "options.json", variables)
    card = (PACKAGED / "README.md").read_text(encoding="utf-8")
    for key, value in facts_of(options, weight_file).items():
        assert f"| {key} | {value} |" in card
    assert "to be filled in" not in card and "CC BY-SA" in card
