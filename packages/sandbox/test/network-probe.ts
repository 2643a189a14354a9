// Runs inside a sandbox's network: tries all probes of its argument (JSON) concurrently and prints their outcomes.
import { createSocket } from "node:dgram";
import { Resolver } from "node:dns/promises";
import { get } from "node:http";
import { connect, isIPv6 } from "node:net";

export type Probe =
  | { readonly try: "tcp" | "udp" | "http"; readonly host: string; readonly port: number; readonly from?: string; readonly limitMs?: number }
  | { readonly try: "resolve"; readonly server: string; readonly name: string }
  /** Sends `count` questions at once and returns how many were answered with SERVFAIL before `expected` were. */
  | { readonly try: "flood"; readonly server: string; readonly name: string; readonly count: number; readonly expected: number }
  /** Writes questions over `connections` at once without waiting for answers; prints "asking", and returns the number of answers when stdin ends. */
  | { readonly try: "pipeline"; readonly server: string; readonly name: string; readonly connections: number; readonly count: number }
  /** Opens `count` UDP flows, each to a different port. */
  | { readonly try: "flows"; readonly host: string; readonly count: number }
  /** Resolves a name and immediately connects to its first address. */
  | { readonly try: "visit"; readonly server: string; readonly name: string; readonly port: number }
  /** Connects repeatedly until stdin ends; returns how often each outcome was seen, as JSON. */
  | { readonly try: "churn"; readonly host: string; readonly port: number }
  /** Sends one datagram and reports the first answer on stdout; once stdin ends, returns how many answers arrived within `limitMs`. */
  | { readonly try: "listen"; readonly host: string; readonly port: number; readonly limitMs: number }
  /** Connects, reports it on stdout, writes repeatedly, and returns how the connection ended. */
  | { readonly try: "hold"; readonly host: string; readonly port: number };

/** Far longer than a refusal takes, so this timeout means that there was no answer. */
const LIMIT_MS = 10_000;
const HOLD_LIMIT_MS = 60_000;
/** The time to read the datagrams that are queued in a socket. */
const SETTLE_MS = 300;
/** Attempts with one outcome after which a churn reports them. */
const ENOUGH = 101;

const codeOf = (error: unknown): string => (error as NodeJS.ErrnoException).code ?? String(error);

function tcp(probe: { host: string; port: number; from?: string; limitMs?: number }): Promise<string> {
  return new Promise((resolve) => {
    const socket = connect({ host: probe.host, port: probe.port, ...(probe.from === undefined ? {} : { localAddress: probe.from }) });
    const timer = setTimeout(() => done("timeout"), probe.limitMs ?? LIMIT_MS);
    const done = (outcome: string): void => {
      clearTimeout(timer);
      socket.destroy();
      resolve(outcome);
    };
    socket.on("error", (error) => done(codeOf(error)));
    socket.on("connect", () => done("connected"));
  });
}

function udp(probe: { host: string; port: number; from?: string; limitMs?: number }): Promise<string> {
  return new Promise((resolve) => {
    const socket = createSocket(isIPv6(probe.host) ? "udp6" : "udp4");
    const timer = setTimeout(() => done("timeout"), probe.limitMs ?? LIMIT_MS);
    const done = (outcome: string): void => {
      clearTimeout(timer);
      socket.removeAllListeners().on("error", () => {});
      socket.close();
      resolve(outcome);
    };
    socket.on("error", (error) => done(codeOf(error)));
    socket.on("message", (message) => done(`answered ${message.toString()}`));
    socket.bind(0, probe.from, () => socket.connect(probe.port, probe.host, () => socket.send("hello")));
  });
}

function http(probe: { host: string; port: number }): Promise<string> {
  return new Promise((resolve) => {
    const request = get({ host: probe.host, port: probe.port, path: "/probe", timeout: LIMIT_MS, agent: false }, (response) => {
      let body = "";
      response.setEncoding("utf8").on("data", (chunk: string) => (body += chunk));
      response.on("end", () => resolve(body.trim()));
    });
    request.on("timeout", () => request.destroy(new Error("timeout")));
    request.on("error", (error) => resolve(codeOf(error)));
  });
}

async function lookup(server: string, name: string): Promise<string> {
  const resolver = new Resolver({ timeout: LIMIT_MS, tries: 1 });
  resolver.setServers([server]);
  try {
    return (await resolver.resolve4(name)).join(",");
  } catch (error) {
    return codeOf(error);
  }
}

function questionFor(name: string): Buffer {
  return Buffer.concat([...name.split(".").map((label) => Buffer.from(`${String.fromCharCode(label.length)}${label}`)), Buffer.from([0, 0, 1, 0, 1])]);
}

function pipeline(probe: Probe & { try: "pipeline" }): Promise<string> {
  return new Promise((resolve) => {
    const query = Buffer.concat([Buffer.from([0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0]), questionFor(probe.name)]);
    const framed = Buffer.concat([Buffer.from([query.length >> 8, query.length & 255]), query]);
    const all = Buffer.concat(Array.from({ length: probe.count }, () => framed));
    let bytes = 0;
    let open = 0;
    for (let index = 0; index < probe.connections; index++) {
      const socket = connect({ host: probe.server, port: 53 });
      socket.on("error", () => {}).on("data", (chunk) => (bytes += chunk.length));
      socket.on("connect", () => {
        socket.write(all);
        if (++open === probe.connections) console.log("asking");
      });
    }
    // A refusal without options is as long as its question.
    process.stdin.on("end", () => resolve(String(Math.floor(bytes / framed.length)))).resume();
  });
}

function flood(probe: Probe & { try: "flood" }): Promise<string> {
  return new Promise((resolve) => {
    const question = questionFor(probe.name);
    const socket = createSocket("udp4");
    let failures = 0;
    const done = (): void => {
      clearTimeout(timer);
      socket.close();
      resolve(String(failures));
    };
    const timer = setTimeout(done, LIMIT_MS);
    socket.on("message", (message) => {
      if ((message[3] ?? 0) % 16 === 2) failures++;
      if (failures === probe.expected) done();
    });
    for (let id = 1; id <= probe.count; id++) {
      const header = Buffer.from([id >> 8, id & 255, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
      socket.send(Buffer.concat([header, question]), 53, probe.server);
    }
  });
}

async function flows(probe: { host: string; count: number }): Promise<string> {
  const socket = createSocket("udp4");
  for (let port = 20_000; port < 20_000 + probe.count; port++) {
    await new Promise((resolve) => socket.send("x", port, probe.host, resolve));
  }
  socket.close();
  return "sent";
}

function hold(probe: { host: string; port: number }): Promise<string> {
  return new Promise((resolve) => {
    const socket = connect({ host: probe.host, port: probe.port });
    socket.on("connect", () => {
      console.log("connected");
      setInterval(() => socket.write("still here"), 20).unref();
    });
    socket.on("data", () => {});
    socket.on("error", (error) => resolve(codeOf(error)));
    setTimeout(() => resolve("still open"), HOLD_LIMIT_MS).unref();
  });
}

async function visit(probe: { server: string; name: string; port: number }): Promise<string> {
  const found = await lookup(probe.server, probe.name);
  return found.startsWith("E") ? found : tcp({ host: found.split(",")[0] ?? "", port: probe.port });
}

async function churn(probe: { host: string; port: number }): Promise<string> {
  let ended = false;
  process.stdin.on("end", () => (ended = true)).resume();
  const counts: Record<string, number> = {};
  while (!ended) {
    const outcome = await tcp(probe);
    counts[outcome] = (counts[outcome] ?? 0) + 1;
    if (counts[outcome] === ENOUGH) console.log("churned");
  }
  return JSON.stringify(counts);
}

function listen(probe: { host: string; port: number; limitMs: number }): Promise<string> {
  return new Promise((resolve) => {
    let count = 0;
    const socket = createSocket("udp4").on("message", () => {
      if (count++ === 0) console.log("heard");
    });
    process.stdin.on("end", () => {
      // Queued datagrams are read first.
      setTimeout(() => {
        count = 0;
        setTimeout(() => resolve(String(count)), probe.limitMs);
      }, SETTLE_MS);
    });
    process.stdin.resume();
    socket.send("hello", probe.port, probe.host);
  });
}

function run(probe: Probe): Promise<string> {
  switch (probe.try) {
    case "tcp":
      return tcp(probe);
    case "udp":
      return udp(probe);
    case "http":
      return http(probe);
    case "resolve":
      return lookup(probe.server, probe.name);
    case "flood":
      return flood(probe);
    case "pipeline":
      return pipeline(probe);
    case "flows":
      return flows(probe);
    case "visit":
      return visit(probe);
    case "churn":
      return churn(probe);
    case "listen":
      return listen(probe);
    case "hold":
      return hold(probe);
  }
}

const probes = JSON.parse(process.argv[2] ?? "[]") as Probe[];
console.log(JSON.stringify(await Promise.all(probes.map(run))));
process.exit(0);
