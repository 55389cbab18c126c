"""
The files of a language model: the published HDF5 layout, and bilm-tf's TensorFlow checkpoints.
"""
