// Masters, holders and clients that know each other by certificates of the deployment.
import assert from "node:assert/strict";
import { test } from "node:test";
import { needs } from "@svc/harness/needs.ts";
import { makePeerCerts } from "@svc/harness/peer-certs.ts";
import { freePorts } from "@svc/harness/ports.ts";
import { until } from "@svc/harness/until.ts";
import { openLog } from "@svc/kit/log.ts";
import { PeerCertificates } from "@svc/kit/peers/peer-certificates.ts";
import { PeerClient } from "@svc/kit/peers/peer-client.ts";
import { StoreClient } from "../src/client/store-client.ts";
import { RpcClient } from "../src/rpc/client.ts";
import { startCluster } from "./ha-cluster.ts";
import { startMaster } from "./master.ts";
import { startService } from "./service.ts";

const MIB = 1 << 20;

function opened(directory: string): PeerCertificates & Disposable {
  const certificates = new PeerCertificates({ directory, log: openLog("test", "silent") });
  return Object.assign(certificates, { [Symbol.dispose]: () => certificates.close() });
}

void test(
  "with plain_clients off, masters replicate by TLS only, and a client with a certificate puts and gets through the leader's kill",
  needs("etcd"),
  async () => {
    using certs = makePeerCerts();
    await using cluster = await startCluster({ certs, flags: ["--store.plain_clients=false"] });
    const first = await cluster.inSync(1);
    const { leader } = await first.ha();
    assert.equal(leader?.tls, first.tls());
    for (const address of [leader?.rpc, leader?.stream, leader?.http.replace("https://", "")]) assert.equal(address, first.tls());
    using certificates = opened(certs.issue("holder"));
    const options = { master: cluster.address, clusterID: cluster.clusterID, localBufferBytes: 4 * MIB, timeoutMs: 30_000 };
    await using _holder = await StoreClient.open({ ...options, certificates, segmentBytes: 16 * MIB });
    await using client = await StoreClient.open({ ...options, certificates });
    const stored: string[] = [];
    let isOver = false;
    const load = (async () => {
      for (let at = 0; !isOver; at++) {
        assert.equal(await client.put(`key-${at}`, Buffer.from(`value-${at}`)), true, `key-${at}`);
        stored.push(`key-${at}`);
      }
    })();
    const more = async (count: number) => {
      const wanted = stored.length + count;
      await until(`${count} more puts`, () => (stored.length >= wanted ? true : undefined), 5);
    };
    await more(50);
    certs.rotate();
    for (const name of ["ada", "bob", "holder"]) certs.reissue(certs.directoryOf(name));
    for (const node of cluster.nodes) await until("its new certificate", () => (/certificates of peers were read again/.test(node.log()) ? true : undefined));
    await more(50);
    await first.kill();
    await more(50);
    await first.start();
    await cluster.inSync(1);
    await more(50);
    isOver = true;
    await load;
    for (const key of stored) assert.equal((await client.get(key))?.toString(), key.replace("key", "value"), key);
    // The blocking calls say what to use instead.
    assert.throws(() => client.putSync("key", Buffer.from("1")), /cannot use TLS: use the asynchronous one/);
  },
);

void test("a master with certificates refuses callers without a valid one, and each side's words name both", async () => {
  using certs = makePeerCerts();
  using others = makePeerCerts();
  const [tlsPort = 0] = await freePorts(1);
  const own = [`--peer-certs=${certs.issue("master")}`, `--tls-port=${tlsPort}`];
  await using master = await startMaster({ flags: [...own, "--store.plain_clients=false"] });
  using good = opened(certs.issue("client"));
  using stranger = opened(others.issue("client", "stranger"));
  const peers = new PeerClient(good, "master", "svc-rpc");
  const rpc = await RpcClient.connect("127.0.0.1", tlsPort, { peers });
  assert.equal((await rpc.call("ServiceReady")).ok, true);
  rpc.close();
  const refused = RpcClient.connect("127.0.0.1", tlsPort, { peers: new PeerClient(stranger, "master", "svc-rpc") });
  await assert.rejects(refused, /presented a certificate of "master" .*signed by ".*" .*; expected one signed by "/);
  const plain = await RpcClient.connect("127.0.0.1", tlsPort);
  await assert.rejects(async () => plain.call("ServiceReady"), /closed the connection before it answered anything: if its port expects TLS/);
  await until("the master's log names both sides", () => (/a caller of the store's master was refused/.test(master.log()) ? true : undefined));
  assert.match(master.log(), /This port expects TLS with a certificate of its deployment, signed by/);
  const onPlain = RpcClient.connect("127.0.0.1", master.rpcPort, { peers });
  await assert.rejects(onPlain, /closed|does not speak TLS on this port|disconnected/);
  const http = new PeerClient(good, "master");
  assert.equal((await http.fetch(`https://127.0.0.1:${tlsPort}/health`)).status, 200);
  assert.equal((await http.fetch(`https://127.0.0.1:${tlsPort}/get_all_segments`)).status, 200);
  assert.match(await (await http.fetch(`https://127.0.0.1:${tlsPort}/metrics`)).text(), /svc_peer_certificate_expiry_seconds \d/);
});

void test("a store service joins a master by TLS at tls://, and without a certificate it says what to give", async () => {
  using certs = makePeerCerts();
  const [tlsPort = 0] = await freePorts(1);
  await using _master = await startMaster({ flags: [`--peer-certs=${certs.issue("master")}`, `--tls-port=${tlsPort}`, "--store.plain_clients=false"] });
  const flags = [`--master_server_address=tls://127.0.0.1:${tlsPort}`, "--global_segment_size=16mb"];
  await using service = await startService({ flags: [...flags, `--peer-certs=${certs.issue("holder")}`] });
  assert.equal((await service.ask("PUT", "/api/put", { key: "a", value: "one" })).status, 200);
  assert.match(JSON.stringify((await service.ask("GET", "/api/get/a")).body), /one/);
  await assert.rejects(startService({ flags }), /expects TLS, and this process has no certificate to show there: give it --peer-certs DIR/);
});
