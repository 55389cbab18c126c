// A biLM of a small corpus, such as the two million words of WikiText-2: two LSTM layers of 1024
// cells, 256 dimensions per direction, with more dropout than bilm-tf has, and Adam. Each row of a
// batch reads one part of the text, across its line ends.
//
// Reproduces: nothing published.
// Expected: a test perplexity of 89.6 forward and 89.3 backward on WikiText-2 (33,278 words, `<eos>`
// counted; docs/results.md).
// Hardware and time: one thread of a CPU with AVX-512, 1.6 GB; about 4.1 hours.
// Sources: dropout, Gal and Ghahramani 2016; dropout of recurrent weights, Merity et al. 2018.
//
// The learning rate rises for `warmup_steps` batches, then falls to 0 at the end of the last epoch,
// whatever the size of the text. The progress bar shows the batches of an epoch, 932 of WikiText-2:
// words and line ends of the text, divided by 64 * 35. If all epochs together have fewer than 4,000,
// set fewer rows and fewer such batches, for instance
//   -o '{"dataset_reader.batch_size": 16, "trainer.warmup_steps": 100}'
// A vocabulary of fewer than 4,096 words needs "model.num_samples": "auto".
local pretrain = import 'pretrain.libsonnet';

pretrain.size('small_corpus')
