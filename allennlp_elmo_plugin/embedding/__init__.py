"""Layers of text as numpy arrays and HDF5 files: `ElmoEmbedder`, and what `elmo` runs."""
