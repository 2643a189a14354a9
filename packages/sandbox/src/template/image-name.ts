// The name of an OCI image: host, path, tag or digest; a name without a host belongs to the registry of the settings.
import { fail } from "@svc/contract/failures.ts";
import type { TemplateSettings } from "./settings.ts";

export type ImageName = {
  readonly host: string;
  /** As the transport wants it: host/path:tag or host/path@sha256:… */
  readonly full: string;
  readonly insecure: boolean;
};

const namePattern = /^[A-Za-z0-9.-]+(:\d{1,5})?(\/[a-z0-9]+([._-]+[a-z0-9]+)*)+(:[\w][\w.-]{0,127})?(@sha256:[0-9a-f]{64})?$/;

/** @throws INVALID_REQUEST with what to write or to set. */
export function imageName(text: string, { registry, insecure_registries }: Pick<TemplateSettings, "registry" | "insecure_registries">): ImageName {
  const [first = "", ...rest] = text.split("/");
  const hasHost = rest.length > 0 && (first.includes(".") || first.includes(":") || first === "localhost");
  if (!hasHost && registry === "") {
    fail(
      "INVALID_REQUEST",
      `fromImage: '${text}' names no registry, and template.registry sets none; write HOST/${text}, set template.registry, or use fromTemplate`,
    );
  }
  const full = hasHost ? text : `${registry}/${text}`;
  if (!namePattern.test(full)) fail("INVALID_REQUEST", `fromImage: '${text}' is no image's name; asked for [HOST[:PORT]/]PATH[:TAG][@sha256:DIGEST]`);
  const host = full.split("/")[0] ?? "";
  const bare = full.includes("@") || /:[^/]*$/.test(full.slice(host.length)) ? full : `${full}:latest`;
  // The transport takes a tag or a digest, and the digest says more.
  const named = bare.includes("@") ? bare.replace(/:[^/:@]+@/, "@") : bare;
  return { host, full: named, insecure: insecure_registries.includes(host) };
}
