"""
Initial values of parameters, as in TensorFlow.
"""

import math

import torch


def glorot_uniform_(weight: torch.Tensor, in_dim: int, out_dim: int) -> torch.Tensor:
    """
    Fill `weight`, all or part of a matrix of `in_dim` x `out_dim`, as TensorFlow's default
    initializer does (Glorot and Bengio 2010, eq. 16).
    """
    limit = math.sqrt(6.0 / (in_dim + out_dim))
    return torch.nn.init.uniform_(weight, -limit, limit)
