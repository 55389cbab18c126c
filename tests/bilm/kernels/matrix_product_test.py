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
@pytest.mark.parametrize("precision, rtol", [("float32", 1e-6), ("bfloat16", 1e-2), ("int8", 3e-2)])
def test_prepared_matrix(monkeypatch, with_onednn, shape, precision, rtol):
    if not with_onednn:
        monkeypatch.setattr(module, "has_onednn", lambda _: False)
    rows, matrix, bias, add = tensors(*shape)
    prepared = PreparedMatrix(matrix, precision)
    rows, bias, add = (each.to(prepared.dtype) for each in (rows, bias, add))
    assert_product(prepared.product(rows), rows, matrix, rtol=rtol)
    assert_product(prepared.product(rows, bias), rows, matrix, bias, rtol=rtol)
    kept = add.clone()
    assert_product(prepared.product(rows, add=add), rows, matrix, add, rtol=rtol)
    assert_product(prepared.product(rows, bias, add), rows, matrix, bias, add, rtol=rtol)
    assert torch.equal(add, kept)
    scales = torch.arange(1.0, shape[2] + 1)
    scaled = PreparedMatrix(matrix, precision, scales)
    assert_product(scaled.product(rows, bias), rows, matrix * scales, bias, rtol=rtol)
    for each, expected in ((prepared, matrix), (scaled, matrix * scales)):
        assert_product(each.product_of_one(rows[:1]), rows[:1], expected, rtol=2 * rtol)
        product = each.product_of_one(rows[:1], add[:1])
        assert_product(product, rows[:1], expected, add[:1], rtol=2 * rtol)


@pytest.mark.parametrize("n_rows", [1, 2, 8, 100])
def test_ones_are_added_up(n_rows):
    ones = torch.ones(n_rows, 1000, dtype=torch.bfloat16)
    expected = torch.full((n_rows, n_rows), 1000.0, dtype=torch.bfloat16)
    for left in (ones, ones.t().contiguous().t()):
        for right in (ones.t(), ones.t().contiguous()):
            assert torch.equal(matrix_product(left, right), expected)
            assert torch.equal(PreparedMatrix(right).product(left), expected)


def test_float64_stays_float64():
    rows, matrix, *_ = tensors(20, 300, 200, dtype=torch.float64)
    assert_product(PreparedMatrix(matrix).product(rows), rows, matrix, rtol=1e-14)
    assert not has_onednn(torch.float64)


def test_bfloat16_is_computed_in_float32_where_it_is_slow(monkeypatch):
    """As without AVX-512."""
    rows, matrix, *_ = tensors(20, 300, 200)
    assert PreparedMatrix(matrix, "bfloat16").dtype == torch.bfloat16
    monkeypatch.setattr(module, "has_onednn", lambda dtype: dtype == torch.float32)
    prepared = PreparedMatrix(matrix, "bfloat16")
    assert prepared.dtype == torch.float32
    assert_product(prepared.product(rows), rows, matrix, rtol=1e-6)


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


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
def test_a_large_matrix_is_held_once(precision):
    prepared = PreparedMatrix(torch.randn(300, 400), precision)
    before = set(vars(prepared))
    for n_rows in (1, 3, 20):
        prepared.product(torch.randn(n_rows, 300).to(prepared.dtype))
    assert len(set(vars(prepared)) - before) == 1
