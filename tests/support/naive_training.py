"""
bilm-tf's training step, as plainly as it can be written: the naive model, automatic differentiation
of everything, and dense gradients. It stands in for runs of bilm-tf that are not at hand.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch

from tests.support.naive_bilm import NaiveBiLm

LEARNING_RATE = 0.2
INITIAL_ACCUMULATOR = 1.0
NORM = 10.0


class Stream(NamedTuple):
    """
    What one direction of one replica reads in a step: bilm-tf's character ids (B, T, 50), or
    vocabulary ids (B, T), like the targets; samples (n,) and the number of draws; masks of each
    layer's input (T, B, projection), and last of the output (B * T, projection), row by row.
    """

    tokens: torch.Tensor
    targets: torch.Tensor
    samples: tuple[torch.Tensor, int] | None = None
    masks: Sequence[torch.Tensor] | None = None


def log_expected_count(ids, n_words, n_samples, num_tries):
    """Of distinct log-uniform samples."""
    p = torch.log((ids.double() + 2) / (ids.double() + 1)) / math.log(n_words + 1)
    if num_tries == n_samples:
        return torch.log(p * n_samples)
    return torch.log(1 - (1 - p) ** num_tries)


class NaiveTraining(NaiveBiLm):
    """A model, its optimizer and the states it carries. Replicas have their own rows and states."""

    def __init__(self, options, variables):
        super().__init__(options, variables)
        self.accumulators = {
            name: torch.full_like(values, INITIAL_ACCUMULATOR, requires_grad=False)
            for name, values in self.variables.items()
        }
        # For replica, direction and layer: c (B, dim) and m (B, projection).
        self.states = {}

    def loss(self, replica, direction, stream):
        n_layers = self.lstm.get("n_layers", 1)
        keys = [(replica, direction, layer) for layer in range(n_layers)]
        states = [self.states[key] for key in keys if key in self.states]
        hidden, states = self.layers(direction, stream.tokens, states, stream.masks)
        self.states.update((key, (c.detach(), m.detach())) for key, (c, m) in zip(keys, states))
        top = hidden[-1].transpose(0, 1).flatten(0, 1)  # (B * T, projection)
        if stream.masks is not None:
            top = top * stream.masks[n_layers]
        targets = stream.targets.reshape(-1)
        if stream.samples is None:
            return -self.log_likelihoods(top, targets).mean()
        weight, bias = self.softmax_variables()
        ids, num_tries = stream.samples
        sizes = len(weight), len(ids), num_tries
        counts = [log_expected_count(words, *sizes) for words in (targets, ids)]
        true = (top * weight[targets]).sum(1) + bias[targets] - counts[0]
        sampled = top @ weight[ids].t() + bias[ids] - counts[1]
        sampled = sampled.masked_fill(targets[:, None] == ids, -math.inf)
        return (torch.logsumexp(torch.cat([true[:, None], sampled], 1), 1) - true).mean()

    def step(self, replicas):
        """
        Forward, backward and update; a stream for each replica and direction. Return losses,
        gradients, their norm and the states of all rows, named as in the files of bilm-tf's runs.
        """
        losses = {
            direction: torch.stack(
                [self.loss(k, direction, streams[direction]) for k, streams in enumerate(replicas)]
            ).mean()
            for direction in self.directions
        }
        total = torch.stack(list(losses.values())).mean()
        n_steps = replicas[0]["forward"].targets.size(1)
        for values in self.variables.values():
            values.grad = None
        (total * n_steps).backward()
        gradients = {
            name: torch.zeros_like(v) if v.grad is None else v.grad.clone()
            for name, v in self.variables.items()
        }
        norm = math.sqrt(sum(float((g**2).sum()) for g in gradients.values()))
        largest = self.options.get("all_clip_norm_val", NORM)
        with torch.no_grad():
            for name, values in self.variables.items():
                gradient = gradients[name] * (largest / max(norm, largest))
                self.accumulators[name] += gradient**2
                values -= LEARNING_RATE * gradient / self.accumulators[name].sqrt()
        record = {f"loss_{direction}": loss.item() for direction, loss in losses.items()}
        record.update(total_loss=total.item(), grad_norm=norm)
        record.update((f"grad/{name}", gradient) for name, gradient in gradients.items())
        for (replica, direction, layer), state in self.states.items():
            for name, values in zip("cm", state):
                key = f"state/{direction}/layer{layer}/{name}"
                record[key] = torch.cat([record[key], values]) if replica else values
        return record
