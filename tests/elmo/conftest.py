from tests.support.elmo_pairs import elmo_pair, files_of  # noqa: F401
