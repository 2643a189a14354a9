// Template builds with the unmodified E2B JS SDK: steps, files, cache, start command, failures, names and tags.
import assert from "node:assert/strict";
import { after, describe, test } from "node:test";
import { deleteTemplate, getTemplate, listTemplates } from "@svc/contract/template.ts";
import { buildTemplate, getBuildStatus, getTemplateFiles, requestTemplate } from "@svc/contract/template-build.ts";
import { Sandbox, Template, waitForPort } from "e2b";
import { needs } from "../src/needs.ts";
import { startNode } from "../src/node.ts";
import { build, connectionTo, contextFolder, ended, startBuild } from "../src/template.ts";

void describe("a template built by the E2B JS SDK", needs("root", "runsc", "envd", "base"), async () => {
  const node = await startNode({ runtime: "gvisor" });
  const connection = connectionTo(node);
  after(() => node[Symbol.asyncDispose]());
  const output = async (template: string, command: string, options: { user?: string } = {}) => {
    const sandbox = await Sandbox.create(template, { ...connection, timeoutMs: 120_000 });
    try {
      return (await sandbox.commands.run(command, options)).stdout;
    } finally {
      await sandbox.kill();
    }
  };

  void test("has what RUN, COPY, ENV, WORKDIR and USER created, and its sandboxes start with it", async () => {
    using context = contextFolder({
      "a.txt": "one\n",
      "sub/b.txt": "two\n",
      "sub/deep/c.txt": "three\n",
      "x y.txt": "space\n",
      "skip.log": "no\n",
      ".dockerignore": "*.log\n",
    });
    context.write("tool.sh", "#!/bin/sh\necho tool\n", 0o755);
    const template = Template({ fileContextPath: context.path })
      .fromTemplate("base")
      .setEnvs({ GREETING: "hi $USER", PLACE: "here" })
      .setWorkdir("/srv/app")
      .copy("a.txt", "renamed.txt")
      .copy("sub", "folder/", { user: "root", mode: 0o700 })
      .copy(["*.txt", "tool.sh"], "many/")
      .copy("*.sh", "/opt/bin/")
      .runCmd("echo $PLACE > made; ./many/tool.sh >> made; id -un >> made; pwd >> made")
      .runCmd("echo by root > /etc/by-root", { user: "root" })
      .setUser("root")
      .runCmd("id -un > /etc/who")
      .setUser("user");
    await build(node, template, "steps");
    const script = `pwd; cat made /etc/by-root /etc/who; echo "$PLACE"; cat renamed.txt; ls many; stat -c '%U %a %n' renamed.txt many/tool.sh /opt/bin/tool.sh . made; sudo stat -c '%U %a %n' folder/b.txt folder/deep/c.txt`;
    assert.deepEqual((await output("steps", script)).trim().split("\n"), [
      "/srv/app",
      ...["here", "tool", "user", "/srv/app", "by root", "root", "here", "one"],
      ...["a.txt", "tool.sh", "x y.txt"],
      ...["user 644 renamed.txt", "user 755 many/tool.sh", "user 755 /opt/bin/tool.sh", "user 755 .", "user 644 made"],
      ...["root 700 folder/b.txt", "root 700 folder/deep/c.txt"],
    ]);
  });

  void test("continues from its start command in the state when the ready command succeeded", async () => {
    const serve = "date +%N > /tmp/started; python3 -m http.server 8123";
    await build(node, Template().fromTemplate("base").setStartCmd(serve, waitForPort(8123)), "served");
    const command = "curl -s -o /dev/null -w '%{http_code} ' localhost:8123; cat /tmp/started; pgrep -fc 'http.server 812[3]'";
    const [first, second] = [await output("served", command), await output("served", command)];
    assert.match(first, /^200 \d+\n1\n$/);
    assert.equal(second, first, "the command ran once, at the build");
    const child = await build(node, Template().fromTemplate("served").runCmd("echo child > /tmp/child"), "served-child");
    assert.ok(
      child.lines.some((line) => line.startsWith("start command:")),
      "a template built from it starts the same",
    );
    assert.match(await output("served-child", `cat /tmp/child; ${command}`), /^child\n200 \d+\n1\n$/);
  });

  void test("takes unchanged steps from the cache, and repeats forced ones", async () => {
    const steps = (middle: string) => Template().fromTemplate("base").runCmd("date +%N > /tmp/one").runCmd(middle).runCmd("date +%N > /tmp/three");
    const cached = (lines: readonly string[]) => lines.filter((line) => /^\[\d/.test(line)).map((line) => line.endsWith("(cached)"));
    assert.deepEqual(cached((await build(node, steps("true"), "cached")).lines), [false, false, false]);
    const one = await output("cached", "cat /tmp/one /tmp/three");
    assert.deepEqual(cached((await build(node, steps("true"), "cached")).lines), [true, true, true]);
    assert.equal(await output("cached", "cat /tmp/one /tmp/three"), one);
    assert.deepEqual(cached((await build(node, steps("date +%N > /tmp/two"), "cached")).lines), [true, false, false]);
    assert.deepEqual(cached((await build(node, steps("true"), "cached", { skipCache: true })).lines), [false, false, false]);
    const later = Template().fromTemplate("base").runCmd("date +%N > /tmp/one").skipCache().runCmd("true");
    assert.deepEqual(cached((await build(node, later, "cached")).lines), [true, false]);
  });

  void test("copies changed files again, and no others", async () => {
    using context = contextFolder({ "f.txt": "1\n" });
    const template = () => Template({ fileContextPath: context.path }).fromTemplate("base").copy("f.txt", "/srv/");
    assert.ok((await build(node, template(), "files")).lines.includes("Uploaded 'f.txt'"));
    const again = (await build(node, template(), "files")).lines;
    assert.ok(again.includes("Skipping upload of 'f.txt', already cached") && again.includes("[1/1] COPY f.txt /srv/ (cached)"), again.join("\n"));
    context.write("f.txt", "2\n");
    assert.ok((await build(node, template(), "files")).lines.includes("Uploaded 'f.txt'"));
    assert.equal(await output("files", "cat /srv/f.txt"), "2\n");
  });

  void test("fails at the step that failed, with its output", async () => {
    const template = Template().fromTemplate("base").runCmd("true").setEnvs({ A: "b" }).runCmd("echo about to fail; echo sad >&2; exit 3").runCmd("true");
    await assert.rejects(build(node, template, "failing"), /the command ended with exit code 3: echo about to fail/);
    const shown = await node.call(getTemplate, { templateID: "failing" });
    const status = await node.call(getBuildStatus, { templateID: shown.templateID, buildID: shown.builds[0]?.buildID ?? "" });
    assert.deepEqual([status.status, status.reason?.step], ["error", "3"]);
    // The order of two pipes is undefined.
    const said = status.reason?.logEntries.map(({ level, message }) => [level, message]).slice(1, 3);
    assert.deepEqual(said?.sort(), [
      ["info", "about to fail"],
      ["warn", "sad"],
    ]);
    await assert.rejects(Sandbox.create("failing", connection), /404: template 'failing' has no build that is ready/);
    const never = Template().fromTemplate("base").setStartCmd("echo going; exit 9", "false");
    await assert.rejects(build(node, never, "failing"), /the start command ended with exit code 9/);
    const nobody = await ended(node, await startBuild(node, "failing", { fromTemplate: "base", steps: [{ type: "USER", args: ["nobody-here"] }] }));
    assert.deepEqual([nobody.status, nobody.reason?.step], ["error", "finalize"]);
    assert.match(nobody.reason?.message ?? "", /nobody-here/);
  });

  void test("runs steps and commands as a numeric user and group, also as its files' owner", async () => {
    const steps = [
      { type: "USER" as const, args: ["1234:4321"] },
      { type: "RUN" as const, args: ["[ $(id -u):$(id -g):$(id -G) = 1234:4321:4321 ] && touch /tmp/mine"] },
    ];
    const done = await ended(node, await startBuild(node, "numbers", { fromTemplate: "base", steps }));
    assert.equal(done.status, "ready", done.reason?.message);
    const sandbox = await Sandbox.create("numbers", connection);
    const { stdout } = await sandbox.commands.run("stat -c %u:%g /tmp/mine; id -u; id -g; pwd");
    assert.deepEqual(stdout.trim().split("\n"), ["1234:4321", "1234", "4321", "/home/user"]);
    await sandbox.kill();
  });

  void test("names the command and the user when a step's user does not exist, in the words that E2B's clients look for", async () => {
    const template = Template().fromTemplate("base").runCmd("whoami", { user: "root123" });
    await assert.rejects(build(node, template, "unknown-user"), /failed to run command 'whoami': command failed: unauthenticated: invalid username: 'root123'/);
  });

  void test("is listed as failed where its first build was refused, with the sizes it would have had, and can be started once more", async () => {
    const { templateID, buildID } = await node.call(requestTemplate, { name: "refused" });
    const listed = async () => (await node.call(listTemplates, {})).find((each) => each.templateID === templateID);
    assert.equal((await listed())?.buildStatus, "waiting");
    const copy = { type: "COPY" as const, args: ["a", "/a", "", ""], filesHash: "0".repeat(64) };
    await assert.rejects(node.call(buildTemplate, { templateID, buildID, fromTemplate: "base", steps: [copy] }), /its files are missing/);
    const { buildStatus, cpuCount, memoryMB, diskSizeMB } = (await listed()) ?? {};
    assert.deepEqual([buildStatus, cpuCount, memoryMB, diskSizeMB], ["error", 2, 1024, 4096]);
    assert.match((await node.call(getBuildStatus, { templateID, buildID })).reason?.message ?? "", /its files are missing/);
    await node.call(buildTemplate, { templateID, buildID, fromTemplate: "base" });
    assert.equal((await ended(node, { templateID, buildID })).status, "ready");
    assert.equal((await listed())?.buildStatus, "ready");
  });

  void test("has tags that move and disappear, is found by name, tag, id and build, and an error lists the alternatives", async () => {
    const version = (text: string) => Template().fromTemplate("base").runCmd(`echo ${text} > /tmp/version`);
    const one = await build(node, version("one"), "tagged:v1", { tags: ["stable"] });
    const two = await build(node, version("two"), "tagged:v2");
    assert.equal(two.templateID, one.templateID);
    for (const [name, text] of [
      ["tagged:v1", "one"],
      ["tagged:stable", "one"],
      ["tagged:v2", "two"],
      [`${one.templateID}:v2`, "two"],
      [one.buildID, "one"],
      [`tagged:${one.buildID}`, "one"],
      [`${one.templateID}:${two.buildID}`, "two"],
    ] as const) {
      assert.equal(await output(name, "cat /tmp/version"), `${text}\n`, name);
    }
    await assert.rejects(Sandbox.create(`served:${one.buildID}`, connection), /404: template 'served' has no ready build with the tag or id/);
    await build(node, Template().fromTemplate(`tagged:${one.buildID}`), "from-build");
    assert.equal(await output("from-build", "cat /tmp/version"), "one\n");
    const base = (await node.call(listTemplates, {})).find(({ names }) => names.includes("base"));
    assert.equal(await output(`base:${base?.buildID}`, "echo base"), "base\n");
    await assert.rejects(Sandbox.create("tagged", connection), /no ready build with the tag or id 'default'; its tags are/);
    assert.deepEqual(await Template.assignTags("tagged:v2", ["stable", "default"], connection), { buildId: two.buildID, tags: ["stable", "default"] });
    assert.equal(await output("tagged", "cat /tmp/version"), "two\n");
    await Template.removeTags("tagged", ["v1"], connection);
    await assert.rejects(Template.removeTags("tagged", "v1", connection), /has no tag 'v1'/);
    const tags = await Template.getTags("tagged", connection);
    assert.deepEqual(tags.map(({ tag, buildId }) => [tag, buildId]).sort(), [
      ["default", two.buildID],
      ["stable", two.buildID],
      ["v2", two.buildID],
    ]);
    assert.deepEqual([await Template.exists("tagged", connection), await Template.exists("nobody", connection)], [true, false]);
    const listed = (await node.call(listTemplates, {})).find(({ names }) => names.includes("tagged"));
    assert.deepEqual([listed?.buildStatus, listed?.buildCount, (listed?.spawnCount ?? 0) >= 6], ["ready", 2, true]);
  });

  void test("has the requested disk, up to the node's limit, and so does what is built from it", async () => {
    await assert.rejects(node.call(requestTemplate, { name: "roomy", minFreeDiskMb: 65_537 }), {
      name: "INVALID_REQUEST",
      message: /minFreeDiskMb: expected 64 to 65536 MiB .*template.max_disk_size_mb.*, got 65537/,
    });
    await assert.rejects(node.call(requestTemplate, { name: "roomy", minFreeDiskMb: 1 }), { name: "INVALID_REQUEST", message: /expected 64 to/ });
    const asked = await node.call(requestTemplate, { name: "roomy", minFreeDiskMb: 96 });
    await node.call(buildTemplate, { ...asked, fromTemplate: "base", steps: [{ type: "RUN", args: ["true"] }] });
    assert.equal((await ended(node, asked)).status, "ready");
    await build(node, Template().fromTemplate("roomy").runCmd("true"), "roomy-child");
    for (const templateID of ["roomy", "roomy-child"]) {
      assert.equal((await node.call(getTemplate, { templateID })).diskSizeMB, 96);
      assert.equal((await node.call(listTemplates, {})).find(({ names }) => names.includes(templateID))?.diskSizeMB, 96);
      const said = await output(templateID, "head -c 64M /dev/zero > /tmp/a && echo fits; head -c 64M /dev/zero > /tmp/b || echo full");
      assert.equal(said, "fits\nfull\n");
    }
  });

  void test("has the requested CPUs and memory, or those of its base", async () => {
    await build(node, Template().fromTemplate("base").runCmd("true"), "sized", { cpuCount: 1, memoryMB: 512 });
    await build(node, Template().fromTemplate("sized").runCmd("true"), "sized-child");
    for (const templateID of ["sized", "sized-child"]) {
      const { cpuCount, memoryMB, diskSizeMB } = await node.call(getTemplate, { templateID });
      assert.deepEqual([cpuCount, memoryMB, diskSizeMB], [1, 512, 4096]);
    }
    const kilobytes = Number(await output("sized", "sed -n 's/^MemTotal: *\\([0-9]*\\).*/\\1/p' /proc/meminfo"));
    assert.ok(kilobytes <= 512 * 1024, `${kilobytes} kB`);
  });

  void test("is refused before it is built if it cannot be: sources, steps, files, names", async () => {
    const refused = (input: Parameters<typeof startBuild>[2], says: RegExp) => assert.rejects(startBuild(node, "refused", input), says);
    await refused({ fromTemplate: "nobody" }, /template 'nobody' not found/);
    await refused({ fromTemplate: "base", fromImage: "debian:12" }, /fromImage and fromTemplate/);
    await refused({ fromTemplate: "base", steps: [{ type: "FLY", args: [] }] }, /step type 'FLY' is not known/);
    await refused({ fromTemplate: "base", steps: [{ type: "ENV", args: ["A"] }] }, /step 1 \(ENV\)/);
    await refused({ fromTemplate: "base", steps: [{ type: "COPY", args: ["../x", "/y", "", ""], filesHash: "0".repeat(64) }] }, /outside the build's context/);
    await refused({ fromTemplate: "base", steps: [{ type: "COPY", args: ["x", "/y", "", ""], filesHash: "0".repeat(64) }] }, /its files are missing/);
    await assert.rejects(startBuild(node, "base", { fromTemplate: "base" }), /template of set-up/);
    await assert.rejects(startBuild(node, "Not A Name", { fromTemplate: "base" }), /lower-case letters/);
  });

  void test("takes uploads only at the address that was issued, complete, and only tar archives", async () => {
    const { templateID } = await startBuild(node, "uploads", { fromTemplate: "base" });
    const { url = "", present } = await node.call(getTemplateFiles, { templateID, hash: "a".repeat(64) });
    assert.equal(present, false);
    const put = async (to: string, body: string | Buffer) =>
      (await fetch(to, { method: "PUT", body: typeof body === "string" ? body : new Uint8Array(body) })).status;
    assert.equal(await put(url.replace("a".repeat(64), "b".repeat(64)), Buffer.alloc(1024)), 403);
    assert.equal(await put(url.replace(/expires=\d+/, "expires=9999999999"), Buffer.alloc(1024)), 403);
    assert.equal(await put(url, "this is no archive"), 400);
    assert.equal(await put(url, Buffer.alloc(1024)), 200);
    assert.equal((await node.call(getTemplateFiles, { templateID, hash: "a".repeat(64) })).present, true);
  });

  void test("ends with its template's deletion, also during a build; its sandboxes continue", async () => {
    await build(node, Template().fromTemplate("base").runCmd("echo kept > /tmp/kept"), "deleted");
    const sandbox = await Sandbox.create("deleted", connection);
    const under = await startBuild(node, "deleted", { fromTemplate: "base", steps: [{ type: "RUN", args: ["sleep 4244"] }] });
    await node.call(deleteTemplate, { templateID: "deleted" });
    await assert.rejects(node.call(getBuildStatus, under), { name: "TEMPLATE_NOT_FOUND" });
    assert.equal((await sandbox.commands.run("cat /tmp/kept")).stdout, "kept\n");
    await sandbox.kill();
    await assert.rejects(Sandbox.create("deleted", connection), /404: template 'deleted' not found/);
    await assert.rejects(node.call(deleteTemplate, { templateID: "base" }), { name: "TEMPLATE_IN_USE" });
  });
});
