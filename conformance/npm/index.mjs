import { readFileSync } from "node:fs";

const read = (path) => JSON.parse(readFileSync(new URL(path, import.meta.url)));

/** The index of the pack: version, areas, profiles. */
export const pack = read("pack.json");

/** The vectors of an area, for example "bip37.sizing". */
export const vectors = (area) => read(`vectors/${area}.json`);

/** All cases of an area. Each input has the parameters of its group. */
export const cases = (area) =>
  vectors(area).groups.flatMap(({ params, cases }) =>
    cases.map((one) => ({ ...one, input: { ...params, ...one.input } })));
