import allennlp_elmo_plugin


def test_public_api():
    """Others rely on these names."""
    assert allennlp_elmo_plugin.__all__ == [
        "BiLm",
        "BiLmOptions",
        "Elmo",
        "ElmoEmbedder",
        "batch_to_ids",
    ]
    for name in allennlp_elmo_plugin.__all__:
        assert getattr(allennlp_elmo_plugin, name).__module__.startswith("allennlp_elmo_plugin.")
