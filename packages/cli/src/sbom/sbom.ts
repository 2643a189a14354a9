// `svc sbom`: the software bill of materials of this installation, in CycloneDX 1.6.
import { writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { Enums, Models, Serialize, Spec } from "@cyclonedx/cyclonedx-library";
import { PackageURL } from "packageurl-js";
import { version } from "../shell/version.ts";
import { goParts, nodePart, npmParts, type Part, systemParts } from "./components.ts";

type Options = { readonly output?: string; readonly system: boolean };

export function printSbom({ output, system }: Options): Promise<number> {
  const root = fileURLToPath(new URL("../../../../", import.meta.url));
  const go = goParts([process.env["SVC_RUNSC"], process.env["SVC_ENVD"]]);
  const text = bom([nodePart(), ...npmParts(root), ...go, ...(system ? systemParts() : [])]);
  if (output === undefined) process.stdout.write(text);
  else writeFileSync(output, text);
  return Promise.resolve(0);
}

/** Returns the document; a package that several parts bring is listed once. */
export function bom(parts: readonly Part[]): string {
  const document = new Models.Bom({ serialNumber: `urn:uuid:${crypto.randomUUID()}` });
  document.metadata.timestamp = new Date();
  document.metadata.component = new Models.Component(Enums.ComponentType.Application, "svc", { version: version(), bomRef: `svc@${version()}` });
  const components = new Map(parts.map((part) => [purlOf(part), part]));
  for (const [purl, part] of [...components].sort(([a], [b]) => (a < b ? -1 : 1))) document.components.add(componentOf(purl, part));
  const serializer = new Serialize.JsonSerializer(new Serialize.JSON.Normalize.Factory(Spec.Spec1dot6));
  return `${serializer.serialize(document, { space: 2, sortLists: true })}\n`;
}

function purlOf({ kind, namespace, name, version: of, qualifiers }: Part): string {
  return new PackageURL(kind, namespace ?? null, name, of, qualifiers ?? null, null).toString();
}

function componentOf(purl: string, { type, namespace, name, version: of, license, sha512 }: Part): Models.Component {
  const kind = type === "library" ? Enums.ComponentType.Library : Enums.ComponentType.Platform;
  const component = new Models.Component(kind, name, { ...(namespace === undefined ? {} : { group: namespace }), version: of, purl, bomRef: purl });
  // The lock file's licenses are SPDX expressions or, in a few packages, names.
  if (license !== undefined) component.licenses.add(new Models.NamedLicense(license));
  if (sha512 !== undefined) component.hashes.set(Enums.HashAlgorithm["SHA-512"], sha512);
  return component;
}
