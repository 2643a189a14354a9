// The settings of TLS, which a node and a gateway share.
import { fail } from "@svc/contract/failures.ts";
import { z } from "zod";

export const tlsSettings = z.object({
  mode: z.enum(["files", "self-signed", "off"]),
  cert_file: z.string(),
  key_file: z.string(),
});

export type TlsSettings = z.output<typeof tlsSettings>;

export const tlsFlagNames = { tls: "tls.mode", "tls-cert": "tls.cert_file", "tls-key": "tls.key_file" } as const;

/** The chosen source of the certificate; undefined if the server speaks plain HTTP. */
export type TlsChoice = { readonly kind: "files"; readonly certFile: string; readonly keyFile: string } | { readonly kind: "self-signed" } | undefined;

/** @throws SETTING_INVALID for settings that contradict each other. */
export function tlsChoice({ mode, cert_file: certFile, key_file: keyFile }: TlsSettings): TlsChoice {
  if (mode === "off") return undefined;
  const hasFiles = certFile !== "" || keyFile !== "";
  if (mode === "self-signed") {
    if (hasFiles) fail("SETTING_INVALID", "settings tls.mode self-signed and tls.cert_file or tls.key_file are both given: expected one of them");
    return { kind: "self-signed" };
  }
  if (!hasFiles) return undefined;
  if (certFile === "" || keyFile === "") {
    const [given, missing] =
      certFile === "" ? ["tls.key_file (--tls-key)", "tls.cert_file (--tls-cert)"] : ["tls.cert_file (--tls-cert)", "tls.key_file (--tls-key)"];
    fail("SETTING_INVALID", `setting ${given} is given without ${missing}: expected both, in PEM`);
  }
  return { kind: "files", certFile, keyFile };
}
