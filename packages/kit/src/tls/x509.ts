// X.509 certificates: authorities, and the certificates of servers and their clients that an authority signs.
import { createPublicKey, hash, type KeyObject, randomBytes, sign } from "node:crypto";
import { isIP } from "node:net";
import { AsnConvert, OctetString } from "@peculiar/asn1-schema";
import * as x509 from "@peculiar/asn1-x509";

const ECDSA_WITH_SHA256 = "1.2.840.10045.4.3.2";
const COMMON_NAME = "2.5.4.3";
const SERIAL_BYTES = 16;
const DAY_MS = 24 * 3600_000;
/** Clocks of guests may be behind, and clients refuse a certificate that is valid for more than 398 days. */
const LEAF_BEFORE_MS = DAY_MS;
export const LEAF_VALID_MS = 30 * DAY_MS;
const AUTHORITY_VALID_MS = 3650 * DAY_MS;

export type Issuer = { readonly key: KeyObject; readonly certificate: x509.Certificate };

/** Parses a certificate in PEM. @throws if it is none. */
export function parseCertificate(pem: string): x509.Certificate {
  const body = /-----BEGIN CERTIFICATE-----([^-]+)-----END CERTIFICATE-----/.exec(pem)?.[1] ?? "";
  return AsnConvert.parse(Buffer.from(body, "base64"), x509.Certificate);
}

type AuthorityOptions = {
  /** The authority that signs this one; absent: it signs itself. */
  readonly issuer?: Issuer;
  /** How many further authorities may be below this one; none by default. */
  readonly authoritiesBelow?: number;
};

/** Returns an authority that may sign certificates of hosts. */
export function authorityCertificate(key: KeyObject, commonName: string, nowMs: number, { issuer, authoritiesBelow = 0 }: AuthorityOptions = {}): string {
  const name = nameOf(commonName);
  const above = issuer?.certificate.tbsCertificate;
  return signed(issuer?.key ?? key, {
    subject: name,
    issuer: above?.subject ?? name,
    validity: validity(nowMs - LEAF_BEFORE_MS, nowMs + AUTHORITY_VALID_MS),
    subjectPublicKeyInfo: publicInfo(key),
    extensions: [
      extension(x509.id_ce_basicConstraints, new x509.BasicConstraints({ cA: true, pathLenConstraint: authoritiesBelow }), true),
      extension(x509.id_ce_keyUsage, new x509.KeyUsage(x509.KeyUsageFlags.keyCertSign | x509.KeyUsageFlags.cRLSign), true),
      extension(x509.id_ce_subjectKeyIdentifier, new x509.SubjectKeyIdentifier(keyIdentifier(publicInfo(key)))),
      ...(above === undefined ? [] : [authorityKeyOf(above)]),
    ],
  });
}

export type Leaf = {
  readonly subject: string;
  readonly key: KeyObject;
  /** DNS names, which may begin with "*.", and addresses. */
  readonly names: readonly string[];
  /** Both by default: servers of a deployment are also clients of each other. */
  readonly usages?: readonly ("server" | "client")[];
  readonly from: Date;
  readonly until: Date;
};

const usageIDs = { server: x509.id_kp_serverAuth, client: x509.id_kp_clientAuth };

/** Returns the certificate of a server, of a client, or of both. */
export function leafCertificate({ key, certificate }: Issuer, { subject, key: leafKey, names, usages = ["server", "client"], from, until }: Leaf): string {
  const { tbsCertificate } = certificate;
  const generalNames = names.map((name) => new x509.GeneralName(isIP(name) === 0 ? { dNSName: name } : { iPAddress: name }));
  return signed(key, {
    subject: nameOf(subject),
    issuer: tbsCertificate.subject,
    validity: validity(from.getTime(), until.getTime()),
    subjectPublicKeyInfo: publicInfo(leafKey),
    extensions: [
      extension(x509.id_ce_basicConstraints, new x509.BasicConstraints({ cA: false }), true),
      extension(x509.id_ce_keyUsage, new x509.KeyUsage(x509.KeyUsageFlags.digitalSignature), true),
      extension(x509.id_ce_extKeyUsage, new x509.ExtendedKeyUsage(usages.map((usage) => usageIDs[usage]))),
      extension(x509.id_ce_subjectAltName, new x509.SubjectAlternativeName(generalNames)),
      extension(x509.id_ce_subjectKeyIdentifier, new x509.SubjectKeyIdentifier(keyIdentifier(publicInfo(leafKey)))),
      authorityKeyOf(tbsCertificate),
    ],
  });
}

/** Returns a certificate of one host, for servers. */
export function hostCertificate(issuer: Issuer, host: string, hostKey: KeyObject, nowMs: number): string {
  // A common name has at most 64 characters; clients read the subjectAltName.
  const subject = host.length <= 64 ? host : "svc egress";
  const [from, until] = [new Date(nowMs - LEAF_BEFORE_MS), new Date(nowMs + LEAF_VALID_MS)];
  return leafCertificate(issuer, { subject, key: hostKey, names: [host], usages: ["server"], from, until });
}

const authorityKeyOf = (authority: x509.TBSCertificate) =>
  extension(x509.id_ce_authorityKeyIdentifier, new x509.AuthorityKeyIdentifier({ keyIdentifier: new x509.KeyIdentifier(subjectKeyOf(authority)) }));

/** Returns the key identifier that the authority's own certificate has, since OpenSSL compares the two. */
function subjectKeyOf({ extensions, subjectPublicKeyInfo }: x509.TBSCertificate): ArrayBuffer {
  const found = extensions?.find(({ extnID }) => extnID === x509.id_ce_subjectKeyIdentifier);
  return found === undefined ? keyIdentifier(subjectPublicKeyInfo) : AsnConvert.parse(found.extnValue.buffer, x509.SubjectKeyIdentifier).buffer;
}

type Parts = Pick<x509.TBSCertificate, "subject" | "issuer" | "validity" | "subjectPublicKeyInfo"> & { readonly extensions: x509.Extension[] };

function signed(key: KeyObject, { extensions, ...parts }: Parts): string {
  const algorithm = new x509.AlgorithmIdentifier({ algorithm: ECDSA_WITH_SHA256 });
  const serial = randomBytes(SERIAL_BYTES);
  // A serial number is a positive integer without leading zeros.
  serial[0] = ((serial[0] ?? 0) & 0x3f) | 0x40;
  const tbsCertificate = new x509.TBSCertificate({
    ...parts,
    version: x509.Version.v3,
    serialNumber: bufferOf(serial),
    signature: algorithm,
    extensions: new x509.Extensions(extensions),
  });
  const signature = sign("sha256", Buffer.from(AsnConvert.serialize(tbsCertificate)), key);
  const certificate = new x509.Certificate({ tbsCertificate, signatureAlgorithm: algorithm, signatureValue: bufferOf(signature) });
  return pem(AsnConvert.serialize(certificate));
}

function nameOf(commonName: string): x509.Name {
  const value = new x509.AttributeValue({ utf8String: commonName });
  return new x509.Name([new x509.RelativeDistinguishedName([new x509.AttributeTypeAndValue({ type: COMMON_NAME, value })])]);
}

const validity = (from: number, to: number) => new x509.Validity({ notBefore: new Date(from), notAfter: new Date(to) });

function extension(extnID: string, value: unknown, critical = false): x509.Extension {
  return new x509.Extension({ extnID, critical, extnValue: new OctetString(AsnConvert.serialize(value)) });
}

function publicInfo(key: KeyObject): x509.SubjectPublicKeyInfo {
  const der = (key.type === "private" ? createPublicKey(key) : key).export({ type: "spki", format: "der" });
  return AsnConvert.parse(der, x509.SubjectPublicKeyInfo);
}

const keyIdentifier = ({ subjectPublicKey }: x509.SubjectPublicKeyInfo): ArrayBuffer => bufferOf(hash("sha1", Buffer.from(subjectPublicKey), "buffer"));

const bufferOf = (bytes: Uint8Array): ArrayBuffer => new Uint8Array(bytes).buffer;

function pem(der: ArrayBuffer): string {
  const lines =
    Buffer.from(der)
      .toString("base64")
      .match(/.{1,64}/g) ?? [];
  return `-----BEGIN CERTIFICATE-----\n${lines.join("\n")}\n-----END CERTIFICATE-----\n`;
}

/** Returns the name under which OpenSSL looks up a certificate in a directory: a hash of its subject with the letters in lower case. */
export function nameHash({ tbsCertificate }: x509.Certificate): string {
  const canonical = tbsCertificate.subject.map((names) => {
    const lower = names.map(({ type, value }) => {
      const text = value.toString().trim().replace(/\s+/g, " ").toLowerCase();
      return new x509.AttributeTypeAndValue({ type, value: new x509.AttributeValue({ utf8String: text }) });
    });
    return Buffer.from(AsnConvert.serialize(new x509.RelativeDistinguishedName(lower)));
  });
  const digest = hash("sha1", Buffer.concat(canonical), "buffer");
  return digest.readUInt32LE(0).toString(16).padStart(8, "0");
}
