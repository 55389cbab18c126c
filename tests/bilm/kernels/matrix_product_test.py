import pytest
import torch

from allennlp_elmo_plugin.bilm.kernels import matrix_product as module
from allennlp_elmo_plugin.bilm.kernels.matrix_product import (
    MANY_ROWS,
    PreparedMatrix,
    even_rows,
    has_onednn,
    matrix_product,
)

# Rows, columns: too small for oneDNN, and large enough.
SHAPES = [(3, 5, 4), (20, 300, 200)]
TOLERANCES = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 2e-2}


def tensors(n, k, m, dtype=torch.float32):
    torch.manual_seed(n)
    return [torch.randn(*shape).to(dtype) / k**0.5 for shape in [(n, k), (k, m), (m,), (n, m)]]


def assert_product(actual, rows, matrix, *summands, rtol):
    expected = rows.double() @ matrix.double()
    for summand in summands:
        expected += summand.double()
    assert (actual.double() - expected).norm() <= rtol * expected.norm()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", list(TOLERANCES))
def test_matrix_product(shape, dtype):
    rows, matrix, bias, add = tensors(*shape, dtype=dtype)
    rtol = TOLERANCES[dtype]
    for left, right in [(rows, matrix), (rows.t().contiguous().t(), matrix.t().contiguous().t())]:
        assert matrix_product(left, right).dtype == dtype
        assert_product(matrix_product(left, right), rows, matrix, rtol=rtol)
        assert_product(matrix_product(left, right, bias), rows, matrix, bias, rtol=rtol)
        assert_product(matrix_product(left, right, add=add), rows, matrix, add, rtol=rtol)
        product = matrix_product(left, right, bias, add)
        assert_product(product, rows, matrix, bias, add, rtol=rtol)


@pytest.mark.parametrize("with_onednn", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("precision, rtol", [("float32", 1e-6), ("bfloat16", 1e-2), ("int8", 2e-2)])
def test_prepared_matrix(monkeypatch, with_onednn, shape, precision, rtol):
    if not with_onednn:
        monkeypatch.setattr(module, "has_onednn", lambda _: False)
    if precision == "int8" and module._int8_saturates():
        rtol = 3e-2  # Rows have 7 bits: up to 2.1% off for normally distributed numbers.
    rows, matrix, bias, add = tensors(*shape)
    prepared = PreparedMatrix(matrix, precision)
    rows, bias, add = (each.to(prepared.dtype) for each in (rows, bias, add))
    assert_product(prepared.product(rows), rows, matrix, rtol=rtol)
    assert_product(prepared.product(rows, bias), rows, matrix, bias, rtol=rtol)
    kept = add.clone()
    assert_product(prepared.product(rows, add=add), rows, matrix, add, rtol=rtol)
    assert_product(prepared.product(rows, bias, add), rows, matrix, bias, add, rtol=rtol)
    assert torch.equal(add, kept)


def test_bfloat16_without_kernels_of_its_own(monkeypatch):
    """As without AVX-512."""
    monkeypatch.setattr(module, "has_onednn", lambda _: False)
    rows, matrix, bias, add = tensors(20, 300, 200, dtype=torch.bfloat16)
    expected = (add.double() + rows.double() @ matrix.double() + bias.double()).bfloat16()
    prepared = PreparedMatrix(matrix)
    assert prepared.dtype == torch.bfloat16
    for product in (matrix_product(rows, matrix, bias, add), prepared.product(rows, bias, add)):
        assert product.dtype == torch.bfloat16
        torch.testing.assert_close(product, expected)


@pytest.mark.parametrize("n_rows", [1, 2, 8, 100])
def test_ones_are_added_up(n_rows):
    ones = torch.ones(n_rows, 1000, dtype=torch.bfloat16)
    expected = torch.full((n_rows, n_rows), 1000.0, dtype=torch.bfloat16)
    for left in (ones, ones.t().contiguous().t()):
        for right in (ones.t(), ones.t().contiguous()):
            assert torch.equal(matrix_product(left, right), expected)
            assert torch.equal(PreparedMatrix(right).product(left), expected)


def test_float32_without_onednn_for_bfloat16(monkeypatch):
    monkeypatch.setattr(module, "has_onednn", lambda dtype: dtype == torch.float32)
    ones = torch.ones(20, 1000, dtype=torch.bfloat16)
    prepared = PreparedMatrix(ones.t())
    assert prepared._matrix.dtype == torch.float32
    assert prepared.product(ones).dtype == torch.bfloat16


def test_answers_are_those_outside_modes():
    fake_tensor = pytest.importorskip("torch._subclasses.fake_tensor")
    questions = (has_onednn, module._int8_saturates)

    def answers():
        for each in questions:
            each.cache_clear()
        return has_onednn(torch.float32), has_onednn(torch.bfloat16), module._int8_saturates()

    expected = answers()
    with fake_tensor.FakeTensorMode():
        assert answers() == expected


def test_float64_stays_float64():
    rows, matrix, *_ = tensors(20, 300, 200, dtype=torch.float64)
    assert_product(PreparedMatrix(matrix).product(rows), rows, matrix, rtol=1e-14)
    assert not has_onednn(torch.float64)


def test_an_operator_with_other_results_is_not_used(monkeypatch):
    original = module._linear
    has_onednn.cache_clear()
    monkeypatch.setattr(module, "_linear", lambda *args, **kwargs: 1.1 * original(*args, **kwargs))
    assert not has_onednn(torch.float32)
    has_onednn.cache_clear()


def test_few_different_numbers_of_rows():
    """oneDNN keeps a megabyte or more for each."""
    for n in range(1, 20_000):
        assert max(n, MANY_ROWS) <= even_rows(n) <= max(n + MANY_ROWS - 1, n * 17 / 16)
    assert len({even_rows(n) for n in range(1, 20_000)}) < 150


def test_int8_whatever_the_default_type():
    rows, matrix, *_ = tensors(*SHAPES[0])
    module._int8_saturates.cache_clear()
    torch.set_default_dtype(torch.float64)
    try:
        product = PreparedMatrix(matrix, "int8").product(rows)
    finally:
        torch.set_default_dtype(torch.float32)
    assert_product(product, rows, matrix, rtol=3e-2)


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
def test_a_large_matrix_is_held_once(precision):
    prepared = PreparedMatrix(torch.randn(300, 400), precision)
    held = [each for each in vars(prepared).values() if each is not None]
    assert len(held) == 2  # the type and one matrix


def test_rows_of_int8_have_7_bits_where_products_would_saturate(monkeypatch):
    reduced = []
    original = module._int8_product

    def product(rows, matrix, reduce_range):
        reduced.append(reduce_range)
        return original(rows, matrix, reduce_range)

    rows, matrix, *_ = tensors(20, 300, 200)
    monkeypatch.setattr(module, "_int8_product", product)
    would_saturate = module._int8_saturates()
    reduced.clear()
    for saturates, rtol in ((False, 2e-2), (True, 3e-2)):
        monkeypatch.setattr(module, "_int8_saturates", lambda saturates=saturates: saturates)
        result = PreparedMatrix(matrix, "int8").product(rows)
        if saturates or not would_saturate:
            assert_product(result, rows, matrix, rtol=rtol)
    assert reduced == [False, True]


def test_saturation_is_found_by_a_product(monkeypatch):
    module._int8_saturates.cache_clear()
    expected = module._int8_saturates()
    monkeypatch.setattr(module, "_int8_product", lambda rows, *_, **__: 40 * torch.ones(8, 8))
    module._int8_saturates.cache_clear()
    assert module._int8_saturates()
    module._int8_saturates.cache_clear()
    monkeypatch.undo()
    assert module._int8_saturates() == expected
