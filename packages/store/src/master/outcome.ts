// Answers that consist of a code only.
import { codes } from "../rpc/codes.ts";
import type { Expected } from "../rpc/schema.ts";

export const wrong = (code: number) => ({ ok: false, code }) as const;
export const done = (code: number): Expected<undefined> => (code === codes.OK ? { ok: true, value: undefined } : wrong(code));
