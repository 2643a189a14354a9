// Parses the name of an OCI image: host, path, tag or digest; without a host the configured registry applies, else docker.io.
import { fail } from "@svc/contract/failures.ts";
import type { TemplateSettings } from "./settings.ts";

export type ImageName = {
  readonly host: string;
  /** The name in skopeo's form: host/path:tag or host/path@sha256:… */
  readonly full: string;
  readonly insecure: boolean;
};

const namePattern = /^[A-Za-z0-9.-]+(:\d{1,5})?(\/[a-z0-9]+([._-]+[a-z0-9]+)*)+(:[\w][\w.-]{0,127})?(@sha256:[0-9a-f]{64})?$/;

/** The registry for names without a host if none is configured; a name of one word then belongs to its `library`. */
const DEFAULT_REGISTRY = "docker.io";

/** @throws INVALID_REQUEST that says what was expected. */
export function imageName(text: string, { registry, insecure_registries }: Pick<TemplateSettings, "registry" | "insecure_registries">): ImageName {
  const [first = "", ...rest] = text.split("/");
  const hasHost = rest.length > 0 && (first.includes(".") || first.includes(":") || first === "localhost");
  const host = hasHost ? first : registry || DEFAULT_REGISTRY;
  const path = hasHost ? rest.join("/") : text;
  const full = `${host}/${host === DEFAULT_REGISTRY && !path.includes("/") ? "library/" : ""}${path}`;
  if (!namePattern.test(full)) fail("INVALID_REQUEST", `fromImage: expected [HOST[:PORT]/]PATH[:TAG][@sha256:DIGEST], got '${text}'`);
  const bare = full.includes("@") || /:[^/]*$/.test(full.slice(host.length)) ? full : `${full}:latest`;
  // skopeo accepts a tag or a digest but not both, and the digest is more precise.
  const named = bare.includes("@") ? bare.replace(/:[^/:@]+@/, "@") : bare;
  return { host, full: named, insecure: insecure_registries.includes(host) };
}
