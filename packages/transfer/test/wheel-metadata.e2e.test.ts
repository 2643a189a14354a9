// The field's Python engine as a peer, both finding the other through our metadata server.
import { startHttp } from "./services.ts";
import { wheelSuite } from "./wheel.suite.ts";

// Unmodified engines write their own brand into every key.
wheelSuite("metadata server", async () => {
  const service = await startHttp();
  return { metadata: service.metadata, brand: "mooncake", [Symbol.asyncDispose]: () => service[Symbol.asyncDispose]() };
});
