// Parses the host's connection tracking for the sandboxes' own connections.
import assert from "node:assert/strict";
import { test } from "node:test";
import { outboundOf } from "../src/node/watch/outbound.ts";

const line = (state: string, from: string, to: string) =>
  `ipv4     2 tcp      6 431999 ${state} src=${from} dst=${to} sport=40000 dport=443 src=${to} dst=${from} sport=443 dport=40000 [ASSURED] mark=0 zone=0 use=2`;

void test("a connection counts for the side that opened it, while it is established", () => {
  const text = [
    line("ESTABLISHED", "10.0.0.2", "192.0.2.1"),
    line("TIME_WAIT", "10.0.0.3", "192.0.2.1"),
    line("ESTABLISHED", "10.0.0.1", "10.0.0.4"),
    "ipv4     2 udp      17 20 src=10.0.0.5 dst=192.0.2.1 sport=5 dport=53 src=192.0.2.1 dst=10.0.0.5 sport=53 dport=5 mark=0 zone=0 use=2",
    "",
  ].join("\n");
  assert.deepEqual([...outboundOf(text)], ["10.0.0.2", "10.0.0.1"]);
});
