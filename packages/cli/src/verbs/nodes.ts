// The verbs for the nodes of a deployment.
import { outputOption, type Verb } from "./verb.ts";

export function addNodeVerbs(program: Verb): void {
  const nodes = program.verb("nodes", "list, drain, upgrade and remove the nodes of a deployment");
  nodes
    .clientVerb("list", "list the nodes, with their load and free capacity")
    .alias("ls")
    .option("-q, --quiet", "ids only")
    .addOption(outputOption())
    .addHelpText("after", "\nExamples:\n  svc nodes list\n  svc nodes list --output json | jq '.[] | select(.status != \"ready\")'")
    .run(async (options: never) => (await import("../servers/nodes.ts")).listNodes(options));
  nodes
    .clientVerb("wanted", "how many nodes the load needs and why, and which ones to drain where fewer are needed")
    .option("-q, --quiet", "the number only")
    .addOption(outputOption())
    .addHelpText(
      "after",
      `
Answers of a gateway. A rise shows at once, a fall after gateway.scale_in_seconds of lower load.

Examples:
  svc nodes wanted
  svc nodes wanted --output json | jq -r '.drain[]' | xargs -r -n1 svc nodes drain`,
    )
    .run(async (options: never) => (await import("../servers/nodes-wanted.ts")).nodesWanted(options));
  nodes
    .clientVerb("show", "show one node with its sandboxes and templates")
    .argument("<id>", "the node, by id or URL")
    .addOption(outputOption())
    .usage("[options] <id>")
    .addHelpText("after", "\nExamples:\n  svc nodes show $NODE")
    .run(async (id: string, options: never) => (await import("../servers/nodes.ts")).showNode(id, options));
  nodes
    .clientVerb("drain", "take a node out of service: no new sandboxes, running ones are paused and, if possible, moved to other nodes")
    .argument("<id>", "the node, by id or URL; self: the node that is asked")
    .option("--no-wait", "return once it has started")
    .addHelpText(
      "after",
      "\nPrints what became of each sandbox: paused on the node, or moved to which other node.\n\nExamples:\n  svc nodes drain $NODE\n  svc nodes drain self --url http://10.0.0.7:8000",
    )
    .run(async (id: string, options: never) => (await import("../servers/nodes-drain.ts")).drainNode(id, options));
  nodes
    .clientVerb("undrain", "put a drained node back into service")
    .argument("<id>", "the node, by id or URL; self: the node that is asked")
    .addHelpText(
      "after",
      `
Prints the ids of the sandboxes that the drain paused: they stay paused until they are resumed.

Examples:
  svc nodes undrain $NODE
  svc nodes undrain $NODE | xargs -r svc resume`,
    )
    .run(async (id: string, options: never) => (await import("../servers/nodes-drain.ts")).undrainNode(id, options));
  nodes
    .clientVerb("upgrade", "replace the version of all nodes, one at a time: drain, replace, wait, undrain")
    .requiredOption("--to <commit>", "the commit that every node runs at the end: its first 7 digits or more")
    .requiredOption("--run <command>", "what replaces one node, by sh; it gets SVC_NODE_ID and SVC_NODE_URL")
    .option("--timeout <seconds>", "how long a node may take until it answers in the new version", "600")
    .addHelpText(
      "after",
      `
Leaves out nodes that run this commit already, and stops at the first failure; the node then stays drained. The same command goes on there.

Examples:
  svc nodes upgrade --to 4cc631b --run 'ssh "$(host_of "$SVC_NODE_URL")" upgrade-svc'`,
    )
    .run(async (options: never) => (await import("../servers/nodes-upgrade.ts")).upgradeNodes(options));
  nodes
    .clientVerb("remove", "remove a stopped node from the deployment, or one whose machine is lost")
    .argument("<id>", "the node, by id")
    .option("--dead", "also if it is not stopped: its running sandboxes are given up, and it ends them when it returns")
    .addHelpText("after", "\nExamples:\n  svc nodes remove $NODE\n  svc nodes remove $NODE --dead")
    .run(async (id: string, options: never) => (await import("../servers/nodes-drain.ts")).removeNode(id, options));
}
