// The certificate that this home's running node serves: when it ends, and whether newer files are refused.
import { type Check, failed, passed } from "./check.ts";
import { metricsOf } from "./clock.ts";

const EXPIRY = /^svc_tls_certificate_expiry_seconds (\S+)$/m;
const REFUSED = /^svc_tls_certificate_refused 1$/m;
const DAY_SECONDS = 86_400;
const SOON_DAYS = 7;

/** Returns no check if no node of this home serves TLS. */
export async function tlsChecks(home: string): Promise<Check[]> {
  const text = await metricsOf(home).catch(() => "");
  const expiry = EXPIRY.exec(text)?.[1];
  if (expiry === undefined) return [];
  const days = Math.floor((Number(expiry) - Date.now() / 1000) / DAY_SECONDS);
  const until = new Date(Number(expiry) * 1000).toISOString().slice(0, 10);
  if (REFUSED.test(text))
    return [
      failed(
        "certificate",
        `the files have changed and cannot be served; the earlier certificate is valid until ${until}`,
        "clients are refused once that has ended",
        "put a certificate and its key there that match; the node's log says what is wrong",
      ),
    ];
  if (days < SOON_DAYS)
    return [
      failed(
        "certificate",
        days < 0 ? `expired on ${until}` : `expires in ${days} days`,
        "clients refuse an expired certificate",
        "replace tls.cert_file and tls.key_file; no restart is needed",
      ),
    ];
  return [passed("certificate", `valid until ${until}`)];
}
