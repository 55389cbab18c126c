// The page browser.md: the uses of a word in some sentences, by similarity and on a map.
import { loadElmo } from "./elmo.js";

const element = (id) => document.getElementById(`elmo-${id}`);
const names = ["text", "word", "layer", "map", "uses", "status", "bar"];
const [text, word, layer, map, uses, status, bar] = names.map(element);
const NS = "http://www.w3.org/2000/svg";
const embedded = new Map(); // the vectors of sentences
let embed, chosen, axes, run = 0;

const split = (line) => line.match(/[\p{L}\p{N}]+(?:['’-][\p{L}\p{N}]+)*|\S/gu) ?? [];

/** Return the uses of the word: its line, its place there, and its vector less their mean. */
async function findUses(sentences, current) {
  const found = [];
  for (const [line, words] of sentences.entries()) {
    const places = words.flatMap((each, i) => (each.toLowerCase() === word.value ? [i] : []));
    if (!places.length) continue;
    const key = words.join(" ");
    if (!embedded.has(key)) {
      if (embedded.size > 2000) embedded.clear();
      status.textContent = `Embedding line ${line + 1} …`;
      await new Promise(requestAnimationFrame); // to show that, and to read keys
      if (current !== run) return null; // The text has changed.
      embedded.set(key, await embed(words));
    }
    for (const place of places) {
      const vector = Float32Array.from(embedded.get(key)(Number(layer.value), place));
      found.push({ line, words, place, vector, id: `${line}.${place}` });
    }
  }
  const mean = found[0]?.vector.map((_, k) => sum(found, (use) => use.vector[k]) / found.length);
  for (const use of found) use.vector = use.vector.map((value, k) => value - mean[k]);
  return found;
}

const sum = (items, value) => items.reduce((total, item, i) => total + value(item, i), 0);
const dot = (a, b) => a.reduce((total, value, k) => total + value * b[k], 0);
const cosine = (a, b) => dot(a, b) / Math.sqrt(dot(a, a) * dot(b, b) || 1);

/** Place the uses by the two directions in which their vectors differ most. */
function placeOnMap(found) {
  const left = found.map((use) => use.vector.slice());
  axes ??= [];
  for (const [n, name] of ["x", "y"].entries()) {
    // The power method, from the last axis: the map turns no more than it must.
    let axis = axes[n] ?? left[0].map((_, k) => Math.sin(k + 1));
    for (let i = 0; i < 100; i++) {
      const along = left.map((vector) => dot(vector, axis));
      const next = axis.map((_, k) => sum(left, (vector, j) => along[j] * vector[k]));
      const length = Math.hypot(...next);
      if (!(length > 1e-9)) break;
      axis = next.map((value) => value / length);
    }
    axes[n] = axis;
    for (const [i, use] of found.entries()) {
      use[name] = dot(left[i], axis);
      left[i] = left[i].map((value, k) => value - use[name] * axis[k]);
    }
  }
  const scale = 44 / Math.max(...found.map((use) => Math.max(Math.abs(use.x), Math.abs(use.y))), 1e-9);
  for (const use of found) [use.x, use.y] = [50 + scale * use.x, 50 - scale * use.y];
}

/** Move the dots of the map, one for each use; `transition` in page.css makes it smooth. */
function draw(found) {
  const old = new Map([...map.children].map((dot) => [dot.dataset.id, dot]));
  for (const use of found) {
    let group = old.get(use.id);
    old.delete(use.id);
    if (!group) {
      group = map.appendChild(document.createElementNS(NS, "g"));
      group.dataset.id = use.id;
      group.append(...["title", "circle", "text"].map((name) => document.createElementNS(NS, name)));
      group.children[1].setAttribute("r", 4);
      group.addEventListener("click", () => choose(use.id));
    }
    group.style.transform = `translate(${use.x}px, ${use.y}px)`;
    group.style.setProperty("--similarity", Math.max(0, use.similarity));
    group.classList.toggle("chosen", use.id === chosen);
    group.children[0].textContent = use.words.join(" ");
    group.children[2].textContent = use.line + 1;
  }
  for (const group of old.values()) group.remove();
}

function list(found) {
  const items = [...found].sort((a, b) => b.similarity - a.similarity).map((use) => {
    const item = document.createElement("li");
    const button = item.appendChild(document.createElement("button"));
    const [number, sentence, value] = ["b", "span", "i"].map((tag) =>
      button.appendChild(document.createElement(tag)));
    number.textContent = use.line + 1;
    const mark = document.createElement("mark");
    mark.textContent = use.words[use.place];
    const [before, after] = [use.words.slice(0, use.place), use.words.slice(use.place + 1)];
    const rest = ` ${after.join(" ")}`.replace(/ (?=[.,;:!?])/g, "");
    sentence.append(before.join(" "), " ", mark, rest);
    value.textContent = use.id === chosen ? "" : use.similarity.toFixed(2);
    button.classList.toggle("chosen", use.id === chosen);
    button.addEventListener("click", () => choose(use.id));
    return item;
  });
  uses.replaceChildren(...items);
}

function choose(id) {
  chosen = id;
  update();
}

/** Offer the words that are there at least twice, the most frequent first. */
function offerWords(sentences) {
  const counts = new Map();
  for (const each of sentences.flat().map((each) => each.toLowerCase()))
    if (/\p{L}/u.test(each)) counts.set(each, (counts.get(each) ?? 0) + 1);
  const often = [...counts].filter(([, n]) => n > 1).sort((a, b) => b[1] - a[1]);
  const before = word.value || word.dataset.first;
  word.replaceChildren(...often.map(([each, n]) => new Option(`${each} (${n})`, each)));
  word.value = counts.get(before) > 1 ? before : (often[0]?.[0] ?? "");
}

async function update() {
  const current = ++run;
  const sentences = text.value.split("\n").map(split);
  offerWords(sentences);
  const start = performance.now();
  const found = await findUses(sentences, current);
  if (!found || current !== run) return;
  const seconds = ((performance.now() - start) / 1000).toFixed(2);
  const query = found.find((use) => use.id === chosen) ?? found[0];
  chosen = query?.id;
  for (const use of found) use.similarity = cosine(use.vector, query.vector);
  if (found.length) placeOnMap(found);
  draw(found);
  list(found);
  status.textContent = found.length
    ? `${found.length} uses of “${word.value}”, ${seconds} s. Numbers are lines of the text.`
    : "Write some sentences that share a word.";
}

let timer;
text.addEventListener("input", () => {
  clearTimeout(timer);
  timer = setTimeout(update, 300);
});
for (const control of [word, layer])
  control.addEventListener("change", () => {
    if (control === word) chosen = axes = undefined;
    update();
  });

try {
  if (location.protocol === "file:")
    throw new Error("a browser loads it from a server only: python -m http.server -d site");
  const onProgress = (share) => (bar.value = share);
  embed = await loadElmo("browser/tiny.onnx", Number(bar.dataset.bytes), onProgress);
  bar.remove();
  await update();
} catch (error) {
  status.textContent = `ELMo could not be loaded: ${error.message}`;
}
