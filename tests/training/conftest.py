import pytest

from tests.support.training_runs import write_data


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A corpus and its vocabulary."""
    return write_data(tmp_path_factory.mktemp("data"))
