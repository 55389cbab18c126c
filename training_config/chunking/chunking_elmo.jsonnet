// Chunking with ELMo at the input of the encoder: chunking.jsonnet and what is below.
//
// Paper: none. Score, hardware, time: not measured.
// AllenNLP: no score in the model cards of allennlp-models.
// Data: those of chunking.jsonnet; ELMO, see elmo.libsonnet.
local elmo = (import '../elmo.libsonnet') { dropout:: 0.0, l2:: 0.1 };

elmo.added_to(import 'chunking.jsonnet', encoder='encoder')
