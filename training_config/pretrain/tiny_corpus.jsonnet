// A biLM of some 400,000 words: two LSTM layers of 256 cells, 128 dimensions per direction, with more
// dropout than bilm-tf has, and Adam.
//
// Reproduces: nothing published.
// Expected: a validation perplexity of 178.3 with the first 399,939 words of WikiText-2
//   (docs/results.md).
// Hardware and time: 10 minutes of one thread of a busy CPU with AVX-512, 1.1 GB.
// Source: small_corpus.jsonnet, which is for more text, and has larger layers and more passes.
local pretrain = import 'pretrain.libsonnet';

pretrain.size('tiny_corpus')
