// Semantic role labelling with ELMo at the input of the encoder: srl.jsonnet and what is below.
//
// Paper: F1 84.6 on the test set, 3.2 over its baseline (Peters et al. 2018, table 1).
// AllenNLP: no score in the model cards of allennlp-models.
// Differs: see srl.jsonnet.
// Score, hardware, time: not measured.
// Data: those of srl.jsonnet; ELMO, see elmo.libsonnet.
local elmo = (import '../elmo.libsonnet') { dropout:: 0.1 };

elmo.added_to(import 'srl.jsonnet', encoder='encoder')
