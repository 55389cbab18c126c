"""Every public path of embedding on a GPU gives the CPU's numbers."""

import io
import os

import pytest
import torch
from allennlp.modules.seq2seq_encoders import PassThroughEncoder

from allennlp_elmo_plugin import Elmo, ElmoEmbedder, batch_to_ids
from allennlp_elmo_plugin.embedding import corpus_embedder
from allennlp_elmo_plugin.plugin.benchmark.cached_bilm import Vectors, keep_vectors
from allennlp_elmo_plugin.plugin.components import ElmoTokenEmbedder
from allennlp_elmo_plugin.plugin.components.elmo_output_encoder import ElmoOutputEncoder
from tests.support.layers_files import assert_same_files
from tests.support.pretend_gpu import check_on_gpu, count_waits, gpu_for_tests
from tests.support.testing import fork, limit_file_size, read_arrays, write_random_elmo

pytestmark = [pytest.mark.gpu, pytest.mark.in_turns(3)]

TEXTS = "Alice saw the old mill .", "Yes .", "Nobody counts the fish", "x" * 70
SENTENCES = [text.split() for text in TEXTS]
WORDS = ["@@PADDING@@", "Alice", "saw", "the", "mill", "."]

Files = tuple[str, str]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_random_elmo(tmp_path_factory.mktemp("elmo"), seed=3)


@pytest.mark.parametrize("initial_state", ["settled", "zero", "carried"])
def test_embedder(initial_state, files, tmp_path):
    def embed(device):
        number = -1 if device.type == "cpu" else 0
        embedder = ElmoEmbedder(*files, number, initial_state=initial_state)
        embeddings, mask = embedder.batch_to_embeddings(SENTENCES)
        assert {embeddings.device, mask.device} == {device}
        output = tmp_path / f"{device.type}.hdf5"
        text = "\n".join(map(" ".join, SENTENCES)) + "\n\n"
        embedder.embed_file(io.BytesIO(text.encode()), str(output), batch_size=2)
        from_file = read_arrays(output)
        del from_file["sentence_to_index"]
        whole = [embeddings, mask, from_file, embedder.embed_sentence(["again"])]
        whole += [embedder.embed_batch([*SENTENCES, []], how) for how in ("all", "top", "average")]
        embedder._segment_steps = 3
        return [*whole, embedder.embed_batch(SENTENCES)]

    check_on_gpu(embed)


@pytest.mark.parametrize("options", [{}, {"output_format": "all"}, {"pooling": "mean"}])
def test_batches_do_not_wait_for_a_gpu(options, files, tmp_path):
    """While it computes one, the next is prepared."""
    with gpu_for_tests():
        embedder = ElmoEmbedder(*files, 0)

        def embed(n_batches):
            text = io.BytesIO(b"Alice saw the old mill .\nYes .\n" * n_batches)
            form = {"output_format": "top", "batch_size": 2, "overwrite": True, **options}
            embedder.embed_file(text, str(tmp_path / "o"), **form)

        embed(1)
        assert count_waits(lambda: embed(20)) == 0


@pytest.mark.parametrize("pooling", [None, "max"])
def test_a_file_from_a_gpu_with_too_little_memory(pooling, files, tmp_path, monkeypatch):
    text = "\n".join(map(" ".join, 3 * SENTENCES))

    def embed(device):
        embedder = ElmoEmbedder(*files, -1 if device.type == "cpu" else 0)
        embedder.elmo_bilm.settled_state()
        run = embedder.elmo_bilm.run

        def refuse(vectors, *args):
            if len(vectors) > 20 and device.type != "cpu":
                raise torch.OutOfMemoryError("CUDA out of memory")
            return run(vectors, *args)

        monkeypatch.setattr(embedder.elmo_bilm, "run", refuse)
        path = tmp_path / device.type
        embedder.embed_file(io.StringIO(text), str(path), forget_sentences=True, pooling=pooling)
        return read_arrays(path)

    check_on_gpu(embed)


@pytest.mark.parametrize("share", [0.02, 0.6])
def test_a_full_disk_behind_a_gpu(share, files, tmp_path, monkeypatch):
    """While the first part is written, or while parts are joined: they are not lost."""
    monkeypatch.setattr(corpus_embedder, "PART_WORDS", 100)

    def embed(device, name, **options):
        text = io.BytesIO(b"Alice saw the old mill .\n" * 100)
        ElmoEmbedder(*files, device).embed_file(text, str(tmp_path / name), **options)

    def run():
        limit_file_size(int(share * os.path.getsize(tmp_path / "expected")))
        with gpu_for_tests(), pytest.raises(OSError, match="File too large; .*make room"):
            embed(0, "o")

    with gpu_for_tests():
        embed(0, "expected")
    assert fork(run) == 0
    assert os.path.exists(tmp_path / "o.parts" / "00001") == (share > 0.5)
    with gpu_for_tests():
        embed(0, "o", resume=True)
    assert_same_files(tmp_path / "o", tmp_path / "expected")


def _gradients(module, device):
    gradients = ((name, p.grad) for name, p in module.named_parameters())
    dense = {name: grad.to_dense() for name, grad in gradients if grad is not None}
    assert {grad.device for grad in dense.values()} == {device}
    return dense


_KINDS = {
    "carried": {},
    "settled": {"initial_state": "settled"},
    "layer norm, boundaries": {"do_layer_norm": True, "keep_sentence_boundaries": True},
    "trained, fixed mix": {"scalar_mix_parameters": [1.0, 2.0, 3.0], "requires_grad": True},
    "trained, settled": {"requires_grad": True, "initial_state": "settled"},
    "bfloat16": {"precision": "bfloat16", "initial_state": "zero"},
    "int8": {"precision": "int8", "initial_state": "zero"},
    "words": {"vocab_to_cache": WORDS, "max_cached_words": 3},
}


@pytest.mark.parametrize("kind", _KINDS)
def test_elmo(kind, files):
    def run(device):
        elmo = Elmo(*files, 2, dropout=0.0, **_KINDS[kind]).to(device)
        outputs = [elmo(batch_to_ids(batch).to(device)) for batch in (SENTENCES, SENTENCES[1:])]
        outputs.append(elmo(batch_to_ids(SENTENCES).view(2, 2, -1, 50).to(device)))
        for batch in (SENTENCES, [[]], [[], SENTENCES[0]]):
            outputs.append(elmo.embed_sentences(batch))
        if kind == "words":
            words = torch.tensor([[1, 2, 3, 4, 5], [3, 4, 0, 0, 0]]).to(device)
            characters = batch_to_ids([WORDS[1:], ["the", "mill"]]).to(device)
            # The second words are not in the cache.
            outputs += [elmo(characters, words), elmo(characters, 9 * words)]
        for output in outputs:
            assert output["mask"].device == device
            assert {mix.device for mix in output["elmo_representations"]} == {device}
        if not elmo._elmo_lstm._requires_grad:
            return outputs
        optimizer = torch.optim.SGD(elmo.parameters(), lr=0.1)
        for _ in range(3):
            with torch.inference_mode():
                outputs.append(elmo.eval()(batch_to_ids(SENTENCES).to(device)))
            output = elmo.train()(batch_to_ids(SENTENCES).to(device))
            optimizer.zero_grad()
            sum(mix.pow(2).mean() for mix in output["elmo_representations"]).backward()
            outputs.append(_gradients(elmo, device))
            optimizer.step()
        return outputs

    # On a GPU, int8 is float32.
    check_on_gpu(run, atol={"bfloat16": 1e-2, "int8": 5e-2}.get(kind, 1e-5))


def test_default_device(files):
    def run(device):
        with device:
            # AllenNLP's scalar mixes are on the CPU whatever the default.
            elmo = Elmo(*files, 1, initial_state="settled", vocab_to_cache=WORDS).to(device).eval()
            return [
                elmo(batch_to_ids(SENTENCES)),
                elmo(batch_to_ids([WORDS[1:]]), torch.tensor([[1, 2, 3, 4, 5]])),
                elmo.embed_sentences(SENTENCES),
                ElmoEmbedder(*files).embed_batch(SENTENCES),  # on the CPU
            ]

    check_on_gpu(run)


def test_embedders_of_tasks(files):
    def run(device):
        torch.manual_seed(2)
        kept = ElmoTokenEmbedder(*files, dropout=0.0, initial_state="settled")
        keep_vectors(kept, Vectors())
        elmo = ElmoTokenEmbedder(*files, dropout=0.0, num_output_representations=2)
        encoder = ElmoOutputEncoder(PassThroughEncoder(16), 16, num_highway_layers=1)
        results = []
        for module in (kept.to(device), torch.nn.Sequential(elmo, encoder).to(device)):
            for batch in (SENTENCES, SENTENCES[1:], SENTENCES):
                output = module(batch_to_ids(batch).to(device))
                assert output.device == device
                output.sum().backward()
                results.append(output)
            results.append(_gradients(module, device))
        return results

    check_on_gpu(run)
