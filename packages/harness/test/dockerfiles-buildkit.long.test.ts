// The Dockerfiles of src/dockerfiles.ts, built by `svc template build` and by BuildKit: files, modes, owners, contents and variables are the same.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { Sandbox } from "e2b";
import { type Buildkit, type FileList, filesOfArchive, startBuildkit } from "../src/buildkit.ts";
import { examples } from "../src/dockerfiles.ts";
import { needs } from "../src/needs.ts";
import { startNode, type TestNode } from "../src/node.ts";
import { type Registry, startRegistry } from "../src/registry.ts";
import { connectionTo, contextFolder } from "../src/template.ts";
import { archiveIn, buildTemplate, pushImages, secretEnv } from "./dockerfiles.suite.ts";

/** Every sandbox has these: mounts, what its start writes, envd, a user `user`, a bash, a profile that keeps the image's PATH, and folders for all. */
const added =
  /^((proc|sys|dev|run|root|home|\.svc|etc\/svc|etc\/profile\.d)(\/.*)?|etc\/(hosts|hostname|resolv\.conf|machine-id|passwd|group|shadow|gshadow)|bin\/bash|(var\/)?tmp|var|tmp\/\.\w+-unix|tmp\/(started|ready))$/;

void describe(
  "a template is what BuildKit makes of its Dockerfile",
  needs("root", "runc", "envd", "base", "skopeo", "umoci", "docker-registry", "busybox"),
  () => {
    let registry: Registry;
    let buildkit: Buildkit;
    let node: TestNode;
    before(async () => {
      registry = await startRegistry();
      pushImages(registry);
      pushImages(registry, "library/");
      buildkit = await startBuildkit(registry.host);
      node = await startNode({
        runtime: "runc",
        flags: [`--template.insecure_registries=${registry.host}`, `--template.registry=${registry.host}`],
      });
    });
    after(async () => {
      await node?.[Symbol.asyncDispose]();
      await buildkit?.[Symbol.asyncDispose]();
      await registry?.[Symbol.asyncDispose]();
    });

    for (const { name, dockerfile, files = {}, flags = [] } of examples) {
      void test(name, async () => {
        // Another front end of BuildKit would be fetched for the line with `syntax`.
        using context = contextFolder({ ...files, Dockerfile: dockerfile.replace("# syntax=", "# ") });
        if (files["bundle.tar"] !== undefined) archiveIn(context);
        const { code, said } = await buildTemplate(node, context, name, flags);
        assert.equal(code, 0, said);
        const wanted = await buildkit.build(context.path, flags, { ...process.env, ...secretEnv });
        const got = await inSandbox(name);
        assert.deepEqual(differences(got.files, wanted.files), []);
        for (const pair of wanted.env) assert.ok(got.env.includes(pair), `${pair} is not in ${got.env.join(" ")}`);
        if (wanted.workdir !== "" && wanted.workdir !== "/") assert.equal(got.workdir, wanted.workdir);
        if (wanted.user !== "") assert.equal(got.user, wanted.user);
      });
    }

    function differences(got: FileList, wanted: FileList): string[] {
      const paths = [...new Set([...Object.keys(got), ...Object.keys(wanted)])].sort();
      return paths.filter((path) => got[path] !== wanted[path] && !added.test(path)).map((path) => `${path}: ${got[path]}, but BuildKit: ${wanted[path]}`);
    }

    async function inSandbox(template: string) {
      const sandbox = await Sandbox.create(template, { ...connectionTo(node), timeoutMs: 600_000 });
      using folder = contextFolder();
      try {
        const shown = async (command: string) => (await sandbox.commands.run(command)).stdout.trim();
        const [env, workdir, user] = [(await shown("env")).split("\n"), await shown("pwd"), await shown("id -un")];
        // Busybox's tar excludes nothing, so it is given the names below the root.
        await sandbox.commands.run("cd / && tar -cf /dev/shm/all.tar $(ls -A | grep -v -x -E 'proc|sys|dev|run')", { user: "root", timeoutMs: 600_000 });
        const archive = join(folder.path, "all.tar");
        writeFileSync(archive, await sandbox.files.read("/dev/shm/all.tar", { format: "bytes", user: "root" }));
        return { env, workdir, user, files: filesOfArchive(archive) };
      } finally {
        await sandbox.kill();
      }
    }
  },
);
