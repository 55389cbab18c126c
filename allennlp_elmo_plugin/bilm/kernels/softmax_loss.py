"""Losses of the softmax, full and sampled, and their gradients."""

from collections.abc import Sequence
from typing import Any

import torch

from allennlp_elmo_plugin.bilm.kernels.matrix_product import matrix_product, padded_rows
from allennlp_elmo_plugin.bilm.model_call import backward_once, may_overwrite_saved

# The size of the logits held at a time, but at least this many rows
CHUNK_BYTES = 2**24
MIN_ROWS = 32
# How many rows evaluation computes at a time
EVALUATED_ROWS = 1024


def _row_chunks(n_rows: int, n_columns: int, like: torch.Tensor) -> list[slice]:
    chunk_bytes = CHUNK_BYTES if like.device.type == "cpu" else 16 * CHUNK_BYTES
    rows = max(MIN_ROWS, chunk_bytes // (n_columns * like.element_size()))
    return [slice(start, start + rows) for start in range(0, n_rows, rows)]


def _scaled(saved: Sequence[torch.Tensor], grad: torch.Tensor) -> list[torch.Tensor]:
    """Return `saved` times `grad`, in place if possible."""
    scale = torch.Tensor.mul_ if may_overwrite_saved() else torch.Tensor.mul
    return [scale(tensor, grad) for tensor in saved]


class FullLoss(torch.autograd.Function):
    """The mean negative log likelihood and its gradient, computed in chunks of rows."""

    @staticmethod
    def forward(ctx: Any, *tensors: torch.Tensor) -> torch.Tensor:
        # (n_tokens, dim), (n_words, dim), (n_words,), (n_tokens,)
        hidden, weight, bias, targets = tensors
        n_tokens = hidden.size(0)
        needs_grad = any(ctx.needs_input_grad)
        if needs_grad:
            grad_hidden = torch.empty_like(hidden)
            grad_weight, grad_bias = torch.zeros_like(weight), torch.zeros_like(bias)
        loss = hidden.new_zeros(())
        for rows in _row_chunks(n_tokens, weight.size(0), hidden):
            logits = matrix_product(hidden[rows], weight.t(), bias)  # (n, n_words)
            target = targets[rows].unsqueeze(1)  # (n, 1)
            logits -= logits.amax(1, keepdim=True)
            loss -= logits.gather(1, target).sum()
            exponentials = logits.exp_()  # (n, n_words)
            total = exponentials.sum(1, keepdim=True)  # (n, 1)
            loss += total.log().sum()
            if needs_grad:
                grad = exponentials.div_(total)  # (n, n_words)
                grad.scatter_add_(1, target, grad.new_full(target.shape, -1.0)).div_(n_tokens)
                grad_hidden[rows] = matrix_product(grad, weight)
                grad_weight.addmm_(grad.t(), hidden[rows])
                grad_bias.add_(grad.sum(0))
        if needs_grad:
            ctx.save_for_backward(grad_hidden, grad_weight, grad_bias)
        return loss / n_tokens

    @backward_once
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        return (*_scaled(ctx.saved_tensors, grad), None)


class SampledLoss(torch.autograd.Function):
    """
    The mean negative log likelihood under the softmax over each target and the samples. `words` are
    the samples and the targets, with the logarithms of their expected counts. Matrix products have
    the type `dtype`. Gradients of `weight` and `bias` are sparse, and coalesced on the CPU.
    """

    @staticmethod
    def forward(ctx: Any, dtype: torch.dtype, *tensors: torch.Tensor) -> torch.Tensor:
        # (n_tokens, dim), (n_words, dim), (n_words,), (n_samples + n_tokens,) twice
        hidden, weight, bias, words, log_counts = tensors
        n_tokens, n_samples = hidden.size(0), words.size(0) - hidden.size(0)
        sizes = [n_samples, n_tokens]
        place, hit_logits = _hits(*words.split(sizes))
        hit_logits = hit_logits.to(hidden.dtype)
        sample_weight, target_weight = weight.index_select(0, words).split(sizes)
        sample_weight, hidden_ = sample_weight.to(dtype), hidden.to(dtype)
        sample_bias, target_bias = bias.index_select(0, words).sub_(log_counts).split(sizes)
        target_logits = (hidden * target_weight).sum(1).add_(target_bias)  # (n_tokens,)
        nll = torch.empty_like(target_logits)  # (n_tokens,)
        needs_grad = any(ctx.needs_input_grad)
        if needs_grad:
            grad_hidden = torch.empty_like(hidden)
            grad_target_logits = torch.empty_like(target_logits)
            # The bias is treated as the weight of a constant 1.
            transposed = torch.nn.functional.pad(hidden_, (0, 1), value=1.0).t().contiguous()
            grad_samples = hidden.new_zeros(transposed.size(0), n_samples)  # (dim + 1, n_samples)
        for rows in _row_chunks(n_tokens, n_samples, hidden):
            # (n, n_samples)
            logits = matrix_product(hidden_[rows], sample_weight.t(), sample_bias.to(dtype))
            logits = logits.to(hidden.dtype).scatter_add_(1, place[rows], hit_logits[rows])
            highest = torch.maximum(logits.amax(1), target_logits[rows])  # (n,)
            target_logit = target_logits[rows] - highest  # (n,)
            exponentials = logits.sub_(highest.unsqueeze(1)).exp_()  # (n, n_samples)
            samples_total = exponentials.sum(1)  # (n,)
            total = samples_total + target_logit.exp()  # (n,)
            torch.sub(total.log(), target_logit, out=nll[rows])
            if needs_grad:
                grad = exponentials.div_(total.unsqueeze(1) * n_tokens)  # (n, n_samples)
                grad = grad.to(dtype)
                grad_hidden[rows] = matrix_product(grad, sample_weight)
                grad_samples.add_(matrix_product(transposed[:, rows], grad))
                torch.div(samples_total, total, out=grad_target_logits[rows])
        if needs_grad:
            grad_column = grad_target_logits.div_(-n_tokens).unsqueeze(1)  # (n_tokens, 1)
            grad_hidden.addcmul_(grad_column, target_weight)
            grad_weight = hidden.new_empty(len(words), hidden.size(1))
            grad_weight[:n_samples] = grad_samples[:-1].t()
            torch.mul(hidden, grad_column, out=grad_weight[n_samples:])
            grad_bias = torch.cat([grad_samples[-1], grad_target_logits])
            # On a GPU, the number of distinct words would have to be copied from it.
            if words.device.type == "cpu":
                words, index = words.unique(return_inverse=True)
                grad_weight, grad_bias = (
                    rows.new_zeros(len(words), *rows.shape[1:]).index_add_(0, index, rows)
                    for rows in (grad_weight, grad_bias)
                )
            ctx.shapes = weight.shape, bias.shape
            ctx.save_for_backward(grad_hidden, words, grad_weight, grad_bias)
        return nll.mean()

    @backward_once
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        grad_hidden, ids, grad_weight, grad_bias = ctx.saved_tensors
        grad_hidden, *values = _scaled([grad_hidden, grad_weight, grad_bias], grad)
        is_coalesced = ids.device.type == "cpu"
        sparse = (
            torch.sparse_coo_tensor(ids.unsqueeze(0), rows, shape)._coalesced_(is_coalesced)
            for rows, shape in zip(values, ctx.shapes)
        )
        return (None, grad_hidden, *sparse, None, None)


def _hits(samples: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a sample's place for each target, and minus infinity if they are equal, else 0."""
    # (n_tokens, 1) each
    sorted_samples, order = samples.sort()
    place = torch.searchsorted(sorted_samples[:-1], targets.unsqueeze(1))
    is_other = sorted_samples[place] != targets.unsqueeze(1)
    return order[place], is_other.log()


def log_probabilities(
    hidden: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, targets: torch.Tensor
) -> torch.Tensor:
    """Return the targets' log probabilities under the full softmax, shape `(n_tokens,)`."""
    n_words = max(1, CHUNK_BYTES // (EVALUATED_ROWS * hidden.element_size()))
    words = list(zip(weight.split(n_words), bias.split(n_words)))
    totals = []
    for rows in hidden.split(EVALUATED_ROWS):
        padded = padded_rows(rows)
        # Of each chunk of words: (n_padded,)
        sums = [matrix_product(padded, part.t(), added).logsumexp(1) for part, added in words]
        totals.append(torch.stack(sums, 1).logsumexp(1)[: rows.size(0)])
    target_logits = (hidden * weight[targets]).sum(1) + bias[targets]  # (n_tokens,)
    return (target_logits - torch.cat(totals)).clamp_(max=0.0)  # Rounding gave up to 1e-7.
