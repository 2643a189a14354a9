// Puts the deployment's authority for egress into the trust stores of a sandbox, so that its programs accept hosts with rules.
import { envelope, messagesOf } from "@svc/contract/connect-stream.ts";
import { processEventOf, shellExitCode } from "@svc/contract/process-event.ts";
import type { RuntimeHandle } from "../runtime/runtime.ts";
import { requestAgent } from "./request.ts";

/** The certificate in PEM, and the name under which OpenSSL looks it up. */
export type TrustedAuthority = { readonly certificate: string; readonly nameHash: string };

const CERTIFICATE = "/usr/local/share/ca-certificates/svc-egress.crt";
const BUNDLE = "/etc/ssl/certs/ca-certificates.crt";
/** Java's own store is changed by Java's own tool, which takes a while to start. */
const INSTALL_MS = 60_000;
const MAX_OUTPUT_BYTES = 64 * 1024;
const MAX_TEXT_CHARS = 500;

/** Programs that look elsewhere than in the system's store find it by these variables. */
export const trustVariables: Readonly<Record<string, string>> = {
  SSL_CERT_FILE: BUNDLE,
  REQUESTS_CA_BUNDLE: BUNDLE,
  CURL_CA_BUNDLE: BUNDLE,
  PIP_CERT: BUNDLE,
  AWS_CA_BUNDLE: BUNDLE,
  GIT_SSL_CAINFO: BUNDLE,
  GRPC_DEFAULT_SSL_ROOTS_FILE_PATH: BUNDLE,
  NODE_EXTRA_CA_CERTS: CERTIFICATE,
  DENO_CERT: CERTIFICATE,
};

/**
 * Changes nothing where the same certificate is already there. The bundle of another distribution is copied to the path that the variables name; a
 * certificate of an earlier authority is taken out of the bundles.
 */
const script = `
set -e
[ "$(cat ${CERTIFICATE} 2>/dev/null)" = "$SVC_EGRESS_CA" ] && grep -q '^# svc egress begin' ${BUNDLE} 2>/dev/null && exit 0
mkdir -p /usr/local/share/ca-certificates /etc/ssl/certs
printf '%s\\n' "$SVC_EGRESS_CA" > ${CERTIFICATE}
chmod 0644 ${CERTIFICATE}
ln -sf ${CERTIFICATE} /etc/ssl/certs/$SVC_EGRESS_HASH.0
if [ ! -e ${BUNDLE} ]; then
  for other in /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/ca-bundle.pem /etc/ssl/cert.pem; do
    if [ -e $other ]; then cat $other > ${BUNDLE}; break; fi
  done
fi
for bundle in ${BUNDLE} /etc/pki/tls/certs/ca-bundle.crt /etc/ssl/ca-bundle.pem /etc/ssl/cert.pem; do
  [ -e $bundle ] || [ $bundle = ${BUNDLE} ] || continue
  touch $bundle
  { sed '/^# svc egress begin/,/^# svc egress end/d' $bundle; printf '# svc egress begin\\n%s\\n# svc egress end\\n' "$SVC_EGRESS_CA"; } > $bundle.svc
  cat $bundle.svc > $bundle
  rm -f $bundle.svc
done
if command -v keytool > /dev/null 2>&1; then
  keytool -delete -cacerts -storepass changeit -alias svc-egress > /dev/null 2>&1 || true
  keytool -importcert -cacerts -storepass changeit -noprompt -alias svc-egress -file ${CERTIFICATE} > /dev/null 2>&1 || true
fi
`;

/** @throws with what the sandbox answered, if the certificate could not be installed. */
export async function installTrust(handle: RuntimeHandle, accessToken: string | undefined, { certificate, nameHash }: TrustedAuthority): Promise<void> {
  const env = { SVC_EGRESS_CA: certificate.trimEnd(), SVC_EGRESS_HASH: nameHash };
  const body = envelope({ process: { cmd: "/bin/sh", args: ["-c", script], envs: env, cwd: "/" }, stdin: false });
  const headers = {
    "content-type": "application/connect+json",
    "connect-protocol-version": "1",
    "connect-timeout-ms": String(INSTALL_MS),
    authorization: `Basic ${Buffer.from("root:").toString("base64")}`,
    ...(accessToken === undefined ? {} : { "x-access-token": accessToken }),
  };
  const path = "/process.Process/Start";
  const answer = await requestAgent(handle, { method: "POST", path, headers, body, boundMs: INSTALL_MS, maxBytes: MAX_OUTPUT_BYTES });
  if (answer.code !== 200) throw new Error(`envd answered HTTP ${answer.code} ${answer.body.toString("utf8").slice(0, MAX_TEXT_CHARS)}`);
  let output = "";
  let code: number | undefined;
  async function* once() {
    yield answer.body;
  }
  for await (const message of messagesOf(once(), path.slice(1))) {
    const event = processEventOf(message);
    if (event?.type === "stderr") output += event.data.toString("utf8");
    if (event?.type === "end") code = shellExitCode(event);
  }
  if (code !== 0) throw new Error(`its script ended with ${code ?? "no exit code"}: ${output.slice(0, MAX_TEXT_CHARS)}`);
}
