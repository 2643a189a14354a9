// The master's home page for browsers.
import { type ApiRow, homePage, ownLinks } from "@svc/kit/home-page.ts";
import { HANDSHAKE_VERSION } from "../rpc/version.ts";

export function masterPage(api: readonly ApiRow[]): string {
  return homePage({
    title: "svc store master",
    version: HANDSHAKE_VERSION,
    about:
      "The cache store's master: which machine holds which object, and until when. Clients put and get through its RPC port; this port answers gateways, people and Prometheus.",
    access: "Calls need no key unless store.access_file names one; then they need the header Authorization: Bearer TOKEN.",
    next: [
      ["./svc store top", "shows what the master does, second by second"],
      ["./svc store put KEY FILE", "stores a file under a key"],
      ["./svc store ls", "lists the keys"],
      ["./svc store service", "offers this machine's memory to the store"],
    ],
    api,
    links: [["/console", "Console"], ["/metrics/summary", "Summary"], ["/get_segments_detail", "Segments"], ...ownLinks],
    guides: ["docs/store.md", "docs/store-reference.md", "docs/store-operations.md", "docs/store-admin.md"],
  });
}
