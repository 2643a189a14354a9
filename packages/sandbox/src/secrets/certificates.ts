// X.509 certificates: the deployment's authority for egress, and a certificate per host that it signs.
import { createPublicKey, hash, type KeyObject, randomBytes, sign } from "node:crypto";
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

/** Returns a self-signed authority that may sign certificates of hosts, and no further authorities. */
export function authorityCertificate(key: KeyObject, commonName: string, nowMs: number): string {
  const name = nameOf(commonName);
  return signed(key, {
    subject: name,
    issuer: name,
    validity: validity(nowMs - LEAF_BEFORE_MS, nowMs + AUTHORITY_VALID_MS),
    subjectPublicKeyInfo: publicInfo(key),
    extensions: [
      extension(x509.id_ce_basicConstraints, new x509.BasicConstraints({ cA: true, pathLenConstraint: 0 }), true),
      extension(x509.id_ce_keyUsage, new x509.KeyUsage(x509.KeyUsageFlags.keyCertSign | x509.KeyUsageFlags.cRLSign), true),
      extension(x509.id_ce_subjectKeyIdentifier, new x509.SubjectKeyIdentifier(keyIdentifier(publicInfo(key)))),
    ],
  });
}

/** Returns a certificate of one host, for servers. */
export function hostCertificate({ key, certificate }: Issuer, host: string, hostKey: KeyObject, nowMs: number): string {
  const { subject, subjectPublicKeyInfo } = certificate.tbsCertificate;
  const authorityKey = new x509.AuthorityKeyIdentifier({ keyIdentifier: new x509.KeyIdentifier(keyIdentifier(subjectPublicKeyInfo)) });
  return signed(key, {
    // A common name has at most 64 characters; clients read the subjectAltName.
    subject: nameOf(host.length <= 64 ? host : "svc egress"),
    issuer: subject,
    validity: validity(nowMs - LEAF_BEFORE_MS, nowMs + LEAF_VALID_MS),
    subjectPublicKeyInfo: publicInfo(hostKey),
    extensions: [
      extension(x509.id_ce_basicConstraints, new x509.BasicConstraints({ cA: false }), true),
      extension(x509.id_ce_keyUsage, new x509.KeyUsage(x509.KeyUsageFlags.digitalSignature), true),
      extension(x509.id_ce_extKeyUsage, new x509.ExtendedKeyUsage([x509.id_kp_serverAuth])),
      extension(x509.id_ce_subjectAltName, new x509.SubjectAlternativeName([new x509.GeneralName({ dNSName: host })])),
      extension(x509.id_ce_authorityKeyIdentifier, authorityKey),
    ],
  });
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
