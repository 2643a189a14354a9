// Headers of a tar archive in the POSIX format; names and sizes that do not fit get an extended record before the header.

export type TarEntry = {
  /** Relative to the context, with `/`. */
  readonly path: string;
  readonly kind: "file" | "folder" | "link";
  readonly mode: number;
  readonly sizeBytes: number;
  readonly modifiedAtSeconds: number;
  readonly target: string;
};

const BLOCK = 512;
const NAME_BYTES = 100;
/** The largest number that eleven octal digits can hold. */
const LARGEST_SIZE = 8 ** 11 - 1;
const types = { file: "0", link: "2", folder: "5", record: "x" } as const;

/** Returns the entry's header, preceded by an extended record if needed. Owners are root, since the server sets the files' owners. */
export function tarHeader({ path, kind, mode, sizeBytes, modifiedAtSeconds, target }: TarEntry): Buffer {
  const name = kind === "folder" ? `${path}/` : path;
  const records: [string, string][] = [];
  if (!fits(name)) records.push(["path", name]);
  if (!fits(target)) records.push(["linkpath", target]);
  if (sizeBytes > LARGEST_SIZE) records.push(["size", String(sizeBytes)]);
  const own = block(fits(name) ? name : "long", types[kind], mode, sizeBytes > LARGEST_SIZE ? 0 : sizeBytes, modifiedAtSeconds, fits(target) ? target : "long");
  if (records.length === 0) return own;
  const body = Buffer.concat(records.map(([key, value]) => record(key, value)));
  return Buffer.concat([block("record", types.record, 0o644, body.length, modifiedAtSeconds, ""), body, tarPadding(body.length), own]);
}

/** Fills up to the next whole block. */
export function tarPadding(sizeBytes: number): Buffer {
  return Buffer.alloc((BLOCK - (sizeBytes % BLOCK)) % BLOCK);
}

export function tarEnd(): Buffer {
  return Buffer.alloc(2 * BLOCK);
}

/** Names outside ASCII have no standard encoding in a header, so they need a record. */
function fits(text: string): boolean {
  return Buffer.byteLength(text) <= NAME_BYTES && /^[\x20-\x7e]*$/.test(text);
}

/** Formats "LENGTH key=value\n", where LENGTH includes its own digits. */
function record(key: string, value: string): Buffer {
  const rest = Buffer.byteLength(` ${key}=${value}\n`);
  let length = rest + String(rest).length;
  if (String(length).length > String(rest).length) length = rest + String(length).length;
  return Buffer.from(`${length} ${key}=${value}\n`);
}

function block(name: string, type: string, mode: number, sizeBytes: number, modifiedAtSeconds: number, target: string): Buffer {
  const header = Buffer.alloc(BLOCK);
  const octal = (value: number, at: number, digits: number) => header.write(`${Math.max(0, value).toString(8).padStart(digits, "0")}\0`, at, "latin1");
  header.write(name, 0, "latin1");
  octal(mode, 100, 7);
  octal(0, 108, 7);
  octal(0, 116, 7);
  octal(sizeBytes, 124, 11);
  octal(modifiedAtSeconds, 136, 11);
  header.write(" ".repeat(8), 148, "latin1");
  header.write(type, 156, "latin1");
  header.write(target, 157, "latin1");
  header.write("ustar\0" + "00", 257, "latin1");
  header.write("root", 265, "latin1");
  header.write("root", 297, "latin1");
  const sum = header.reduce((total, byte) => total + byte, 0);
  header.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148, "latin1");
  return header;
}
