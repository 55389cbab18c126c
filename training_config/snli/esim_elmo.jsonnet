// Natural language inference with ELMo at the input and at the output of the encoder, as in the
// paper: esim.jsonnet and what is below.
//
// Paper: accuracy 88.7 +- 0.17 on the test set, 0.7 over its baseline (Peters et al. 2018, table 1).
// AllenNLP: no score in the model cards of allennlp-models.
// Differs: see esim.jsonnet.
// Score, hardware, time: not measured.
// Data: those of esim.jsonnet; ELMO, see elmo.libsonnet.
local elmo = import '../elmo.libsonnet';

elmo.added_to(import 'esim.jsonnet', encoder='encoder', at_output=true) {
  // The projection reads the encoded sentence, the attended one, their difference and product.
  model+: { projection_feedforward+: { input_dim+: 4 * elmo.dim } },
}
