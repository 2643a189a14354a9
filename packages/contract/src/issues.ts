// Describes for people why an input is not valid, for all schemas of the servers and the command line.
import { z } from "zod";

const MAX_SHOWN_CHARS = 100;
const kinds: Readonly<Record<string, string>> = {
  string: "text",
  number: "a number",
  int: "a whole number",
  boolean: "true or false",
  array: "a list",
  object: "an object",
  record: "an object",
  nan: "not a number",
  null: "null",
  undefined: "nothing",
};
const units: Readonly<Record<string, string>> = { string: "characters", array: "entries", set: "entries", map: "entries", file: "bytes" };
const formats: Readonly<Record<string, string>> = {
  url: "a URL",
  uuid: "a UUID",
  email: "an email address",
  datetime: "a time as RFC 3339 writes it",
  ipv4: "an IPv4 address",
  ipv6: "an IPv6 address",
};

/** Used where a schema has no message of its own. */
z.config({ customError: (issue) => expectation(issue) });

function expectation(issue: z.core.$ZodRawIssue): string | undefined {
  const amount = (bound: unknown, origin: string) => [String(bound), units[origin]].filter(Boolean).join(" ");
  switch (issue.code) {
    case "invalid_type":
      return `expected ${kinds[issue.expected] ?? issue.expected}`;
    case "too_small":
      return `expected ${issue.inclusive === false ? "more than" : "at least"} ${amount(issue.minimum, issue.origin)}`;
    case "too_big":
      return `expected ${issue.inclusive === false ? "less than" : "at most"} ${amount(issue.maximum, issue.origin)}`;
    case "not_multiple_of":
      return `expected a multiple of ${issue.divisor}`;
    case "invalid_value":
      return `expected ${issue.values.map((value) => JSON.stringify(value)).join(" or ")}`;
    case "invalid_format":
      return `expected ${formats[issue.format] ?? (typeof issue.pattern === "string" ? `text that fits ${issue.pattern}` : issue.format)}`;
    case "unrecognized_keys":
      return `expected no member ${issue.keys.map((key) => JSON.stringify(key)).join(", ")}`;
    case "invalid_key":
      return `expected names of ${issue.issues[0]?.message.replace(/^expected /, "") ?? "another form"}`;
    case "invalid_element":
      return "expected another entry";
    case "invalid_union":
      return "expected another kind of value";
    default:
      return undefined;
  }
}

/** Returns the first issue: where it is, what was expected and, if the input is available, what was given. */
export function issueText(error: z.ZodError, input?: unknown): string {
  const issue = error.issues[0];
  if (issue === undefined) return "the input is not valid";
  const isName = issue.code === "invalid_key";
  const where = (isName ? issue.path.slice(0, -1) : issue.path).join(".");
  const value = isName
    ? issue.path.at(-1)
    : issue.path.reduce<unknown>((found, part) => (found as Record<PropertyKey, unknown> | undefined | null)?.[part], input);
  const text =
    input !== undefined && issue.code !== "unrecognized_keys" && issue.message.startsWith("expected ") ? issue.message + given(value, issue) : issue.message;
  // A schema's own message may already begin with the member's name.
  const place = issue.message.split(":", 1)[0] ?? "";
  return where === "" || place === where || place.endsWith(`.${where}`) ? text : `${where}: ${text}`;
}

/** Describes the given value; of long text and lists only the length. */
function given(value: unknown, issue: z.core.$ZodIssue): string {
  const { code } = issue;
  if (value === undefined) return ", got nothing";
  // The numbers of a query are text.
  const isNumeric = (code === "too_small" || code === "too_big") && ["number", "int", "bigint"].includes(issue.origin);
  if (isNumeric && typeof value === "string" && value.length <= MAX_SHOWN_CHARS) return `, got ${value}`;
  if (typeof value === "number" || typeof value === "boolean" || typeof value === "bigint" || value === null) return `, got ${value}`;
  if ((code === "too_small" || code === "too_big") && (typeof value === "string" || Array.isArray(value))) return `, got ${value.length}`;
  if (typeof value === "string" && value.length <= MAX_SHOWN_CHARS) return `, got ${JSON.stringify(value)}`;
  return `, got ${Array.isArray(value) ? "a list" : typeof value === "string" ? `text of ${value.length} characters` : "an object"}`;
}
