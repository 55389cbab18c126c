"""The interface of ELMoForManyLangs, against the numbers of its own code."""

from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest

from allennlp_elmo_plugin.adapters.elmoformanylangs import Embedder
from allennlp_elmo_plugin.embedding.batches import BatchEmbedder
from tests.elmo.many_langs_encoder_test import VARIANTS, assert_all_close, read

VIEW = BatchEmbedder.view_batch


@pytest.mark.parametrize("batch_size", [64, 2])
@pytest.mark.parametrize("variant", VARIANTS)
def test_layers_of_the_original(variant, batch_size):
    model, sentences, _, expected = read(variant)
    embedder = Embedder(Path(model), batch_size)
    layers = expected["alone"]
    for _ in range(2):  # no states from the first call
        assert_all_close(embedder.sents2elmo(sentences, -2), layers)
    averages = embedder.sents2elmo([sentences[i] for i in expected["average"]])
    assert_all_close(averages, expected["average"])
    for number in range(len(layers[0])):
        of_layer = {i: array[number] for i, array in layers.items()}
        arrays = embedder.sents2elmo(list(map(tuple, sentences)), output_layer=number)
        assert_all_close(arrays, of_layer)
        assert all(array.base is None for array in arrays)
    with pytest.raises(IndexError):
        embedder.sents2elmo(sentences, output_layer=number + 1)


def test_a_batch_has_as_many_sentences_as_asked():
    with patch.object(BatchEmbedder, "view_batch", autospec=True, side_effect=VIEW) as view:
        arrays = Embedder("tiny", batch_size=2).sents2elmo([["a"], ["b", "c"], ["d"]])
    assert [array.shape for array in arrays] == [(1, 256), (2, 256), (1, 256)]
    assert [len(call.args[1]) for call in view.mock_calls] == [2, 1]
    assert Embedder("tiny").sents2elmo([]) == []
    with pytest.raises(ValueError, match="batch_size is 0; it must be at least 1"):
        Embedder("tiny", batch_size=0).sents2elmo([["a"]])
    string, letters = (Embedder("tiny").sents2elmo([each]) for each in ("sea", ["s", "e", "a"]))
    np.testing.assert_array_equal(string, letters)
