// Several masters over an etcd that needs a certificate of its clients.
import assert from "node:assert/strict";
import { test } from "node:test";
import { needs } from "@svc/harness/needs.ts";
import { makePeerCerts } from "@svc/harness/peer-certs.ts";
import { until } from "@svc/harness/until.ts";
import { startCluster } from "./ha-cluster.ts";

void test("masters lead and take over through an etcd that needs certificates, also after these were replaced", needs("etcd"), async () => {
  using certs = makePeerCerts();
  await using cluster = await startCluster({ certs });
  const first = await cluster.inSync(1);
  const other = cluster.nodes.find(({ name }) => name !== first.name) ?? assert.fail();
  certs.rotate();
  certs.reissue(certs.directoryOf(other.name));
  await until("the standby reads its new certificate", () => (/the certificates of peers were read again/.test(other.log()) ? true : undefined));
  await first.kill();
  assert.equal((await cluster.leader()).name, other.name);
});
