// Sentiment in five classes with ELMo at the input, by the model's own argument `elmo`: bcn.jsonnet
// and what is below.
//
// Paper: accuracy 54.7 +- 0.5 on the test set, 3.3 over its baseline (Peters et al. 2018, table 1).
// AllenNLP: no score in the model cards of allennlp-models.
// Differs: see bcn.jsonnet. `use_integrator_output_elmo` would set a second representation beside
//   the output of the integrator. No dropout of the representation: `embedding_dropout` of the model
//   has it already.
// Score, hardware, time: not measured.
// Data: those of bcn.jsonnet; ELMO, see elmo.libsonnet.
local elmo = (import '../elmo.libsonnet') { dropout:: 0.0 };

elmo.reader_added_to(import 'bcn.jsonnet') {
  model+: {
    elmo: elmo.files { num_output_representations: 1 },
    use_input_elmo: true,
    pre_encode_feedforward+: { input_dim+: elmo.dim },
    regularizer: elmo.regularizer,
  },
}
