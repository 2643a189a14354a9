// The meaning of a failed TLS handshake for a person: what is wrong, and what to do.

const UNKNOWN_AUTHORITY =
  "its certificate is signed by an authority that this program does not trust: name the file of that authority in SVC_CA_FILE for svc, in NODE_EXTRA_CA_CERTS for other programs on Node";
const PLAIN = "it speaks plain HTTP on this port: begin the URL with http://";

const troubles: Readonly<Record<string, string>> = {
  SELF_SIGNED_CERT_IN_CHAIN: UNKNOWN_AUTHORITY,
  DEPTH_ZERO_SELF_SIGNED_CERT: UNKNOWN_AUTHORITY,
  UNABLE_TO_VERIFY_LEAF_SIGNATURE: UNKNOWN_AUTHORITY,
  UNABLE_TO_GET_ISSUER_CERT: UNKNOWN_AUTHORITY,
  UNABLE_TO_GET_ISSUER_CERT_LOCALLY: UNKNOWN_AUTHORITY,
  CERT_SIGNATURE_FAILURE: UNKNOWN_AUTHORITY,
  CERT_HAS_EXPIRED: "its certificate has expired: replace the certificate of the server, and check this machine's clock",
  CERT_NOT_YET_VALID: "its certificate is not valid yet: check this machine's clock",
  ERR_TLS_CERT_ALTNAME_INVALID: "its certificate is valid for other names only: use one of these in the URL",
  ERR_SSL_WRONG_VERSION_NUMBER: PLAIN,
  ERR_SSL_PACKET_LENGTH_TOO_LONG: PLAIN,
  ERR_SSL_HTTP_REQUEST: PLAIN,
};

/** Returns a sentence for the code of a failed TLS handshake, and undefined for any other failure. */
export function tlsTrouble(error: unknown): string | undefined {
  const cause = error instanceof Error ? (error.cause ?? error) : error;
  const code = (cause as { code?: unknown } | undefined)?.code;
  if (typeof code !== "string" || !Object.hasOwn(troubles, code)) return undefined;
  const names = code === "ERR_TLS_CERT_ALTNAME_INVALID" ? / altnames: (.*)$/s.exec((cause as Error).message)?.[1] : undefined;
  return names === undefined ? troubles[code] : `${troubles[code]} (${names.replaceAll("DNS:", "").slice(0, 300)})`;
}
