// A separate home for `svc up`: every server on a free port, and everything removed afterwards.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { makeHome, removeHome } from "@svc/harness/home.ts";
import { destroyLeft } from "@svc/harness/node.ts";
import type { UpState } from "../src/access/up-state.ts";
import { mainFile, openPlace } from "./svc.ts";

/** The flags of the node, which also keep its pool empty. */
export const FLAGS = ["--listen", "127.0.0.1:0", "--pool.size", "0", "--pool.templates", "", "--pool.precreated", "0", "--network.pool_size", "0"];

/** `given` is a folder of the test's own, which is not removed. */
export function openHome(given?: string) {
  const home = given ?? makeHome();
  const place = openPlace();
  const forwarded = ["SVC_RUNSC", "SVC_ENVD", "SVC_TEMPLATES_DIR", "SVC_CACHE"].flatMap((name) =>
    process.env[name] === undefined ? [] : [[name, process.env[name]]],
  );
  const anyPort = {
    SVC_INDEXER_LISTEN: "127.0.0.1:0",
    SVC_METADATA_LISTEN: "127.0.0.1:0",
    SVC_STORE_LISTEN: "127.0.0.1:0",
    SVC_STORE_RPC_ADDRESS: "127.0.0.1",
    SVC_STORE_RPC_PORT: "0",
    SVC_STORE_SERVICE_HOST: "127.0.0.1",
    SVC_STORE_SERVICE_PORT: "0",
    SVC_STORE_ADMIN_LISTEN: "127.0.0.1:0",
    SVC_GATEWAY_NODE_SILENCE_MS: "20000",
  };
  const env = { ...Object.fromEntries(forwarded), ...anyPort, SVC_HOME: home } as Record<string, string>;
  const svc = (...args: string[]) => place.svc(args, { env });
  return {
    home,
    place,
    svc,
    /** Starts the command without waiting for its end. */
    spawn: (...args: string[]) =>
      spawn(process.execPath, [mainFile, ...args], { env: place.env(env), cwd: place.directory, stdio: ["ignore", "ignore", "inherit"] }),
    /** Returns the URL and process of a server of the running `up`. */
    server(name: string) {
      return this.state().servers.find((server) => server.name === name) ?? assert.fail(`up runs no ${name}`);
    },
    state: () => JSON.parse(readFileSync(join(home, "up.json"), "utf8")) as UpState,
    env: place.env(env),
    async [Symbol.asyncDispose]() {
      await svc("down");
      // The home may have been uninstalled.
      if (existsSync(home)) await destroyLeft(home, env);
      if (given === undefined) removeHome(home);
      await place[Symbol.asyncDispose]();
    },
  };
}
