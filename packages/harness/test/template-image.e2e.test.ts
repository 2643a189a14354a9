// Templates from OCI images of a real registry, open and with a password.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, test } from "node:test";
import { Sandbox, Template } from "e2b";
import { needs } from "../src/needs.ts";
import { startNode } from "../src/node.ts";
import { registryPassword, registryUser, startRegistry } from "../src/registry.ts";
import { build, connectionTo, ended, startBuild } from "../src/template.ts";

void describe("a template from an OCI image", needs("root", "runsc", "envd", "base", "skopeo", "umoci", "docker-registry", "busybox"), async () => {
  const open = await startRegistry();
  const closed = await startRegistry({ password: true });
  const registries = [open.host, closed.host].join(",");
  const node = await startNode({
    runtime: "gvisor",
    flags: [
      `--template.insecure_registries=${registries}`,
      `--template.registry=${open.host}`,
      "--template.image_start_command=true",
      "--template.image_mb=200",
    ],
  });
  after(async () => {
    await node[Symbol.asyncDispose]();
    await closed[Symbol.asyncDispose]();
    await open[Symbol.asyncDispose]();
  });
  const output = async (template: string, command: string) => {
    const sandbox = await Sandbox.create(template, { ...connectionTo(node), timeoutMs: 120_000 });
    try {
      return (await sandbox.commands.run(command)).stdout;
    } finally {
      await sandbox.kill();
    }
  };

  void test("keeps the image's variables, folder and user, and gets what clients need if the image lacks it", async () => {
    open.push({ name: "team/tiny:1", env: { PATH: "/opt/tools:/bin", FROM_IMAGE: "yes" }, workdir: "/srv/app", files: { "srv/app/hello.txt": "hello\n" } });
    const { lines } = await build(node, Template().fromImage("team/tiny:1").runCmd("cat hello.txt > /tmp/seen"), "tiny");
    assert.ok(
      lines.some((line) => line.includes("/bin/bash runs its /bin/sh")),
      lines.join("\n"),
    );
    assert.equal(
      await output("tiny", 'pwd; echo "$FROM_IMAGE $PATH"; id -un; cat /tmp/seen; ls -d /home/user'),
      "/srv/app\nyes /opt/tools:/bin\nuser\nhello\n/home/user\n",
    );
    const again = await build(node, Template().fromImage("team/tiny:1").runCmd("cat hello.txt > /tmp/seen"), "tiny");
    assert.equal(again.lines.filter((line) => line.endsWith("(cached)")).length, 2, again.lines.join("\n"));
    open.push({ name: "team/owned:1", user: "1234:1234", files: { "etc/passwd": "root:x:0:0:root:/root:/bin/sh\napp:x:1234:1234::/srv:/bin/sh\n" } });
    await build(node, Template().fromImage("team/owned:1"), "owned");
    assert.equal(await output("owned", "id -un"), "app\n");
  });

  void test("starts the image's command if the node's settings say so and the build does not override it", async () => {
    open.push({ name: "starting", entrypoint: ["/bin/sh", "-c"], cmd: ["echo it started > /tmp/up"] });
    await build(node, Template().fromImage("starting"), "starting");
    assert.equal(await output("starting", "cat /tmp/up"), "it started\n");
    await build(node, Template().fromImage("starting").setStartCmd("echo mine > /tmp/up", "test -s /tmp/up"), "starting");
    assert.equal(await output("starting", "cat /tmp/up"), "mine\n");
  });

  void test("comes from a registry with a password if the password is correct; it is stored nowhere", async () => {
    const image = closed.push({ name: "secret/tiny:2", files: { "etc/mark": "private\n" } });
    await assert.rejects(build(node, Template().fromImage(image), "private"), /unauthorized/);
    await assert.rejects(build(node, Template().fromImage(image, { username: registryUser, password: "wrong" }), "private"), /unauthorized|authentication/);
    await build(node, Template().fromImage(image, { username: registryUser, password: registryPassword }), "private");
    assert.equal(await output("private", "cat /etc/mark"), "private\n");
    const found = execFileSync(
      "sh",
      ["-c", `grep -rlaF -e ${registryPassword} -e "$(printf %s ${registryUser}:${registryPassword} | base64)" ${node.home} || true`],
      { encoding: "utf8" },
    );
    assert.equal(found, "");
    assert.ok(!node.log().includes(registryPassword));
    assert.deepEqual(
      readdirSync(`${node.home}/run`).filter((name) => name.startsWith("registry-")),
      [],
    );
  });

  void test("comes from docker.io if its name has no registry", async () => {
    open.push({ name: "library/tinier:3.13", files: { "etc/mark": "of the index\n" } });
    // skopeo's own table redirects docker.io; any request that bypasses it ends at a proxy that does not exist.
    const home = mkdtempSync(join(tmpdir(), "svc-registries-"));
    mkdirSync(join(home, ".config/containers"), { recursive: true });
    writeFileSync(join(home, ".config/containers/registries.conf"), `[[registry]]\nprefix = "docker.io"\nlocation = "${open.host}"\ninsecure = true\n`);
    const nowhere = "http://127.0.0.1:9";
    await using hub = await startNode({ runtime: "gvisor", env: { HOME: home, HTTPS_PROXY: nowhere, HTTP_PROXY: nowhere } });
    try {
      const { lines } = await build(hub, Template().fromImage("tinier:3.13").runCmd("cp /etc/mark /tmp/mark"), "from-index");
      assert.ok(lines.includes("FROM docker.io/library/tinier:3.13"), lines.join("\n"));
    } finally {
      rmSync(home, { recursive: true });
    }
  });

  void test("is refused with a reason: an invalid name, a missing image, one that unpacks to more than the limit", async () => {
    const refusal = async (fromImage: string) => (await ended(node, await startBuild(node, "refused", { fromImage }))).reason;
    assert.match((await refusal("Not/An/Image"))?.message ?? "", /expected \[HOST\[:PORT\]\/\]PATH/);
    const missing = await refusal(`${open.host}/team/nothing:9`);
    // 300 MB of zeros compress to a blob of 300 kB.
    open.push({ name: "team/bomb:1", files: { zeros: "\0".repeat(300 * 1024 * 1024) } });
    assert.match((await refusal("team/bomb:1"))?.message ?? "", /more than the 200 MB that template.image_mb allows/);
    assert.deepEqual(readdirSync(`${node.home}/oci`), []);
    assert.deepEqual([missing?.step, /manifest unknown|not found/.test(missing?.message ?? "")], ["base", true]);
  });
});
