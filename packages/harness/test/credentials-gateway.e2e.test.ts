// The credential matrix at a gateway with two nodes that share its key and seed.
import { startFrontedNodes } from "../src/fronted-nodes.ts";
import { credentialsSuite } from "./credentials.suite.ts";

credentialsSuite("gateway", async (env) => {
  const deployment = await startFrontedNodes({ env, gateways: 1 });
  const { gateway } = deployment;
  return {
    url: gateway.url,
    call: gateway.call,
    log: () => gateway.log() + deployment.nodes.map((node) => node.log()).join(""),
    restart: deployment.restart,
    [Symbol.asyncDispose]: () => deployment[Symbol.asyncDispose](),
  };
});
