"""
Layers of text as numpy arrays and HDF5 files. Start with `embedder.py`, the class `ElmoEmbedder`;
`corpus_embedder.py` is what `allennlp elmo` runs, and `ray_workers.py` runs it in many processes.
`nearest.py` compares the occurrences of a word.
"""
