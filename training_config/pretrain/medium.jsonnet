// ELMo at half the size: two LSTM layers of 2048 cells, 256 dimensions per direction.
//
// Reproduces: the sizes of the published "medium" model (28.0 million parameters without the
//   softmax), with the training of original.jsonnet. How the published one was trained is not
//   documented.
// Expected, hardware and time: not measured.
// Source: the options.json that was published with the model.
local pretrain = import 'pretrain.libsonnet';

pretrain.size('medium')
