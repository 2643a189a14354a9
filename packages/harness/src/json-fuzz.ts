// Arbitrary JSON for a server's HTTP interface: what is sent, and what every answer must satisfy.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";

/** A method, a path, and the possible members of its body. */
export type JsonCall = readonly [method: string, path: string, members: readonly string[]];

export const residentBytes = (pid: number) => Number(/VmRSS:\s+(\d+) kB/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]) * 1024;

/** A seeded generator, so that a failure can be reproduced. */
export function chance(seed: number): (below: number) => number {
  let state = seed >>> 0 || 1;
  return (below) => {
    state = (Math.imul(state ^ (state >>> 15), 0x2c1b3c6d) + 0x9e3779b9) >>> 0;
    return state % below;
  };
}

const oddities: readonly string[] = [
  ...[
    "",
    "null",
    "true",
    "0",
    "-0",
    "1e999",
    "-1",
    "1.5",
    "1e308",
    "9007199254740993",
    "18446744073709551616",
    '""',
    '"\\u0000"',
    '"\\ud800"',
    "[]",
    "{}",
    "[[]]",
  ],
  ...[
    '"../../etc/passwd"',
    '"/"',
    '"/a/b"',
    '"."',
    '".."',
    '"\u202e"',
    "NaN",
    "undefined",
    "'x'",
    '"a',
    "{",
    "[1,",
    '{"a":}',
    '{"__proto__":{"x":1}}',
    "[null]",
  ],
  ...[`"${"x".repeat(70_000)}"`, "[".repeat(20_000), '{"a":'.repeat(5000), `[${"0,".repeat(20_000)}0]`, "\ufeff{}", "\u0000"],
];

function bodies(fields: readonly string[], next: (below: number) => number): string[] {
  const any = () => oddities[next(oddities.length)] as string;
  const object = () => `{${fields.map((name) => `${JSON.stringify(next(8) === 0 ? any() : name)}:${any()}`).join(next(30) === 0 ? ",," : ",")}}`;
  return [...oddities, ...Array.from({ length: 40 }, object)];
}

/** Sends every oddity with each call, as the body and as each member; `onAnswer` makes further checks. */
export async function fuzzJson(
  url: string,
  calls: readonly JsonCall[],
  next: (below: number) => number,
  onAnswer: (path: string, status: number, what: string) => void = () => undefined,
): Promise<void> {
  for (const [method, path, fields] of calls)
    for (const body of bodies(fields, next)) {
      const answer = await fetch(`${url}${path}`, { method, headers: { "Content-Type": "application/json" }, body, signal: AbortSignal.timeout(60_000) });
      const said = await answer.text();
      const what = `${method} ${path} ${body.slice(0, 120)}: ${answer.status} ${said.slice(0, 200)}`;
      assert.ok(answer.status < 500, what);
      // The answer names the input without growing beyond it.
      assert.ok(said.length < 2 * body.length + 10_000, what);
      onAnswer(path, answer.status, what);
    }
  for (const [method, path, fields] of calls) {
    // Latin-1 is not valid UTF-8, and replacement characters would make two names equal.
    const body = Buffer.from(JSON.stringify(Object.fromEntries((fields.length === 0 ? ["x"] : fields).map((name) => [name, "\xff"]))), "latin1");
    const { status } = await fetch(`${url}${path}`, { method, headers: { "Content-Type": "application/json" }, body, signal: AbortSignal.timeout(60_000) });
    assert.equal(status, 400, `${method} ${path} with a body that is not UTF-8`);
  }
}
