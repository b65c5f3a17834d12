// Runs one program of this folder: reads {"program", "arguments"} from standard
// input and writes what its main returns to descriptor 3.

import { readFileSync, writeSync } from "node:fs";

const { program, arguments: given } = JSON.parse(readFileSync(0, "utf8"));
const { main } = await import(`./${program}.mjs`);
const result = Buffer.from(JSON.stringify((await main(given)) ?? null));
for (let at = 0; at < result.length; ) at += writeSync(3, result, at);
