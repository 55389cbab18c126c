from unittest.mock import patch

import pytest


@pytest.fixture
def savefig():
    """What notes the figures of matplotlib that are saved."""
    figure = pytest.importorskip("matplotlib.figure").Figure
    with patch.object(figure, "savefig", autospec=True, side_effect=figure.savefig) as saving:
        yield saving
