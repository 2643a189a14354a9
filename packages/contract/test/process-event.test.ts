// The meaning of envd's stream messages, and the exit code that a shell would show for an end.
import assert from "node:assert/strict";
import { test } from "node:test";
import { processEventOf, shellExitCode } from "../src/process-event.ts";

function exitCodeOf(end: object): number {
  const event = processEventOf({ event: { end } });
  assert.equal(event?.type, "end");
  return shellExitCode(event as Extract<NonNullable<typeof event>, { type: "end" }>);
}

void test("an exit code of zero may be left out", () => {
  assert.equal(exitCodeOf({ exited: true, status: "exit status 0" }), 0);
  assert.equal(exitCodeOf({ exitCode: 3, exited: true, status: "exit status 3", error: "exit status 3" }), 3);
});

void test("a process ended by a signal shows 128 plus the signal's number", () => {
  assert.equal(exitCodeOf({ exitCode: -1, status: "signal: killed", error: "signal: killed" }), 137);
  assert.equal(exitCodeOf({ exitCode: -1, status: "signal: terminated" }), 143);
  assert.equal(exitCodeOf({ exitCode: -1, status: "signal: segmentation fault (core dumped)" }), 139);
  assert.equal(exitCodeOf({ exitCode: -1, status: "signal: signal 34" }), 162);
});

void test("an end without code and signal counts as a failure", () => {
  assert.equal(exitCodeOf({ exitCode: -1, status: "" }), 1);
});

void test("output arrives as the bytes that were written", () => {
  const bytes = Buffer.from([0, 255, 13, 10, 0xc3]);
  for (const type of ["stdout", "stderr", "pty"] as const) {
    const event = processEventOf({ event: { data: { [type]: bytes.toString("base64") } } });
    assert.deepEqual(event, { type, data: bytes });
  }
});

void test("keepalives yield no event, and unknown events are an error", () => {
  assert.equal(processEventOf({ event: { keepalive: {} } }), undefined);
  assert.throws(() => processEventOf({ event: { surprise: {} } }), /does not know/);
});
