import pytest

from tests.support.testing import write_random_elmo


@pytest.fixture
def folder(tmp_path):
    """The folder of a random model."""
    write_random_elmo(tmp_path / "elmo", seed=2)
    return tmp_path / "elmo"
