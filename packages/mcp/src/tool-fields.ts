// Input fields that several tools share.
import { z } from "zod";

export const sandbox = z.string().optional().describe("Id of a sandbox; default: this session's own, which is started when it is first needed");
export const path = z.string().min(1).describe("Absolute, or relative to the user's home");
