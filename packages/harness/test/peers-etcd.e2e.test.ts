// A deployment in which every connection is by mutual TLS: etcd, nodes that fetch from each other, and a gateway.
import assert from "node:assert/strict";
import { copyFileSync, rmSync } from "node:fs";
import { basename, join } from "node:path";
import { test } from "node:test";
import { createSnapshot } from "@svc/contract/lifecycle.ts";
import { listNodes } from "@svc/contract/nodes.ts";
import { deleteSandbox, listSandboxesV1 } from "@svc/contract/sandbox.ts";
import { openEtcd } from "@svc/kit/etcd/client.ts";
import { openLog } from "@svc/kit/log.ts";
import { PeerCertificates } from "@svc/kit/peers/peer-certificates.ts";
import { Sandbox } from "e2b";
import { runBackup } from "../src/backup.ts";
import { DEPLOYMENT_KEY, startDeployment } from "../src/deployment.ts";
import { startGateway } from "../src/gateway.ts";
import { needs } from "../src/needs.ts";
import { makePeerCerts } from "../src/peer-certs.ts";
import { until } from "../src/until.ts";

void test(
  "nodes behind a gateway find and read each other by certificates alone, and etcd refuses who has none",
  needs("root", "runsc", "envd", "base", "etcd"),
  async () => {
    using certs = makePeerCerts();
    using others = makePeerCerts();
    await using deployment = await startDeployment(10, 600, certs);
    const { endpoints } = deployment.server;
    await using first = await deployment.start();
    await using second = await deployment.start();
    const ofGateway = certs.issue("gateway");
    await using gateway = await startGateway({ etcd: endpoints, apiKey: DEPLOYMENT_KEY, flags: [`--peer-certs=${ofGateway}`] });
    await until("two nodes", async () => {
      const nodes = await gateway.call(listNodes, {});
      return nodes.length === 2 && nodes.every(({ status, url }) => status === "ready" && url.startsWith("https://")) ? true : undefined;
    });

    const connection = (url: string) => ({ apiUrl: url, sandboxUrl: url, apiKey: DEPLOYMENT_KEY });
    const sandbox = await Sandbox.create("base", { ...connection(first.localURL), timeoutMs: 600_000 });
    await sandbox.commands.run("echo from the first node > /tmp/note");
    const { snapshotID } = await first.call(createSnapshot, { sandboxID: sandbox.sandboxId });
    await first.call(deleteSandbox, { sandboxID: sandbox.sandboxId });
    // A backup reads the records as a client of the deployment.
    const target = join(first.home, "..", `${basename(first.home)}-backup`);
    try {
      const create = ["create", target, `--home=${first.home}`, `--etcd=${endpoints.join(",")}`];
      const unknown = await runBackup(create);
      assert.match(unknown.stderr, /cluster\.etcd has https:.*this process has no certificate to show there.*--peer-certs DIR/);
      const made = await runBackup([...create, `--peer-certs=${certs.issue("client", "backup")}`], undefined, { SVC_API_KEY: DEPLOYMENT_KEY });
      assert.equal(made.code, 0, made.stderr);
      assert.match(made.stdout, /records of etcd [1-9]/);
    } finally {
      rmSync(target, { recursive: true, force: true });
    }
    // There is no object storage: the second node reads the snapshot from the first.
    const copy = await Sandbox.create(snapshotID, { ...connection(second.localURL), timeoutMs: 600_000 });
    assert.equal((await copy.commands.run("cat /tmp/note")).stdout, "from the first node\n");
    assert.deepEqual(
      (await gateway.call(listSandboxesV1, {})).map(({ sandboxID }) => sandboxID),
      [copy.sandboxId],
    );
    await second.call(deleteSandbox, { sandboxID: copy.sandboxId });

    // The certificates are replaced while nodes hold leases and watches.
    const readings = () => gateway.log().split("the certificates of peers were read again").length;
    const before = readings();
    certs.rotate();
    certs.reissue(ofGateway);
    await until("the gateway reads it", () => (readings() > before ? true : undefined));
    await using third = await deployment.start();
    await until("a node with a certificate of the new authority is used", async () => {
      const nodes = await gateway.call(listNodes, {});
      return nodes.length === 3 && nodes.every(({ status }) => status === "ready") ? true : undefined;
    });
    assert.match(third.url, /^https:/);

    const stranger = others.issue("client", "stranger");
    const refuses = async (why: RegExp) => {
      const certificates = new PeerCertificates({ directory: stranger, log: openLog("test", "silent") });
      const etcd = openEtcd({ endpoints, callMs: 2_000, certificates });
      await assert.rejects(etcd.list(""), ({ name, message }: Error) => name === "ETCD_UNAVAILABLE" && why.test(message));
      await etcd.close();
      certificates.close();
    };
    await refuses(/presented a certificate of .*etcd-m0.* expected one signed by .*svc deployment authority/);
    // It trusts etcd from now on, but etcd does not trust it.
    copyFileSync(join(ofGateway, "ca.crt"), join(stranger, "ca.crt"));
    await refuses(/refused the certificate of this process, of .*stranger.*; issue it by that server's authority/);
  },
);
