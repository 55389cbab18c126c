from dataclasses import asdict, dataclass
from typing import Any, Dict, List


@dataclass
class TextPosition:
    """
    Where a pass over a corpus is after a window.

    # Parameters

    epoch : `int`
        The number of the pass.
    n_windows : `int`
        How many windows of it have been read.
    streams : `List[Dict[str, Any]]`
        Where the stream of each direction is: `WindowStream.state_dict`.
    """

    epoch: int
    n_windows: int
    streams: List[Dict[str, Any]]

    def to_dict(self) -> Dict[str, Any]:
        """The same as plain Python values, the arguments of `TextPosition`."""
        return asdict(self)
