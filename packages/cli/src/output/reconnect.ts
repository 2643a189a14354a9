// Reports once that the server is away while a stream is followed, and once that it is back.
import type { Failure } from "@svc/contract/failures.ts";
import { remark } from "./complain.ts";

export function oneRemark(): { broken(failure: Failure): void; restored(): void } {
  let isBroken = false;
  return {
    broken(failure) {
      if (!isBroken) remark(`svc: ${failure.message}; trying again until it answers`);
      isBroken = true;
    },
    restored() {
      if (isBroken) remark("svc: the server answers again");
      isBroken = false;
    },
  };
}
