// The name of an OCI image: host, path, tag or digest; a name without a host belongs to the registry of the settings, else to docker.io.
import { fail } from "@svc/contract/failures.ts";
import type { TemplateSettings } from "./settings.ts";

export type ImageName = {
  readonly host: string;
  /** As the transport wants it: host/path:tag or host/path@sha256:… */
  readonly full: string;
  readonly insecure: boolean;
};

const namePattern = /^[A-Za-z0-9.-]+(:\d{1,5})?(\/[a-z0-9]+([._-]+[a-z0-9]+)*)+(:[\w][\w.-]{0,127})?(@sha256:[0-9a-f]{64})?$/;

/** Where a name without a host belongs when no registry is set; there a name of one word is one of its own library. */
const DEFAULT_REGISTRY = "docker.io";

/** @throws INVALID_REQUEST with what was expected. */
export function imageName(text: string, { registry, insecure_registries }: Pick<TemplateSettings, "registry" | "insecure_registries">): ImageName {
  const [first = "", ...rest] = text.split("/");
  const hasHost = rest.length > 0 && (first.includes(".") || first.includes(":") || first === "localhost");
  const host = hasHost ? first : registry || DEFAULT_REGISTRY;
  const path = hasHost ? rest.join("/") : text;
  const full = `${host}/${host === DEFAULT_REGISTRY && !path.includes("/") ? "library/" : ""}${path}`;
  if (!namePattern.test(full)) fail("INVALID_REQUEST", `fromImage: expected [HOST[:PORT]/]PATH[:TAG][@sha256:DIGEST], got '${text}'`);
  const bare = full.includes("@") || /:[^/]*$/.test(full.slice(host.length)) ? full : `${full}:latest`;
  // The transport takes a tag or a digest, and the digest says more.
  const named = bare.includes("@") ? bare.replace(/:[^/:@]+@/, "@") : bare;
  return { host, full: named, insecure: insecure_registries.includes(host) };
}
