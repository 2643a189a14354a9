// The metadata server's home page for browsers.
import { readFileSync } from "node:fs";
import { LEASE_HEADER } from "@svc/contract/metadata.ts";
import { homePage, ownLinks } from "@svc/kit/home-page.ts";

export function metadataPage(path: string): Buffer {
  const { version } = JSON.parse(readFileSync(new URL("../../package.json", import.meta.url), "utf8")) as { version: string };
  return Buffer.from(
    homePage({
      title: "svc metadata",
      version,
      about: `Where transfer engines find each other: each publishes under its name what it serves and where, by PUT, GET and DELETE of ${path}?key=KEY. The metadata connection string of an engine is this URL with ${path}.`,
      access: "It asks for no key: who reaches it can read and write every record.",
      next: [
        [`curl 'URL${path}?prefix='`, "lists the records"],
        ["./svc transfer serve", "runs an engine that publishes itself here"],
        ["./svc segment list", "lists the segments of engines"],
      ],
      api: [
        [`GET ${path}?key=KEY`, "The record of that key"],
        [`GET ${path}?prefix=PREFIX`, "All records whose keys start so, as one JSON object"],
        [`PUT ${path}?key=KEY`, `Keeps the body as that key's record, for as long as the header ${LEASE_HEADER} says where there is one`],
        [`DELETE ${path}?key=KEY`, "Deletes that record"],
        ["GET /health", "200 while it serves"],
        ["GET /metrics", "Metrics for Prometheus"],
      ],
      links: ownLinks,
      guides: ["docs/transfer-engine.md"],
    }),
  );
}
