"""
The names of a model's files, for all modules that read or write them.
"""

OPTIONS_FILE = "options.json"
WEIGHT_FILE = "weights.hdf5"
SOFTMAX_FILE = "softmax.hdf5"
ARCHIVE_FILE = "model.tar.gz"
ARCHIVED_WEIGHT_FILE = "weights.th"
