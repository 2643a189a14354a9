// Two promises of deploy/: an older compose reads its file, and Kubernetes has failover without further settings.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { composeServices, TREE } from "../src/deploy-files.ts";
import { needs } from "../src/needs.ts";

const yaml = needs("python3-yaml");

/** The members of a service that this file may use; docker-compose 1.29 refuses any other. */
// biome-ignore format: one list, read across
const keysOfCompose129 = new Set([
  "cap_add", "cap_drop", "command", "container_name", "depends_on", "devices", "entrypoint", "env_file", "environment", "extra_hosts", "healthcheck",
  "hostname", "image", "init", "labels", "logging", "mem_limit", "networks", "pid", "ports", "privileged", "read_only", "restart", "security_opt",
  "stop_grace_period", "stop_signal", "sysctls", "tmpfs", "ulimits", "user", "volumes", "working_dir",
]);

void test("docker-compose 1.29 reads the compose file: no service has a key that it does not know", yaml, () => {
  for (const [name, service] of composeServices())
    for (const key of Object.keys(service)) assert.ok(keysOfCompose129.has(key), `${name}: docker-compose 1.29 does not know '${key}'`);
});

void test("with the manifests' settings paused sandboxes outlive their node: nodes have object storage and its credentials", yaml, () => {
  const settings = readFileSync(join(TREE, "deploy/kubernetes/sandboxes/settings.yaml"), "utf8");
  assert.match(settings, /^ {2}SVC_OBJECTS_URL: s3:\/\/\S+$/m);
  const node = readFileSync(join(TREE, "deploy/kubernetes/sandboxes/node.yaml"), "utf8");
  for (const name of ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"])
    assert.match(node, new RegExp(`- name: ${name}\\n.*\\n\\s+secretKeyRef: \\{ name: svc-objects,`));
});
