import math

import torch


def glorot_uniform_(weight: torch.Tensor, in_dim: int, out_dim: int) -> torch.Tensor:
    """
    Fills `weight` as TensorFlow's default initializer does (Glorot and Bengio 2010, eq. 16), for a
    matrix of `in_dim` x `out_dim` of which `weight` may be a part.
    """
    limit = math.sqrt(6.0 / (in_dim + out_dim))
    return torch.nn.init.uniform_(weight, -limit, limit)


def normal_(weight: torch.Tensor, std: float) -> torch.Tensor:
    """
    Fills `weight` from a normal distribution around 0.
    """
    return torch.nn.init.normal_(weight, 0.0, std)
