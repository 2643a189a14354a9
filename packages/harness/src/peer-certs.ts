// The certificates of a test's deployment, made by the authority that `svc certs` uses.
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DeploymentAuthority } from "@svc/kit/peers/authority.ts";
import { type Role, roleName } from "@svc/kit/peers/roles.ts";

const DAYS = 30;

export type PeerCerts = Disposable & {
  /** Returns the directory of a new certificate of this role. */
  issue(role: Role, name?: string, hosts?: readonly string[]): string;
  directoryOf(name: string): string;
  /** Replaces what is in the directory. */
  reissue(directory: string): void;
  /** Replaces the authority; certificates stay until they are issued again. */
  rotate(): void;
  dropOld(): void;
  /** Returns the options of TLS for a client with this directory's certificate. */
  files(directory: string): { readonly cert: string; readonly key: string; readonly ca: string };
};

export function makePeerCerts(): PeerCerts {
  const root = mkdtempSync(join(tmpdir(), "svc-peers-"));
  let authority = DeploymentAuthority.init(join(root, "authority"), Date.now());
  return {
    issue(role, name = role, hosts = []) {
      const directory = join(root, name);
      authority.issue(directory, name, [roleName(role), ...hosts], DAYS, Date.now());
      return directory;
    },
    directoryOf: (name) => join(root, name),
    reissue: (directory) => void authority.reissue(directory, Date.now()),
    rotate() {
      authority = authority.rotate(Date.now());
    },
    dropOld() {
      authority = authority.dropOld();
    },
    files(directory) {
      const [cert = "", key = "", ca = ""] = ["tls.crt", "tls.key", "ca.crt"].map((name) => readFileSync(join(directory, name), "utf8"));
      return { cert, key, ca };
    },
    [Symbol.dispose]: () => rmSync(root, { recursive: true, force: true }),
  };
}
