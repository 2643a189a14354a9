// Checks the control plane of the client's tests against the contract: the members of requests, and the answers of each operation.
import { type FailureName, failures } from "@svc/contract/failures.ts";
import { nodeControlOperations } from "@svc/contract/node-control.ts";
import { type Operation, pathMembers } from "@svc/contract/operation.ts";
import { nodeOperations } from "@svc/contract/sandbox.ts";

export type Exchange = { readonly method: string; readonly url: URL; readonly body: string; readonly status: number; readonly answer: string };

/** Operations with a literal path segment precede those with a member in its place. */
const table: readonly Operation[] = Object.values<Operation>({ ...nodeOperations, ...nodeControlOperations }).sort(
  (a, b) => pathMembers(a.path).length - pathMembers(b.path).length,
);

/** Returns what the real server would not have sent, or would have refused; undefined if everything conforms. */
export function foreign({ method, url, body, status, answer }: Exchange): string | undefined {
  const found = table.flatMap((operation) => {
    const members = operation.method === method ? membersOf(operation, url.pathname) : undefined;
    return members === undefined ? [] : [{ operation, members }];
  })[0];
  if (found === undefined) return "the contract has no such operation";
  const { operation, members } = found;
  if (status >= 400) return foreignFailure(operation, status, answer);
  const input = operation.input.safeParse({ ...Object.fromEntries(url.searchParams), ...(body === "" ? {} : (JSON.parse(body) as object)), ...members });
  if (!input.success) return `its input is not the contract's: ${input.error.message}`;
  if (![operation.success, ...(operation.otherSuccess ?? [])].includes(status)) return `the contract has no status ${status} for it`;
  if (operation.media !== undefined) return undefined;
  const output = operation.output.safeParse(answer === "" ? undefined : JSON.parse(answer));
  return output.success ? undefined : `its output is not the contract's: ${output.error.message}`;
}

function foreignFailure(operation: Operation, status: number, answer: string): string | undefined {
  const { error_code: name } = JSON.parse(answer) as { error_code: FailureName };
  if (failures[name]?.http !== status) return `the contract has no ${status} ${name}`;
  return name === "UNAUTHENTICATED" || operation.failures.includes(name) ? undefined : `${operation.name} does not fail with ${name}`;
}

function membersOf(operation: Operation, path: string): Record<string, string> | undefined {
  const names: string[] = [];
  const pattern = operation.path.replace(/\{(\w+)\}/g, (_, name: string) => {
    names.push(name);
    return "([^/]+)";
  });
  const match = new RegExp(`^${pattern}$`).exec(path);
  return match === null ? undefined : Object.fromEntries(names.map((name, index) => [name, decodeURIComponent(match[index + 1] ?? "")]));
}
