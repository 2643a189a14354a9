// An indexer with certificates of its deployment: routers and siblings that reach it by mutual TLS, and callers that it refuses.
import assert from "node:assert/strict";
import { request } from "node:https";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { makeHome, removeHome } from "@svc/harness/home.ts";
import { makePeerCerts, type PeerCerts } from "@svc/harness/peer-certs.ts";
import { type OpenServer, openServer } from "@svc/harness/server-process.ts";
import { ownServer } from "@svc/kit/own-server.ts";
import { chat, heard, metric, openRouter, post, startEngine, until } from "./stack.ts";

const INDEXER = fileURLToPath(new URL("../../indexer/src/main.ts", import.meta.url));
const LONG = "The blocks of this prompt are computed once and found again by every later turn. ".repeat(20);

type SecureIndexer = OpenServer & { readonly home: string; readonly secureURL: string; readonly localURL: string };

async function openIndexer(flags: readonly string[]): Promise<SecureIndexer> {
  const home = makeHome();
  const server = await openServer([INDEXER], [`--home=${home}`, "--indexer.silence_seconds=1", ...flags]);
  return {
    ...server,
    home,
    secureURL: server.url.replace("http:", "https:"),
    localURL: ownServer(home, "indexer")?.url ?? assert.fail("the indexer wrote no address for this machine"),
    async [Symbol.asyncDispose]() {
      await server.kill("SIGKILL");
      removeHome(home);
    },
  };
}

/** Reads a path by TLS as a program that shows this directory's certificate, or none. */
function get(url: string, path: string, certs: PeerCerts, authority: string, own?: string): Promise<{ status: number; text: string }> {
  const { ca } = certs.files(authority);
  const shown = own === undefined ? {} : certs.files(own);
  return new Promise((resolve, reject) => {
    const asking = request(url + path, { agent: false, ...shown, ca, servername: "indexer.svc.internal" }, (response) => {
      let text = "";
      response.setEncoding("utf8").on("data", (chunk: string) => {
        text += chunk;
      });
      response.once("end", () => resolve({ status: response.statusCode ?? 0, text }));
    });
    asking.once("error", reject).end();
  });
}

void test("a router asks an indexer by mutual TLS, also after both certificates were replaced", async () => {
  using certs = makePeerCerts();
  const [theirs, own] = [certs.issue("indexer"), certs.issue("router")];
  await using indexer = await openIndexer([`--peer-certs=${theirs}`]);
  await using engine = await startEngine("a", ["--indexer", indexer.localURL]);
  await heard(indexer.localURL, ["a"]);
  const flags = [`--indexer=${indexer.secureURL}`, `--peer-certs=${own}`, "--router.speculative_seconds=0"];
  await using router = await openRouter([engine], flags);
  const expected = async () => {
    const { headers, text } = await post(router.url, "/v1/chat/completions", chat(LONG));
    return { cached: Number(headers.get("x-svc-expected-cached-tokens")), text };
  };
  await until("the router knows the engine's blocks from the indexer", expected, ({ cached }) => cached > 100);
  certs.rotate();
  for (const directory of [theirs, own]) certs.reissue(directory);
  for (const server of [indexer, router])
    await until(
      "it reads its new certificate",
      () => server.log(),
      (log) => log.includes("the certificates of peers were read again"),
    );
  await until("the router still knows them", expected, ({ cached }) => cached > 100);
  assert.equal(await metric(router.url, "svc_router_indexer_failures_total"), 0);
});

void test("an indexer with certificates refuses callers without one, with both sides named, and shows everyone its health and metrics", async () => {
  using certs = makePeerCerts();
  using others = makePeerCerts();
  const [theirs, own, stranger] = [certs.issue("indexer"), certs.issue("router"), others.issue("router", "stranger")];
  await using indexer = await openIndexer([`--peer-certs=${theirs}`]);
  const { secureURL } = indexer;
  assert.equal((await get(secureURL, "/services", certs, theirs, own)).status, 200);
  for (const path of ["/health", "/metrics"]) assert.equal((await get(secureURL, path, certs, theirs)).status, 200);
  const { text } = await get(secureURL, "/metrics", certs, theirs);
  assert.match(text, /svc_peer_certificate_expiry_seconds \d/);
  for (const shown of [undefined, stranger]) {
    const refused = await get(
      secureURL,
      "/services",
      shown === undefined ? certs : { ...certs, files: (directory) => ({ ...others.files(shown), ca: certs.files(directory).ca }) },
      theirs,
      shown,
    );
    assert.equal(refused.status, 403, refused.text);
    assert.match(refused.text, /expects a certificate of its deployment, signed by .*, and got (none|one of .*stranger)/);
  }
  const plain = await fetch(`${indexer.url}/services`);
  assert.equal(plain.status, 400);
  assert.match(await plain.text(), /This port expects TLS with a certificate of its deployment/);
  await until(
    "the log names the refused caller",
    () => indexer.log(),
    (log) => /a caller of the indexer was refused/.test(log),
  );
});

void test("a router without a certificate does not start with an https indexer, and says what to give", async () => {
  await using engine = await startEngine("a");
  await assert.rejects(openRouter([engine], ["--indexer=https://127.0.0.1:9"]), /router\.indexer.*no certificate to show there.*--peer-certs/s);
});

void test("an indexer starts with the registrations of a sibling by mutual TLS, and serves plain clients where they are allowed", async () => {
  using certs = makePeerCerts();
  const theirs = certs.issue("indexer");
  await using first = await openIndexer([`--peer-certs=${theirs}`]);
  await using engine = await startEngine("a", ["--indexer", first.localURL]);
  await heard(first.localURL, [engine.name]);
  const more = [`--indexer.bootstrap_from=${first.secureURL}`, "--indexer.plain_clients=true"];
  await using second = await openIndexer([`--peer-certs=${certs.issue("indexer", "second")}`, ...more]);
  const { services } = (await (await fetch(`${second.url}/services`)).json()) as { services: { instance_id: string }[] };
  assert.deepEqual(
    services.map(({ instance_id }) => instance_id),
    ["a"],
  );
  assert.equal((await get(second.secureURL, "/services", certs, theirs, theirs)).status, 200);
});
