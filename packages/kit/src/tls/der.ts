// Writes X.509 certificates in DER: the few structures that an authority and its server certificate need.
import { createHash, createPublicKey, type KeyObject, randomBytes, sign } from "node:crypto";
import { isIP } from "node:net";

const SEQUENCE = 0x30;
const SET = 0x31;
const BOOLEAN = 0x01;
const INTEGER = 0x02;
const BIT_STRING = 0x03;
const OCTET_STRING = 0x04;
const OID = 0x06;
const UTF8 = 0x0c;
const UTC_TIME = 0x17;
/** Constructed, context-specific tags; the primitive ones lack the bit 0x20. */
const CONTEXT = 0xa0;
const DNS_NAME = 0x82;
const IP_ADDRESS = 0x87;

const ECDSA_WITH_SHA256 = "1.2.840.10045.4.3.2";
const COMMON_NAME = "2.5.4.3";
const BASIC_CONSTRAINTS = "2.5.29.19";
const KEY_USAGE = "2.5.29.15";
const EXTENDED_KEY_USAGE = "2.5.29.37";
const SUBJECT_ALT_NAME = "2.5.29.17";
const SUBJECT_KEY = "2.5.29.14";
const AUTHORITY_KEY = "2.5.29.35";
const SERVER_AUTH = "1.3.6.1.5.5.7.3.1";
const SIGNS_CERTIFICATES = 0x06;
const SIGNS_HANDSHAKES = 0x80;
const SERIAL_BYTES = 16;

export type Certified = {
  readonly subject: string;
  readonly key: KeyObject;
  readonly issuer: { readonly subject: string; readonly key: KeyObject };
  /** DNS names and addresses of a server; undefined for an authority, which may sign the certificates of servers only. */
  readonly names?: readonly string[];
  readonly from: Date;
  readonly until: Date;
};

/** Returns the certificate in PEM; the keys are elliptic-curve keys. */
export function certificateOf({ subject, key, issuer, names, from, until }: Certified): string {
  const algorithm = der(SEQUENCE, oid(ECDSA_WITH_SHA256));
  const extensions = [
    extension(BASIC_CONSTRAINTS, names === undefined ? der(SEQUENCE, der(BOOLEAN, Buffer.of(0xff)), der(INTEGER, Buffer.of(0))) : der(SEQUENCE), true),
    extension(KEY_USAGE, der(BIT_STRING, Buffer.of(names === undefined ? 1 : 7, names === undefined ? SIGNS_CERTIFICATES : SIGNS_HANDSHAKES)), true),
    extension(SUBJECT_KEY, der(OCTET_STRING, keyIDOf(key))),
    extension(AUTHORITY_KEY, der(SEQUENCE, der(CONTEXT & ~0x20, keyIDOf(issuer.key)))),
    ...(names === undefined
      ? []
      : [extension(EXTENDED_KEY_USAGE, der(SEQUENCE, oid(SERVER_AUTH))), extension(SUBJECT_ALT_NAME, der(SEQUENCE, ...names.map(alternativeName)))]),
  ];
  const serial = randomBytes(SERIAL_BYTES);
  // A serial number is positive and has no leading zero byte.
  serial[0] = ((serial[0] as number) & 0x7f) | 0x40;
  const body = der(
    SEQUENCE,
    der(CONTEXT, der(INTEGER, Buffer.of(2))),
    der(INTEGER, serial),
    algorithm,
    nameOf(issuer.subject),
    der(SEQUENCE, time(from), time(until)),
    nameOf(subject),
    spkiOf(key),
    der(CONTEXT | 3, der(SEQUENCE, ...extensions)),
  );
  const signature = sign("sha256", body, issuer.key);
  const base64 = der(SEQUENCE, body, algorithm, der(BIT_STRING, Buffer.of(0), signature)).toString("base64");
  return `-----BEGIN CERTIFICATE-----\n${(base64.match(/.{1,64}/g) ?? []).join("\n")}\n-----END CERTIFICATE-----\n`;
}

function der(tag: number, ...parts: readonly Buffer[]): Buffer {
  const content = Buffer.concat(parts);
  const { length } = content;
  const head = length < 0x80 ? [length] : length < 0x100 ? [0x81, length] : [0x82, length >> 8, length & 0xff];
  return Buffer.concat([Buffer.of(tag, ...head), content]);
}

function oid(text: string): Buffer {
  const [first = 0, second = 0, ...rest] = text.split(".").map(Number);
  const bytes = [first * 40 + second];
  for (const part of rest) {
    const groups = [part & 0x7f];
    for (let left = part >>> 7; left > 0; left >>>= 7) groups.unshift((left & 0x7f) | 0x80);
    bytes.push(...groups);
  }
  return der(OID, Buffer.from(bytes));
}

const extension = (id: string, value: Buffer, isCritical = false): Buffer =>
  der(SEQUENCE, oid(id), ...(isCritical ? [der(BOOLEAN, Buffer.of(0xff))] : []), der(OCTET_STRING, value));

const nameOf = (commonName: string): Buffer => der(SEQUENCE, der(SET, der(SEQUENCE, oid(COMMON_NAME), der(UTF8, Buffer.from(commonName)))));

/** A time before 2050, which has a year of two digits. */
const time = (at: Date): Buffer => der(UTC_TIME, Buffer.from(`${at.toISOString().replace(/[-:T]/g, "").slice(2, 14)}Z`));

const spkiOf = (key: KeyObject): Buffer => createPublicKey(key.export({ type: "pkcs8", format: "pem" })).export({ type: "spki", format: "der" });

const keyIDOf = (key: KeyObject): Buffer => createHash("sha256").update(spkiOf(key)).digest().subarray(0, 20);

function alternativeName(name: string): Buffer {
  const family = isIP(name);
  if (family === 0) return der(DNS_NAME, Buffer.from(name, "latin1"));
  return der(IP_ADDRESS, family === 4 ? Buffer.from(name.split(".").map(Number)) : ipv6Bytes(name));
}

function ipv6Bytes(address: string): Buffer {
  // URL writes an address in its canonical form, in which an embedded IPv4 part is hexadecimal, too.
  const text = new URL(`http://[${address}]`).hostname.slice(1, -1);
  const [head = "", tail] = text.split("::");
  const groups = (part: string) => (part === "" ? [] : part.split(":").map((group) => Number.parseInt(group, 16)));
  const [left, right] = [groups(head), groups(tail ?? "")];
  const all = [...left, ...(tail === undefined ? [] : Array<number>(8 - left.length - right.length).fill(0)), ...right];
  return Buffer.from(all.flatMap((group) => [group >> 8, group & 0xff]));
}
