// Constituency parsing with ELMo at the input of the encoder: constituency.jsonnet and what is
// below.
//
// Paper: none. Score, hardware, time: not measured.
// AllenNLP: F1 94.11 on the Penn Treebank (model card `structured-prediction-constituency-parser`
//   of allennlp-models).
// Data: those of constituency.jsonnet; ELMO, see elmo.libsonnet.
local elmo = (import '../elmo.libsonnet') { dropout:: 0.2 };

elmo.added_to(import 'constituency.jsonnet', encoder='encoder')
