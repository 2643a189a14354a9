// The router: an OpenAI-compatible front that sends each prompt to the engine that will have it prefilled first.
import { Failure, fail } from "@svc/contract/failures.ts";
import { complained } from "@svc/kit/config.ts";
import { Discovery } from "@svc/kit/discovery/discovery.ts";
import { ready, untilStopped } from "@svc/kit/lifecycle.ts";
import { urlOf } from "@svc/kit/listen.ts";
import { openLog } from "@svc/kit/log.ts";
import { openMetrics } from "@svc/kit/metrics.ts";
import { openFiles } from "@svc/kit/open-files.ts";
import { openPeerCertificates } from "@svc/kit/peers/peer-certificates.ts";
import { PeerClient } from "@svc/kit/peers/peer-client.ts";
import { needsPeerCertificates } from "@svc/kit/peers/settings.ts";
import { Bodies } from "./bodies.ts";
import { Bounds } from "./bounds.ts";
import { Engine } from "./engine.ts";
import { readEngines } from "./engine-list.ts";
import { EngineSet } from "./engine-set.ts";
import { Front } from "./front.ts";
import { IndexScores } from "./index-scores.ts";
import { LocalTokenizers } from "./local-tokenizers.ts";
import { openPicker } from "./picker/picker.ts";
import type { Placed } from "./placed.ts";
import { Placement } from "./placement.ts";
import { Poll } from "./poll.ts";
import { AdmissionQueue } from "./queue.ts";
import { openRouterMetrics } from "./router-metrics.ts";
import { Seeker } from "./seek.ts";
import { openServer } from "./server.ts";
import { load } from "./settings.ts";
import { Tokenizer } from "./tokens.ts";

const MIB = 1024 * 1024;
/** With fewer connections of clients than this, the limit of open files deserves a warning. */
const FEW_CONNECTIONS = 4_096;

export async function main(argv: readonly string[]): Promise<number> {
  try {
    return await run(argv);
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
    return complained("router", error);
  }
}

async function run(argv: readonly string[]): Promise<number> {
  const loaded = load(argv);
  if (loaded === "help") return 0;
  const settings = loaded.settings.router;
  const records = readEngines(settings);
  const log = openLog("router", settings.log_level);
  const metrics = openMetrics();
  const set = new EngineSet(records, {
    open: (record) =>
      new Engine({
        record,
        prefillTokensPerSecond: settings.prefill_tokens_per_second,
        maxInFlight: settings.max_in_flight,
        circuitFailures: settings.circuit_failures,
        speculativeMs: settings.speculative_seconds * 1000,
        onCircuit(engine) {
          const { circuit } = engine;
          counted.circuits.inc({ engine: engine.name, state: circuit.state });
          log.warn({ engine: engine.name, url: engine.url, circuit: circuit.state, ...(circuit.state === "open" ? { reason: circuit.why } : {}) }, "circuit");
        },
      }),
    onAdded: (engine) => poll.add(engine),
    onChange: () => queue.pump(),
    log,
  });
  const { engines } = set;
  const discovery = new Discovery({ sources: settings.discover, log, onEntries: (entries) => set.discovered(entries) });
  const bodies = new Bodies({ maxBytes: settings.max_body_bytes, maxHeldBytes: settings.max_held_bytes });
  const queue = new AdmissionQueue<Placed>({
    length: settings.queue,
    waitMs: settings.queue_timeout_seconds * 1000,
    hasRoom: () => engines.some((engine) => !engine.isFull),
  });
  const counted = openRouterMetrics(metrics, {
    engines,
    queueLength: () => queue.length,
    heldBytes: () => bodies.heldBytes,
    sources: settings.discover,
    troubles: discovery.troubles,
  });
  needsPeerCertificates("router.indexer", [settings.indexer], loaded.settings.peers);
  const certificates = openPeerCertificates(loaded.settings.peers, log, metrics);
  let indexerAnswers = true;
  const index = new IndexScores({
    url: settings.indexer,
    peers: new PeerClient(certificates, "indexer"),
    tenant: settings.tenant,
    timeoutMs: settings.indexer_timeout_ms,
    uncertainShare: settings.uncertain_share,
    onFailure(error) {
      counted.indexerFailures.inc();
      if (indexerAnswers) log.warn({ indexer: settings.indexer, err: error }, "the indexer does not answer: prompts go by load and by what was sent lately");
      indexerAnswers = false;
    },
    onAnswer() {
      if (!indexerAnswers) log.info({ indexer: settings.indexer }, "the indexer answers again");
      indexerAnswers = true;
    },
  });
  const placement = new Placement(engines, index, {
    uncertainShare: settings.uncertain_share,
    runningRequestSeconds: settings.running_request_seconds,
    kvFullSeconds: settings.kv_full_seconds,
    tieSeconds: settings.tie_seconds,
  });
  const local = new LocalTokenizers(settings.tokenizers, log);
  const tokenizer = new Tokenizer({ timeoutMs: settings.tokens_timeout_ms, cacheBytes: settings.token_cache_mb * MIB, renderer: settings.renderer, local });
  const poll = new Poll({ engines, placement, everyMs: settings.poll_ms, onChange: () => queue.pump() });
  const seeker = new Seeker({ engines, placement, tokenizer, metrics: counted });
  const bounds = new Bounds();
  const front = new Front({
    seeker,
    placement,
    queue,
    bounds,
    metrics: counted,
    limits: { connectMs: settings.connect_timeout_ms, firstByteMs: settings.first_byte_seconds * 1000, idleMs: settings.idle_seconds * 1000 },
    apiKey: settings.api_key,
    explain: settings.explain,
    log,
  });
  await poll.begin();
  await tokenizer.checkAll(engines);
  discovery.begin();
  const { host, port } = settings.listen;
  const server = await openServer({
    listen: settings.listen,
    engines,
    troubles: discovery.troubles,
    front,
    bodies,
    metrics,
    counted,
    admin: { engines, adminKey: settings.admin_key, log, onChange: () => queue.pump() },
    log,
  }).catch((error: Error) => fail("SETTING_INVALID", `router.listen: ${host}:${port} cannot listen there: ${error.message}`));
  const picker =
    settings.picker === ""
      ? undefined
      : await openPicker({ listen: settings.picker, engines, seeker, placement, queue, bodies, metrics: counted, explain: settings.explain, log });
  const url = urlOf(host, server.port);
  const { maxConnections } = server;
  const named = engines.map(({ name, url: address }) => `${name}=${address}`);
  log.info({ url, indexer: settings.indexer, engines: named, maxConnections, config: loaded.configPath }, "ready");
  if (maxConnections < FEW_CONNECTIONS)
    log.warn({ maxConnections, openFiles: openFiles() }, "the limit of open files lets few clients in: raise it (ulimit -n, or LimitNOFILE= in its unit)");
  ready("router", url);

  return untilStopped(log, [
    {
      name: "queue",
      async close() {
        server.stop();
        queue.close();
      },
    },
    { name: "picker", close: async () => picker?.close() },
    { name: "http", close: () => server.close() },
    { name: "discovery", close: () => discovery.close() },
    { name: "poll", close: () => poll.close() },
    {
      name: "connections",
      async close() {
        for (const engine of engines) engine.close();
        index.close();
        certificates?.close();
        tokenizer.close();
        bounds.close();
      },
    },
  ]);
}

if (process.argv[1] === import.meta.filename) process.exit(await main(process.argv.slice(2)));
