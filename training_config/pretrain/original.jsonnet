// The original ELMo: characters, two LSTM layers of 4096 cells, 512 dimensions per direction.
//
// Reproduces: the settings of bilm-tf's bin/train_elmo.py, which trained the published "original"
//   model (93.6 million parameters without the softmax) on the 1 Billion Word Benchmark with a
//   vocabulary of 793,471 words.
// Expected: the paper gives a perplexity of 39.7 on that benchmark, after 10 epochs, as the mean of
//   both directions. Not measured here.
// Hardware and time: bilm-tf trained on three GTX 1080 for about two weeks, each GPU with 128 rows
//   of its own. This file has the 128 rows of one. Not measured here.
// Source: Peters et al. 2018, "Deep contextualized word representations";
//   https://github.com/allenai/bilm-tf
local pretrain = import 'pretrain.libsonnet';

pretrain.size('original')
