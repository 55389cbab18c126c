// Constituency parsing with ELMo at the input of the encoder: constituency.jsonnet and what is
// below.
//
// Paper: none. Score, hardware, time: not measured.
// Data: those of constituency.jsonnet; ELMO, see elmo.libsonnet.
local elmo = (import '../elmo.libsonnet') { dropout:: 0.2 };

elmo.added_to(import 'constituency.jsonnet', encoder='encoder')
