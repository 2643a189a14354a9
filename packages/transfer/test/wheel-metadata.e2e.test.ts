// Mooncake's Python engine as a peer; both engines use our metadata server.
import { startHttp } from "./services.ts";
import { wheelSuite } from "./wheel.suite.ts";

// Unmodified engines put their own brand into every key.
wheelSuite("metadata server", async () => {
  const service = await startHttp();
  return { metadata: service.metadata, brand: "mooncake", [Symbol.asyncDispose]: () => service[Symbol.asyncDispose]() };
});
