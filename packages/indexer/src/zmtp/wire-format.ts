// The wire format of ZMTP 3: the greeting, frames and commands, to send and to check.
//
//   greeting   ff · 8 of padding · 7f │ major · minor │ mechanism, 20 │ as-server │ 31 of filler            64 bytes
//   frame      flags (1 more, 2 long, 4 command) │ size: 1 byte, or 8 of a long one, big-endian │ body
//   command    length of its name, 1 │ name │ data

export const MORE = 1;
export const LONG = 2;
export const COMMAND = 4;
export const SHORT_HEAD_BYTES = 2;
export const LONG_HEAD_BYTES = 9;

export const GREETING_BYTES = 64;
const MINOR_AT = 11;
const MECHANISM_AT = 12;
const MECHANISM_BYTES = 20;
/** From minor version 1 on, a peer accepts SUBSCRIBE and PING as commands. */
const VERSION = [3, 1] as const;

export const greeting = Buffer.alloc(GREETING_BYTES);
greeting[0] = 0xff;
greeting[9] = 0x7f;
greeting.set(VERSION, MINOR_AT - 1);
greeting.write("NULL", MECHANISM_AT, "latin1");

/** Returns what is wrong with a peer's greeting, of which perhaps only the first bytes have come; "" if nothing is. */
export function problemOfGreeting(bytes: Buffer): string {
  const [first, revision] = [bytes[0], bytes[10]];
  if (first !== undefined && first !== 0xff) return "what answers there does not speak ZMQ";
  // A signature of version 2 or 3 has this bit; in version 1 the byte is a frame's length.
  if (bytes[9] !== undefined && (bytes[9] & 1) === 0) return "the peer speaks version 1 of ZMTP; version 3 is spoken here";
  if (revision !== undefined && revision < VERSION[0]) return `the peer speaks version ${revision + (revision < 2 ? 1 : 0)} of ZMTP; version 3 is spoken here`;
  if (bytes.length < MECHANISM_AT + MECHANISM_BYTES) return "";
  const mechanism = bytes.toString("latin1", MECHANISM_AT, MECHANISM_AT + MECHANISM_BYTES).replace(/\0+$/, "");
  return mechanism === "NULL" ? "" : `expected the security mechanism NULL, got ${JSON.stringify(mechanism)}`;
}

/** Returns whether the sender of a complete greeting accepts subscriptions and heartbeats as commands. */
export function takesCommands(bytes: Buffer): boolean {
  return (bytes[10] as number) > VERSION[0] || (bytes[MINOR_AT] as number) >= 1;
}

export function frame(flags: number, body: Buffer): Buffer {
  const isLong = body.length > 255;
  const head = Buffer.alloc(isLong ? LONG_HEAD_BYTES : SHORT_HEAD_BYTES);
  head[0] = flags | (isLong ? LONG : 0);
  if (isLong) head.writeBigUInt64BE(BigInt(body.length), 1);
  else head[1] = body.length;
  return Buffer.concat([head, body]);
}

export function message(frames: readonly Buffer[]): Buffer {
  return Buffer.concat(frames.map((body, at) => frame(at + 1 < frames.length ? MORE : 0, body)));
}

export function command(name: string, data: Buffer = Buffer.alloc(0)): Buffer {
  return frame(COMMAND, Buffer.concat([Buffer.of(name.length), Buffer.from(name, "latin1"), data]));
}

/** Splits a command into name and data; undefined if the name does not fit into it. */
export function readCommand(body: Buffer): { name: string; data: Buffer } | undefined {
  const end = 1 + (body[0] ?? 0);
  if (end < 2 || end > body.length) return undefined;
  return { name: body.toString("latin1", 1, end), data: body.subarray(end) };
}

/** Encodes the properties of READY, each as `name length, 1 │ name │ value length, 4 │ value`. */
export function properties(values: Readonly<Record<string, string>>): Buffer {
  return Buffer.concat(
    Object.entries(values).flatMap(([name, value]) => {
      const size = Buffer.alloc(4);
      size.writeUInt32BE(value.length);
      return [Buffer.of(name.length), Buffer.from(name, "latin1"), size, Buffer.from(value, "latin1")];
    }),
  );
}

/** Decodes properties with names in lower case; undefined if they do not fit. */
export function readProperties(data: Buffer): Map<string, string> | undefined {
  const found = new Map<string, string>();
  for (let at = 0; at < data.length; ) {
    const nameEnd = at + 1 + (data[at] as number);
    if (nameEnd === at + 1 || nameEnd + 4 > data.length) return undefined;
    const end = nameEnd + 4 + data.readUInt32BE(nameEnd);
    if (end > data.length) return undefined;
    found.set(data.toString("latin1", at + 1, nameEnd).toLowerCase(), data.toString("latin1", nameEnd + 4, end));
    at = end;
  }
  return found;
}
