import copy
import pickle

import pytest
import torch

from allennlp_elmo_plugin.bilm.cached_value import CachedValue, WordCache
from tests.support.pretend_gpu import gpu_for_tests

CHANGES = {
    "data": lambda weight: weight.data.copy_(weight.data.flip(0)),
    "the last of the data": lambda weight: weight.data[-1, -1:].add_(1e-3),
    "in place": lambda weight: weight.detach()[1, 1:2].add_(1e-3),
    "other data": lambda weight: setattr(weight, "data", weight.data.clone()),
}


@pytest.mark.parametrize("shape", [(3, 5), (301, 201)])
@pytest.mark.parametrize("change", CHANGES)
def test_a_value_is_made_again_when_a_parameter_changes(change, shape):
    parameters = [torch.randn(3), torch.nn.Parameter(torch.randn(shape))]
    value = CachedValue()
    before = value.get(parameters, object)
    assert value.get(parameters, object) is before
    CHANGES[change](parameters[1])
    after = value.get(parameters, object)
    assert after is not before and value.get(parameters, object) is after
    assert value.get(parameters, object, "another key") is not after


@pytest.mark.parametrize("shape", [(7,), (8, 8), (12, 5), (5, 12), (32, 8), (9, 16), (6, 4, 3)])
def test_a_change_of_any_row_or_column_is_noticed(shape):
    """Also one of a trainable parameter on a GPU"""
    with gpu_for_tests() as gpu:
        for weight in (torch.randn(shape), torch.randn(shape, device=gpu, requires_grad=True)):
            value, rows = CachedValue(), weight.data.view(len(weight), -1)
            for part in [*rows, *rows.T]:
                before = value.get([weight], object)
                part.add_(1)
                assert value.get([weight], object) is not before


def test_frozen_parameters_on_a_gpu_are_not_compared():
    with gpu_for_tests() as gpu:
        parameter, value = torch.ones(3, 5, device=gpu), CachedValue()
        kept = value.get([parameter], object)
        for change, is_seen in zip(CHANGES.values(), (False, False, True, True)):
            change(parameter)
            before, kept = kept, value.get([parameter], object)
            assert (kept is not before) == is_seen
        kept = value.get([parameter.requires_grad_()], object)
        CHANGES["the last of the data"](parameter)
        assert value.get([parameter], object) is not kept


def test_copies_and_later_parameters_have_values_of_their_own():
    value = CachedValue()
    for _ in range(20):  # A new parameter may get the address of a freed one.
        before = value.get([torch.ones(1000)], object)
        assert value.get([torch.ones(1000)], object) is not before
    parameter = torch.zeros(3)
    value.get([parameter], lambda: "a")
    for other in (copy.deepcopy(value), pickle.loads(pickle.dumps(value))):
        assert other.get([parameter], lambda: "b") == "b"


@pytest.mark.parametrize("max_words, third", [(3, "ad"), (4, "d"), (10_000, "d")])
def test_words_are_computed_once_and_a_full_cache_forgets_all(max_words, third):
    cache, encoded = WordCache(max_words), []

    def vectors(words):
        return torch.tensor([[len(word), ord(word[0])] for word in words], dtype=torch.float)

    def encode(new):
        encoded.append("".join(sorted(word[0] for word in new)))
        return vectors(new)

    def look_up(*words):
        assert torch.equal(cache.look_up(words, encode), vectors(words))

    look_up("b", "a", "b")
    look_up("a", "cc", "a", "cc", "b")
    look_up("cc", "a")
    look_up("d", "a")
    look_up("a", "d")
    assert encoded == ["ab", "c", third]
    if max_words > 3000:  # It grows.
        for n in (1000, 3000):
            look_up(*("a" * (i + 1) for i in range(n)))
        look_up("aa", "e", "e")
        assert encoded[3:] == ["a" * 999, "a" * 2000, "e"]
