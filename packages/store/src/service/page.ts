// The REST service's home page for browsers.
import { type ApiRow, homePage, ownLinks } from "@svc/kit/home-page.ts";
import { HANDSHAKE_VERSION } from "../rpc/version.ts";

export function servicePage(api: readonly ApiRow[]): string {
  return homePage({
    title: "svc store service",
    version: HANDSHAKE_VERSION,
    about: "Offers this machine's memory to the cache store, and puts and gets over HTTP for programs without a client.",
    access: "Calls need no key unless store_service.access_file names one; then they need the header Authorization: Bearer TOKEN.",
    next: [
      ["./svc store segments", "shows who holds memory, and how full it is"],
      ['curl -X PUT -d \'{"key":"a","value":"b"}\' URL/api/put', "stores a value"],
      ["curl URL/api/get/a", "reads it"],
    ],
    api,
    links: ownLinks,
    guides: ["docs/store.md", "docs/store-client.md"],
  });
}
