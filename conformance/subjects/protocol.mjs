// The loop of a subject in JavaScript. A subject is a program that answers test cases: it reads one
// JSON object a line from standard input and writes one JSON object a line to standard output.
// Anything may be written to standard error. To test an implementation of your own, copy this file.
import { readFileSync } from 'node:fs';
import { createInterface } from 'node:readline';

/** Thrown by an area: the implementation refused the input in its documented way. */
export class Invalid extends Error {}
class Skipped extends Error {}
/** Ends an area: the implementation has no call for this input. */
export const skip = (why) => { throw new Skipped(why); };

/**
 * Answers cases until `stop` or the end of the input.
 *
 * `areas` maps the name of an area to a function, synchronous or not, from the input to the value.
 * `isRefusal` tells the errors by which the library refuses an input from those of a defect in it;
 * the former are answered as `invalid`, and any others as `error`. `extra` is added to the answer
 * to `start`. The name, version and language are those of subject.json in the current folder.
 */
export async function serve(areas, { isRefusal = () => false, extra = {} } = {}) {
  const { name, version, language } = JSON.parse(readFileSync('subject.json', 'utf8'));
  console.log = console.info = console.debug = console.error; // What a library prints is no answer.
  const write = (answer) => process.stdout.write(JSON.stringify(answer) + '\n');
  for await (const line of createInterface({ input: process.stdin })) {
    const { cmd, seq, area, input } = JSON.parse(line);
    if (cmd === 'stop') break;
    if (cmd === 'start') {
      write({ version: 1, implementation: { name, version, language }, areas: Object.keys(areas), ...extra });
      continue;
    }
    try {
      write({ seq, value: await (areas[area] ?? (() => skip(`no area ${area}`)))(input) });
    } catch (e) {
      if (e instanceof Skipped) write({ seq, skipped: e.message });
      else if (e instanceof Invalid || isRefusal(e)) write({ seq, invalid: String(e.message) });
      else write({ seq, error: e instanceof Error ? `${e.name}: ${e.message}` : String(e) });
    }
  }
  process.stdin.destroy(); // After `stop`, an input that stays open must not keep the program alive.
}
