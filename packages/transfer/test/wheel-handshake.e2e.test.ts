// Mooncake's Python engine as a peer, with a handshake and no metadata service.
import { wheelSuite } from "./wheel.suite.ts";

wheelSuite("handshake", async () => ({ metadata: "P2PHANDSHAKE", brand: "svc", async [Symbol.asyncDispose]() {} }));
