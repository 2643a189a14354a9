// JSON whose whole numbers above 2^53 stay exact: they are read as bigint and written as digits.

type Reviver = (this: unknown, key: string, value: unknown, context: { source?: string }) => unknown;
const parse = JSON.parse as (text: string, reviver: Reviver) => unknown;
const rawJSON = (JSON as unknown as { rawJSON(text: string): unknown }).rawJSON;

export function parseExact(text: string): unknown {
  return parse(text, (_key, value, { source }) =>
    typeof value === "number" && !Number.isSafeInteger(value) && source !== undefined && /^-?\d+$/.test(source) ? BigInt(source) : value,
  );
}

/** Writes a bigint as a number's digits, or as a decimal string if the client requested strings. */
export function writeExact(value: unknown, asStrings: boolean): string {
  return JSON.stringify(value, (_key, member: unknown) => (typeof member !== "bigint" ? member : asStrings ? member.toString() : rawJSON(member.toString())));
}
