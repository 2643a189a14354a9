// Watches of one client share the checks of their member, and each compares the answer with its own revision.
import assert from "node:assert/strict";
import { test } from "node:test";
import { until } from "@svc/harness/until.ts";
import { type Checked, openChecks } from "../src/etcd/checks.ts";
import type { Endpoints } from "../src/etcd/endpoints.ts";

type Asked = { readonly url: string; readonly resolve: (revision: bigint) => void; readonly reject: (error: Error) => void };

function openAsked() {
  const asked: Asked[] = [];
  const callOne = ((url: string) =>
    new Promise<unknown>((resolve, reject) => {
      asked.push({ url, resolve: (revision) => resolve({ header: { revision }, kvs: [], more: false }), reject });
    })) as Endpoints["callOne"];
  const next = async (number: number) => until(`request ${number}`, () => asked[number - 1]);
  return { checks: openChecks({ callOne }, 5), asked, next };
}

function watchAt(revision: bigint | undefined) {
  const said: string[] = [];
  const watch = { revision, said, prefix: "w/" };
  const checked: Checked = {
    prefix: "w/",
    revision: () => watch.revision,
    onHistoryLost: () => said.push("history lost"),
    onBroken: (error) => said.push((error as Error).message),
  };
  return { ...watch, checked, knows: (next: bigint) => void (watch.revision = next) };
}

void test("watches of one member share one check, and a watch that learns of newer changes meanwhile does not report a lost history", async () => {
  const { checks, asked, next } = openAsked();
  const [first, second, fresh] = [watchAt(10n), watchAt(5n), watchAt(undefined)];
  const leave = [first, second, fresh].map(({ checked }) => checks.join("http://one", checked));
  const pending = await next(1);
  first.knows(12n);
  // Several intervals pass: there is no second request while the first is unanswered.
  await new Promise((resolve) => setTimeout(resolve, 50));
  assert.equal(asked.length, 1);
  pending.resolve(10n);
  (await next(2)).resolve(9n);
  const third = await next(3);
  assert.deepEqual([first.said, second.said, fresh.said], [["history lost"], [], []]);
  const late = watchAt(1n);
  leave.push(checks.join("http://one", late.checked));
  leave[1]?.();
  third.reject(new Error("no answer"));
  await next(4);
  assert.deepEqual([first.said, second.said, fresh.said, late.said], [["history lost", "no answer"], [], ["no answer"], []]);
  for (const each of leave) each();
});

void test("each member is checked for its own watches, and no longer once no watch reads from it", async () => {
  const { checks, asked, next } = openAsked();
  const leave = ["http://one", "http://two"].map((url) => checks.join(url, watchAt(1n).checked));
  await next(2);
  assert.deepEqual(new Set(asked.map(({ url }) => url)), new Set(["http://one", "http://two"]));
  for (const each of leave) each();
  for (const each of asked) each.resolve(1n);
  const before = asked.length;
  await new Promise((resolve) => setTimeout(resolve, 50));
  assert.equal(asked.length, before);
});
