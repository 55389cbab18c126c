// A small character biLM on 40,000 words of the Python language reference: what `make demo`
// trains. See scripts/demo.sh, which makes the data and sets the paths.
//
// Reproduces nothing published: it is bilm-tf's model and training with fewer cells and filters,
// more dropout and the full softmax, as such a small text wants them.
// Expected: a perplexity of about 61 in either direction on held-out text, where a unigram model
//   has 252 (measured: Python 3.11, whose text has 38,908 words for training; others differ a
//   little).
// Hardware and time: 2 to 3 minutes of training on one CPU core (measured: 2 min 31 s on a machine
//   busy with other work), 1 GB of memory. No GPU.
// Source: the text is in `pydoc_data.topics` of every Python.
local pretrain = import 'pretrain.libsonnet';

pretrain.size('demo')
