// Writes "passed failed skipped" out of a report in JSON: counts.mjs vitest|playwright FILE
import { readFileSync } from 'node:fs';

const [kind, file] = process.argv.slice(2);
const report = JSON.parse(readFileSync(file, 'utf8'));
const readers = {
  vitest: (r) => [r.numPassedTests, r.numFailedTests, r.numPendingTests + r.numTodoTests],
  // A flaky test failed once; nobody retries here, so it would be one that was told to.
  playwright: (r) => [r.stats.expected, r.stats.unexpected + r.stats.flaky, r.stats.skipped],
};
const counts = readers[kind]?.(report);
if (!counts || counts.some((n) => !Number.isInteger(n)) || counts[0] + counts[1] < 1) {
  console.error(`counts: ${file} is no report of ${kind} with a test in it`);
  process.exit(1);
}
console.log(counts.join(' '));
