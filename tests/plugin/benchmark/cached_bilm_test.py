from types import SimpleNamespace

import torch

from allennlp_elmo_plugin import Elmo, batch_to_ids
from allennlp_elmo_plugin.plugin.benchmark import cached_bilm
from allennlp_elmo_plugin.plugin.benchmark.cached_bilm import CachedBiLm, Vectors, keep_vectors
from tests.support.processor import needs_bfloat16
from tests.support.testing import write_random_elmo

SENTENCES = [["A", "sentence", "."], ["Two", "words"], ["One"], ["A", "sentence", "."], []]


def _elmo(folder, initial_state="settled", seed=0, **kwargs):
    files = write_random_elmo(folder, seed=seed)
    return Elmo(*files, 2, dropout=0.0, initial_state=initial_state, **kwargs)


def _representations(elmo, batch):
    output = elmo(batch_to_ids(batch))
    return [mix * output["mask"].unsqueeze(-1) for mix in output["elmo_representations"]]


def test_same_representations_and_gradients(tmp_path):
    plain, kept = _elmo(tmp_path), _elmo(tmp_path)
    keep_vectors(kept, Vectors())
    assert isinstance(kept._elmo_lstm, CachedBiLm)
    assert all(name.startswith("scalar_mix") for name in kept.state_dict())
    for batch in (SENTENCES[:2], SENTENCES, SENTENCES[2:], SENTENCES[::-1]):
        ids = batch_to_ids(batch)
        assert torch.equal(plain(ids)["mask"], kept(ids)["mask"])
        outputs = _representations(plain, batch), _representations(kept, batch)
        torch.testing.assert_close(*outputs, rtol=1e-5, atol=1e-6)
        for output in outputs:
            sum(mix.pow(2).sum() for mix in output).backward()
    trained = [parameter for parameter in plain.parameters() if parameter.requires_grad]
    gradients = [[parameter.grad for parameter in group] for group in (trained, kept.parameters())]
    assert all(gradients[0])
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-5)


def test_a_sentence_is_computed_once(tmp_path):
    elmo, other, vectors = _elmo(tmp_path), _elmo(tmp_path), Vectors(tmp_path)
    shapes = []
    for model in (elmo, other):
        model.bilm.register_forward_pre_hook(lambda _, inputs: shapes.append(inputs[0].shape[:2]))
        keep_vectors(model, vectors)
        for _ in range(2):
            model(batch_to_ids(SENTENCES))
    elmo(batch_to_ids([*SENTENCES, ["New"]]))
    assert shapes == [(4, 3), (1, 1)]


@needs_bfloat16
def test_other_models_have_other_vectors(tmp_path):
    elmos = [_elmo(tmp_path), _elmo(tmp_path, "zero"), _elmo(tmp_path, precision="bfloat16")]
    elmos.append(_elmo(tmp_path, seed=1))
    expected = [_representations(elmo, SENTENCES)[0] for elmo in elmos]
    keep_vectors(torch.nn.ModuleList(elmos), Vectors())
    for elmo, representation, tolerance in zip(elmos, expected, (1e-5, 1e-5, 1e-2, 1e-5)):
        # In bfloat16 a sum in another order may be rounded to the next number.
        actual = _representations(elmo, SENTENCES)[0]
        torch.testing.assert_close(actual, representation, rtol=tolerance, atol=tolerance)
    assert not any(torch.equal(expected[0], other) for other in expected[1:])


def test_models_whose_vectors_change_are_not_cached(tmp_path):
    for elmo in (_elmo(tmp_path, requires_grad=True), _elmo(tmp_path, "carried")):
        keep_vectors(elmo, Vectors())
        assert not isinstance(elmo._elmo_lstm, CachedBiLm)


def test_what_does_not_fit_on_the_disk_is_computed_each_time(monkeypatch, tmp_path):
    plain, kept = _elmo(tmp_path), _elmo(tmp_path)
    vectors = Vectors(tmp_path)
    keep_vectors(kept, vectors)
    # Room for the first sentence with its boundaries, and for a part of another
    room = int(5.5 * kept.bilm.num_layers * kept.bilm.get_output_dim() * 4)
    monkeypatch.setattr(cached_bilm, "disk_usage", lambda _: SimpleNamespace(free=room))
    for _ in range(2):
        actual = _representations(kept, SENTENCES)
        torch.testing.assert_close(actual, _representations(plain, SENTENCES), rtol=1e-5, atol=1e-6)
    assert len(vectors._places) == 1
    # No file is left when the process is killed.
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".hdf5", ".json"]
