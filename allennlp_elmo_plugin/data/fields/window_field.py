from typing import Any, Dict, List, Optional

import torch
from allennlp.data.fields import Field

from allennlp_elmo_plugin.data.text_position import TextPosition


class WindowField(Field[torch.Tensor]):
    """
    Where a row belongs; `check_window_order` reads it.

    # Parameters

    number : `int`
        The number of the window in this pass over the data, from 0.
    row : `int`
        The row in the batch, from 0.
    batch_size : `int`
        The number of rows that belong together.
    position : `TextPosition`, optional (default = `None`)
        Where the reader is after this window, if this is its last row. The data loader takes it
        from here; it is no part of the tensor.
    """

    __slots__ = ["batch_size", "number", "position", "row"]

    def __init__(
        self, number: int, row: int, batch_size: int, position: Optional[TextPosition] = None
    ) -> None:
        self.number = number
        self.row = row
        self.batch_size = batch_size
        self.position = position

    def get_padding_lengths(self) -> Dict[str, int]:
        return {}

    def as_tensor(self, padding_lengths: Dict[str, int]) -> torch.Tensor:
        return torch.tensor([self.number, self.row, self.batch_size])  # (3,)

    def empty_field(self) -> "WindowField":
        return WindowField(0, 0, 0)

    def __eq__(self, other: Any) -> bool:
        if not isinstance(other, WindowField):
            return NotImplemented
        return self.human_readable_repr() == other.human_readable_repr()

    def __str__(self) -> str:
        return f"WindowField: row {self.row} of {self.batch_size} in window {self.number}"

    def human_readable_repr(self) -> List[int]:
        return [self.number, self.row, self.batch_size]
