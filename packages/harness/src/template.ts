// Shared by the tests of template builds: a context folder, builds with the JS SDK and their log, builds with the plain API.
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import type { Input, Output } from "@svc/contract/operation.ts";
import { buildTemplate, getBuildStatus, requestTemplate } from "@svc/contract/template-build.ts";
import { Template } from "e2b";
import type { TestNode } from "./node.ts";
import { until } from "./until.ts";

export type Folder = Disposable & { readonly path: string; write(name: string, content: string, mode?: number): void };

export function contextFolder(files: Readonly<Record<string, string>> = {}): Folder {
  const path = mkdtempSync(join(tmpdir(), "svc-context-test-"));
  const write = (name: string, content: string, mode = 0o644) => {
    mkdirSync(dirname(join(path, name)), { recursive: true });
    writeFileSync(join(path, name), content, { mode });
  };
  for (const [name, content] of Object.entries(files)) write(name, content);
  return { path, write, [Symbol.dispose]: () => rmSync(path, { recursive: true, force: true }) };
}

/** A node or a gateway. */
type Entry = Pick<TestNode, "url" | "apiKey">;

export function connectionTo(node: Entry) {
  return { apiUrl: node.url, sandboxUrl: node.url, apiKey: node.apiKey };
}

export type Built = { readonly templateID: string; readonly buildID: string; readonly lines: readonly string[] };
type Buildable = Parameters<typeof Template.build>[0];
type BuildOptions = { skipCache?: boolean; cpuCount?: number; memoryMB?: number; tags?: string[] };

/** Builds with the real SDK; returns the log's messages. @throws BuildError, with `lines` in its message. */
export async function build(node: Entry, template: unknown, name: string, options: BuildOptions = {}): Promise<Built> {
  const lines: string[] = [];
  const { templateId, buildId } = await Template.build(template as Buildable, name, {
    ...connectionTo(node),
    ...options,
    onBuildLogs: ({ message }) => void lines.push(message),
  });
  return { templateID: templateId, buildID: buildId, lines };
}

export type BuildInput = Omit<Input<typeof buildTemplate>, "templateID" | "buildID">;

/** Starts a build with the plain API, without waiting for it. */
export async function startBuild(node: TestNode, name: string, input: BuildInput): Promise<{ templateID: string; buildID: string }> {
  const { templateID, buildID } = await node.call(requestTemplate, { name });
  await node.call(buildTemplate, { templateID, buildID, ...input });
  return { templateID, buildID };
}

export function ended(node: TestNode, ids: { templateID: string; buildID: string }): Promise<Output<typeof getBuildStatus>> {
  return until(`the end of build ${ids.buildID}`, async () => {
    const answer = await node.call(getBuildStatus, { ...ids });
    return answer.status === "ready" || answer.status === "error" ? answer : undefined;
  });
}
