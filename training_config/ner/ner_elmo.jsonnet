// Named entities with ELMo at the input of the encoder: ner.jsonnet and what is below.
//
// Paper: F1 92.22 +- 0.10 on the test set, 2.06 over its baseline (Peters et al. 2018, table 1).
// AllenNLP: F1 96 on the validation set (model card `tagging-elmo-crf-tagger` of allennlp-models).
// Differs: see ner.jsonnet. No dropout of the representation: `dropout` of the model has it already.
// Score, hardware, time: not measured.
// Data: those of ner.jsonnet; ELMO, see elmo.libsonnet.
local elmo = (import '../elmo.libsonnet') { dropout:: 0.0, l2:: 0.1 };

elmo.added_to(import 'ner.jsonnet', encoder='encoder')
