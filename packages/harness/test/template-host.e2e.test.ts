// The template `host` lends the host's /usr: its programs find the settings in /etc that links below /usr lead to.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { after, before, describe, test } from "node:test";
import { SvcClient } from "@svc/contract/client.ts";
import type { EnvdClient } from "@svc/contract/envd.ts";
import { needs } from "../src/needs.ts";
import { startNode, type TestNode } from "../src/node.ts";

void describe("the template host", needs("root", "runsc", "envd", "base"), () => {
  let node: TestNode;
  let envd: EnvdClient;
  before(async () => {
    node = await startNode();
    const client = new SvcClient({ baseURL: node.url, apiKey: node.apiKey });
    envd = client.envd(await client.create({ templateID: "host", timeout: 3600 }));
  });
  after(async () => {
    envd?.close();
    await node?.[Symbol.asyncDispose]();
  });

  async function sh(script: string): Promise<{ said: string; exitCode: number | undefined }> {
    let said = "";
    for await (const event of envd.start({ cmd: "sh", args: ["-c", script], stdin: false })) {
      if (event.type === "stdout" || event.type === "stderr") said += event.data.toString();
      if (event.type === "end") return { said, exitCode: event.exitCode };
    }
    return { said, exitCode: undefined };
  }

  void test("a Java program compiles and runs, and Maven says its version", needs("/usr/bin/java", "/usr/bin/mvn"), async () => {
    const java = await sh("cd /tmp && printf 'class A { public static void main(String[] a) { System.out.println(6 * 7); } }' > A.java && java A.java");
    assert.deepEqual(java, { said: "42\n", exitCode: 0 });
    const maven = await sh("mvn -v");
    assert.equal(maven.exitCode, 0, maven.said);
    assert.match(maven.said, /Apache Maven/);
  });

  void test("every link from the host's /usr to a file in /etc that all its users may read works in the sandbox", async () => {
    const words = ["/usr", "-xdev", "-xtype", "l", "-lname", "/etc/*"];
    const inside = await sh(`find ${words.join(" ").replace("*", "\\*")} 2>/dev/null`);
    // The search on the host runs as nobody, to find the links to files that the template leaves out because others may not read them.
    const onHost = spawnSync("setpriv", ["--reuid=65534", "--clear-groups", "find", ...words], { encoding: "utf8" }).stdout;
    const closed = new Set(onHost.split("\n"));
    const dangling = inside.said.split("\n").filter((path) => path !== "" && !closed.has(path) && !/\/(ssl\/private|99-environment\.conf)$/.test(path));
    assert.deepEqual(dangling, []);
  });
});
