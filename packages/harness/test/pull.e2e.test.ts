// Templates that nodes fetch before anybody starts a sandbox of them there: on request, by a rule, and on a full disk.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { nodesOperations } from "@svc/contract/nodes.ts";
import { getPull, type PullAnswer, pullTemplate } from "@svc/contract/pull.ts";
import { Template } from "e2b";
import { DEPLOYMENT_KEY } from "../src/deployment.ts";
import { fetchedBytes, nodeIDOf, startFedNodes } from "../src/fed-nodes.ts";
import { allUp } from "../src/fronted-nodes.ts";
import { needs } from "../src/needs.ts";
import { build } from "../src/template.ts";
import { until } from "../src/until.ts";

const CLI = fileURLToPath(new URL("../../cli/src/main.ts", import.meta.url));
const all = needs("root", "runsc", "envd", "base", "etcd", "xxh128sum");
const big = () => Template().fromTemplate("base").runCmd("head -c 30000000 /dev/urandom > /home/user/noise");
const statesOf = ({ nodes }: PullAnswer) => Object.fromEntries(nodes.map(({ nodeID, state }) => [nodeID, state]));

void test(
  "a template is fetched by the nodes with a label, and then starts there without a fetch; a node that joins with the label fetches it by its rule",
  all,
  async () => {
    await using fed = await startFedNodes([{}, { flags: ["--node.labels=gpu=yes"] }]);
    const [maker, labelled] = fed.nodes;
    await build(maker, big(), "big");
    assert.deepEqual(statesOf(await fed.gateway.call(getPull, { templateID: "big" })), { [nodeIDOf(maker)]: "ready", [nodeIDOf(labelled)]: "absent" });

    const { code, stdout, stderr } = await svc(fed.gateway.url, "template", "pull", "big", "--nodes", "gpu=yes");
    assert.equal(code, 0, stderr);
    assert.match(stdout, new RegExp(`^NODE +STATE.*\\n${nodeIDOf(labelled)} +ready`));
    assert.match(stderr, new RegExp(`${nodeIDOf(labelled)}: (fetching|ready)`));
    const [moved = 0] = fetchedBytes(labelled);
    assert.ok(moved >= 30_000_000, `${moved} bytes`);
    await fed.setStatus(maker, "draining");
    assert.equal(await fed.shown("big", "stat -c %s /home/user/noise"), "30000000");
    assert.equal(fetchedBytes(labelled).length, 1, "the start moves no byte");
    await fed.setStatus(maker, "ready");

    const unknown = await svc(fed.gateway.url, "template", "pull", "nothing", "--nodes", "gpu=yes");
    assert.deepEqual([unknown.code, /failed.*TEMPLATE_NOT_FOUND/.test(unknown.stdout)], [1, true], unknown.stdout);
    await assert.rejects(fed.gateway.call(pullTemplate, { templateID: "big", nodeLabels: "gpu=no" }), /no node that answers has gpu=no/);

    // One file of settings is for all nodes; the rule names those that it is for.
    const rules = "--template.pull=big gpu=yes zone=b,big gpu=never";
    await using joining = await fed.deployment.start({ flags: ["--node.labels=gpu=yes,zone=b", rules] });
    await until("the third node", async () => ((await fed.gateway.call(nodesOperations.listNodes, {})).length === 3 ? true : undefined));
    await allUp(fed.gateway);
    await until("the template on the node that joined", async () => {
      const answer = await fed.gateway.call(getPull, { templateID: "big", nodeLabels: "zone=b" });
      return statesOf(answer)[nodeIDOf(joining)] === "ready" ? true : undefined;
    });
    assert.equal(fetchedBytes(joining).length, 1);
  },
);

function svc(url: string, ...args: string[]): Promise<{ code: number; stdout: string; stderr: string }> {
  return new Promise((resolve) => {
    const env = { ...process.env, SDK_API_KEY: DEPLOYMENT_KEY };
    execFile(process.execPath, [CLI, ...args, "--url", url], { env }, (error, stdout, stderr) => {
      resolve({ code: error === null ? 0 : Number(error.code), stdout, stderr });
    });
  });
}
