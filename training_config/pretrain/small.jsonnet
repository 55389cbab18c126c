// ELMo at a quarter of the size: two LSTM layers of 1024 cells, 128 dimensions per direction.
//
// Reproduces: the sizes of the published "small" model (13.6 million parameters without the
//   softmax), with the training of original.jsonnet. How the published one was trained is not
//   documented.
// Expected, hardware and time: not measured on a large corpus; docs/results.md has what was
//   measured on a small one.
// Source: the options.json that was published with the model.
//
// A small corpus wants fewer rows, for more updates in a pass (demo.jsonnet is for a very small one):
//   -o '{"dataset_reader.batch_size": 32, "validation_dataset_reader.batch_size": 32,
//        "trainer.num_epochs": 5}'
local pretrain = import 'pretrain.libsonnet';

pretrain.size('small')
