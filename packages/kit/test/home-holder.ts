// A process that holds the lock of a home, for a test.
import { lockHome } from "@svc/kit/home-lock.ts";

const [, , home = "", server = ""] = process.argv;
await lockHome(home, server);
// The listener keeps the process alive until it is killed.
process.on("message", () => {});
process.send?.("held");
