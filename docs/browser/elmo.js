// ELMo in a browser: words in, vectors out, by ONNX Runtime's WebAssembly.
import * as ort from "./ort.wasm.min.mjs";

const WIDTH = 50; // characters of a word, with its marks

/** Return the character ids of one sentence, a list of words. */
export function characterIds(words) {
  const ids = new BigInt64Array(words.length * WIDTH).fill(261n);
  words.forEach((word, i) => {
    const bytes = new TextEncoder().encode(word).slice(0, WIDTH - 2);
    ids.set([259n, ...Array.from(bytes, (byte) => BigInt(byte + 1)), 260n], i * WIDTH);
  });
  return new ort.Tensor("int64", ids, [1, words.length, WIDTH]);
}

/** Fetch a file, and call `onBytes` with the number of bytes of each part that arrives. */
async function download(url, onBytes) {
  const response = await fetch(url);
  if (!response.ok) throw new Error(`${url}: ${response.status} ${response.statusText}`);
  const parts = [];
  for (const reader = response.body.getReader(); ; ) {
    const { done, value } = await reader.read();
    if (done) break;
    parts.push(value);
    onBytes(value.length);
  }
  return new Uint8Array(await new Blob(parts).arrayBuffer());
}

/** Load a model. `onProgress` is called with a share from 0 to 1 of `nBytes`, all there is to load. */
export async function loadElmo(url, nBytes, onProgress) {
  let loaded = 0;
  const onBytes = (n) => onProgress(Math.min(1, (loaded += n) / nBytes));
  const wasm = new URL("ort-wasm-simd-threaded.wasm", import.meta.url);
  const [model, binary] = await Promise.all([download(url, onBytes), download(wasm, onBytes)]);
  ort.env.wasm.numThreads = 1; // More need headers that few servers send.
  ort.env.wasm.wasmBinary = binary;
  const session = await ort.InferenceSession.create(model);

  /** Return the vectors of one sentence: `vector(layer, word)`, a Float32Array. */
  return async function embed(words) {
    const { layers } = await session.run({ character_ids: characterIds(words) });
    const [, , nWords, dim] = layers.dims;
    return (layer, word) => {
      const start = (layer * nWords + word) * dim;
      return layers.data.subarray(start, start + dim);
    };
  };
}
