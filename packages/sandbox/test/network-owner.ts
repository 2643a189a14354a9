// A process that opens the networks of the home in its argument, attaches two slots, prints them, and waits to be killed.
import { openLog } from "@svc/kit/log.ts";
import { openSpawner } from "@svc/kit/spawn.ts";
import { openEgress } from "../src/egress/policy.ts";
import { openNetworks } from "../src/network/open-networks.ts";

const [home = "", upstream = ""] = process.argv.slice(2);
const networks = await openNetworks({
  home,
  spawner: openSpawner(),
  log: openLog("network-owner", "fatal"),
  poolSize: 2,
  dns: { upstreams: [upstream] },
  onDenied: () => {},
});
const slots = [await networks.attach(openEgress), await networks.attach(openEgress)];
console.log(JSON.stringify(slots));
setInterval(() => {}, 60_000);
