import logging

import pytest

from tests.support.training_runs import write_data


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A corpus and its vocabulary."""
    return write_data(tmp_path_factory.mktemp("data"))


@pytest.fixture(autouse=True)
def _log_handlers():
    """Remove the handlers that AllenNLP adds to the root logger, for the streams of one test."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
