// The page that a browser shows at the admin server's URL.
import { readFileSync } from "node:fs";
import { homePage, ownLinks } from "@svc/kit/home-page.ts";
import type { Route } from "./route.ts";

export function adminPage(routes: readonly Route[]): Buffer {
  const { version } = JSON.parse(readFileSync(new URL("../../package.json", import.meta.url), "utf8")) as { version: string };
  return Buffer.from(
    homePage({
      title: "svc store admin",
      version,
      about: "Copies and moves objects of the cache store between segments on request, and sees each through.",
      access: "Calls need no key unless store_admin.access_file names one; then they need the header Authorization: Bearer TOKEN.",
      next: [
        ["./svc store migrations", "lists copies and moves"],
        ["./svc store migrations copy KEY --from SEGMENT --to SEGMENT --executor STABLE-ID", "begins one, and waits for it"],
        ["./svc store clients", "lists the clients that can carry one out"],
      ],
      api: routes.map(({ method, path, does }) => [`${method} ${path}`, does] as const),
      links: ownLinks,
      guides: ["docs/store-admin.md"],
    }),
  );
}
