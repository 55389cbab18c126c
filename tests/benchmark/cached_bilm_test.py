from pathlib import Path
from types import SimpleNamespace
from typing import List, Tuple

import pytest
import torch
from allennlp.common.checks import ConfigurationError

from allennlp_elmo_plugin import Elmo, batch_to_ids
from allennlp_elmo_plugin.benchmark import cached_bilm
from allennlp_elmo_plugin.benchmark.cached_bilm import CachedBiLm, VectorsOfModels, keep_vectors
from tests.support.testing import write_random_elmo

SENTENCES = [["A", "sentence", "."], ["Two", "words"], ["One"], ["A", "sentence", "."], []]


@pytest.fixture
def files(tmp_path: Path) -> Tuple[str, str]:
    return write_random_elmo(tmp_path)


def _elmo(files: Tuple[str, str], initial_state: str = "settled", **kwargs) -> Elmo:
    return Elmo(*files, 2, dropout=0.0, initial_state=initial_state, **kwargs)


@pytest.mark.parametrize("initial_state", ["settled", "zero"])
def test_same_representations_and_gradients(files: Tuple[str, str], initial_state: str) -> None:
    plain, kept = _elmo(files, initial_state), _elmo(files, initial_state)
    vectors: VectorsOfModels = {}
    keep_vectors(kept, vectors)
    assert isinstance(kept._elmo_lstm, CachedBiLm)
    for batch in (SENTENCES[:2], SENTENCES, SENTENCES[2:], SENTENCES[::-1]):
        ids = batch_to_ids(batch)
        outputs = plain(ids), kept(ids)
        assert torch.equal(outputs[0]["mask"], outputs[1]["mask"])
        for ours, theirs in zip(*(output["elmo_representations"] for output in outputs)):
            mask = outputs[0]["mask"].unsqueeze(-1)
            torch.testing.assert_close(ours * mask, theirs * mask, rtol=1e-5, atol=1e-6)
        for output in outputs:
            mask = output["mask"].unsqueeze(-1)
            sum((each * mask).pow(2).sum() for each in output["elmo_representations"]).backward()
    pairs: List = list(zip(plain._scalar_mixes, kept._scalar_mixes))
    for ours, theirs in pairs:
        for a, b in zip(ours.parameters(), theirs.parameters()):
            assert a.grad.item() != 0
            torch.testing.assert_close(a.grad, b.grad, rtol=1e-4, atol=1e-5)
    assert [len(of_model) for of_model in vectors.values()] == [4]


def test_a_sentence_is_computed_once(
    files: Tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    elmo = _elmo(files)
    bilm, n_sentences = elmo._elmo_lstm, []
    forward = bilm.forward

    def counting(inputs: torch.Tensor):
        n_sentences.append(len(inputs))
        return forward(inputs)

    monkeypatch.setattr(bilm, "forward", counting)
    vectors: VectorsOfModels = {}
    keep_vectors(elmo, vectors)
    for _ in range(2):
        elmo(batch_to_ids(SENTENCES))
    elmo(batch_to_ids([*SENTENCES, ["New"]]))
    other = _elmo(files)
    keep_vectors(other, vectors)
    other(batch_to_ids(SENTENCES))
    assert n_sentences == [4, 1]


def test_other_models_have_other_vectors(files: Tuple[str, str], tmp_path: Path) -> None:
    (tmp_path / "others").mkdir()
    others = write_random_elmo(tmp_path / "others", seed=1)
    elmos = [_elmo(files), _elmo(files, "zero"), _elmo(files, precision="bfloat16"), _elmo(others)]
    ids = batch_to_ids(SENTENCES)
    expected = [elmo(ids)["elmo_representations"][0] for elmo in elmos]
    model, vectors = torch.nn.ModuleList(elmos), {}
    keep_vectors(model, vectors)
    assert len(vectors) == 4
    for elmo, representation in zip(elmos, expected):
        found = elmo(ids)["elmo_representations"][0]
        # In bfloat16 a sum in another order may be rounded to the next number.
        tolerance = 1e-5 if elmo._elmo_lstm._bilm[0].precision == "float32" else 1e-2
        torch.testing.assert_close(found, representation, rtol=tolerance, atol=tolerance)
    assert not any(torch.equal(expected[0], other) for other in expected[1:])


def test_the_language_model_is_not_in_the_checkpoint(files: Tuple[str, str]) -> None:
    elmo = _elmo(files)
    keep_vectors(elmo, {})
    assert all(name.startswith("scalar_mix") for name in elmo.state_dict())
    assert all(parameter.requires_grad for parameter in elmo.parameters())


def test_a_language_model_that_is_trained_stays(files: Tuple[str, str]) -> None:
    elmo = _elmo(files, requires_grad=True)
    bilm = elmo._elmo_lstm
    keep_vectors(elmo, {})
    assert elmo._elmo_lstm is bilm


def test_carried_states_are_refused(files: Tuple[str, str]) -> None:
    with pytest.raises(ConfigurationError, match="initial_state"):
        keep_vectors(_elmo(files, "carried"), {})


def test_a_disk_without_room_keeps_nothing_more(
    files: Tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, kept = _elmo(files), _elmo(files)
    vectors: VectorsOfModels = {}
    keep_vectors(kept, vectors, tmp_path)
    size = kept.bilm.num_layers * kept.bilm.get_output_dim() * 4
    # Room for the 3 words and 2 boundaries of the first sentence
    monkeypatch.setattr(cached_bilm, "disk_usage", lambda _: SimpleNamespace(free=5 * size))
    for _ in range(2):
        ids = batch_to_ids(SENTENCES)
        expected, found = (each(ids)["elmo_representations"][0] for each in (plain, kept))
        mask = plain(ids)["mask"].unsqueeze(-1)
        torch.testing.assert_close(found * mask, expected * mask, rtol=1e-5, atol=1e-6)
        (of_model,) = vectors.values()
        assert len(of_model) == 1
    # No file is left when the process is killed.
    assert not [path for path in tmp_path.iterdir() if path.suffix not in (".json", ".hdf5")]


def test_the_folder_may_be_removed(files: Tuple[str, str], tmp_path: Path) -> None:
    elmo, vectors = _elmo(files), {}
    (tmp_path / "run").mkdir()
    keep_vectors(elmo, vectors, tmp_path / "run")
    elmo(batch_to_ids(SENTENCES[:1]))
    (tmp_path / "run").rmdir()
    elmo(batch_to_ids(SENTENCES))
    assert [len(of_model) for of_model in vectors.values()] == [4]


def test_a_quota_ends_no_training(files: Tuple[str, str]) -> None:
    """The free space of a disk says nothing of it."""
    resource = pytest.importorskip("resource")  # not on Windows
    plain, kept = _elmo(files), _elmo(files)
    vectors: VectorsOfModels = {}
    keep_vectors(kept, vectors)
    size = kept.bilm.num_layers * kept.bilm.get_output_dim() * 4
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    ids = batch_to_ids(SENTENCES)
    # Room for the first sentence and a part of another.
    resource.setrlimit(resource.RLIMIT_FSIZE, (6 * size, limits[1]))
    try:
        found = [kept(ids)["elmo_representations"][0] for _ in range(2)]
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    expected = plain(ids)
    for each in found:
        torch.testing.assert_close(
            each * expected["mask"].unsqueeze(-1),
            expected["elmo_representations"][0] * expected["mask"].unsqueeze(-1),
            rtol=1e-5,
            atol=1e-6,
        )
    (of_model,) = vectors.values()
    assert 0 < len(of_model) < len(SENTENCES)
