"""The language model itself: torch, numpy and h5py, nothing of AllenNLP."""
