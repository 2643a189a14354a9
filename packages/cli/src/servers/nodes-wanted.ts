// `svc nodes wanted`: how many nodes the load needs, for people and for scripts that size a group of machines.
import { type OutputFormat, outputFormat, printJSON, printTable } from "@svc/contract/table.ts";
import { type AccessOptions, withClient } from "../access/access.ts";
import { remark } from "../output/complain.ts";
import { ofGateway } from "./nodes.ts";

type Options = AccessOptions & { quiet?: true; output?: OutputFormat };

export function nodesWanted({ quiet, output, ...access }: Options): Promise<number> {
  return withClient(access, async (client) => {
    const { wanted, serving, reason, by, drain } = await ofGateway(client.scaling());
    if (quiet === true) process.stdout.write(`${wanted}\n`);
    else if (outputFormat(output) === "json") printJSON({ wanted, serving, reason, by, drain });
    else {
      printTable(["WANTED", "SERVING", "SCARCEST"], [[String(wanted), String(serving), reason.replaceAll("_", " ")]]);
      if (wanted > serving) remark(`Add ${wanted - serving}: start svc node on as many further machines.`);
      for (const nodeID of drain) remark(`${nodeID} is not needed: svc nodes drain ${nodeID}`);
    }
    return 0;
  });
}
