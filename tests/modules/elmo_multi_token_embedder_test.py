from pathlib import Path

import torch
from allennlp.common import Params
from allennlp.modules.token_embedders import TokenEmbedder

from allennlp_elmo_plugin import batch_to_ids
from tests.support.testing import write_random_elmo


def test_representations_lie_side_by_side(tmp_path: Path) -> None:
    options, weights = write_random_elmo(tmp_path, projection_dim=4)
    params = {"options_file": options, "weight_file": weights, "dropout": 0.0}
    one, two = (
        TokenEmbedder.from_params(Params({"type": f"elmo_{kind}token_embedder", **params}))
        for kind in ("", "multi_")
    )
    assert (one.get_output_dim(), two.get_output_dim()) == (8, 16)
    ids = batch_to_ids([["A", "sentence", "."], ["Two", "words"]])
    both, expected = two(ids), one(ids)
    assert torch.equal(both[..., :8], expected) and torch.equal(both[..., 8:], expected)
    both[..., 8:].sum().backward()
    first, second = two._elmo._scalar_mixes
    assert first.gamma.grad.item() == 0 != second.gamma.grad.item()


def test_settings_of_the_language_model(tmp_path: Path) -> None:
    options, weights = write_random_elmo(tmp_path, projection_dim=4)
    params = {"options_file": options, "weight_file": weights, "dropout": 0.0}
    params.update(initial_state="zero", precision="int8", max_cached_words=1)
    one, two = (
        TokenEmbedder.from_params(Params({"type": f"elmo_{kind}token_embedder", **params}))
        for kind in ("", "multi_")
    )
    ids = batch_to_ids([["A", "sentence", "."], ["Two", "words"]])
    assert torch.equal(two(ids)[..., :8], one(ids))
    exact = TokenEmbedder.from_params(
        Params({"type": "elmo_multi_token_embedder", **params, "precision": "float32"})
    )
    assert not torch.equal(two(ids), exact(ids))
    assert two._elmo._elmo_lstm._token_embedder.max_cached_words == 1
