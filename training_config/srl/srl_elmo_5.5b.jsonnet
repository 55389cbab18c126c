// Semantic role labelling with the ELMo that was trained on 5.5 billion words (its published files,
// 360 MB, are downloaded once): srl.jsonnet and what is below.
//
// Paper: none; the model was published after it.
// AllenNLP: no score in the model cards of allennlp-models.
// Differs: see srl.jsonnet.
// Score, hardware, time: not measured.
// Data: those of srl.jsonnet.
local elmo = (import '../elmo.libsonnet') { name:: 'original-5.5b', dropout:: 0.1 };

elmo.added_to(import 'srl.jsonnet', encoder='encoder')
