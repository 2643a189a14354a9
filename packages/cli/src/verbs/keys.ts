// The verbs for named keys, and for tenants and their quotas.
import { roles } from "@svc/contract/keys.ts";
import { InvalidArgumentError, Option } from "commander";
import { outputOption, several, type Verb } from "./verb.ts";

export function addKeyVerbs(program: Verb): void {
  const keys = program.verb("keys", "give tenants keys of their own, beside the deployment's");
  keys
    .clientVerb("create", "create a named key, and print it: it is shown only now")
    .argument("<name>", "what people call it")
    .option("--tenant <tenant>", "the tenant that it belongs to (default: that of the key that asks)")
    .addOption(new Option("--role <role>", "what it may do (default: member)").choices([...roles]))
    .option("--expires <time>", "how long it is valid: 90d, 12h, 30m or 45s (default: until it is revoked)", span)
    .option("--from <address>", "an address or range from which alone it is accepted (repeat for more)", several)
    .addOption(outputOption())
    .usage("[options] <name>")
    .addHelpText(
      "after",
      `
A key sees and changes what belongs to its tenant, and nothing else. A viewer reads, a member also makes and ends sandboxes, an admin also
manages the keys of the tenant. The key goes to stdout, everything else to stderr.

Examples:
  SDK_API_KEY=$(svc keys create ci --tenant acme) svc start base -d
  svc keys create dashboard --tenant acme --role viewer --expires 90d --from 10.0.0.0/8`,
    )
    .run(async (name: string, options: never) => (await import("../keys/keys.ts")).createKey(name, options));
  keys
    .clientVerb("list", "list the named keys, without the keys themselves")
    .alias("ls")
    .option("-q, --quiet", "ids only")
    .option("-a, --all", "revoked ones too, which are remembered for 30 days")
    .addOption(outputOption())
    .addHelpText("after", "\nExamples:\n  svc keys list\n  svc keys list --output json | jq '.[] | select(.tenant == \"acme\")'")
    .run(async (options: never) => (await import("../keys/keys.ts")).listKeys(options));
  keys
    .clientVerb("show", "show one named key")
    .argument("<key>", "its id, or its name if only one has it")
    .addOption(outputOption())
    .usage("[options] <key>")
    .addHelpText("after", "\nExamples:\n  svc keys show ci")
    .run(async (reference: string, options: never) => (await import("../keys/keys.ts")).showKey(reference, options));
  keys
    .clientVerb("rotate", "give a key a new secret, and print it")
    .argument("<key>", "its id, or its name if only one has it")
    .option("--overlap <time>", "how long the secret before stays valid: 10m, 1h (default: it ends now)", span)
    .addOption(outputOption())
    .usage("[options] <key>")
    .addHelpText("after", "\nExamples:\n  svc keys rotate ci --overlap 10m")
    .run(async (reference: string, options: never) => (await import("../keys/keys.ts")).rotateKey(reference, options));
  keys
    .clientVerb("revoke", "end keys for good; their open streams end at once")
    .alias("rm")
    .argument("<keys...>", "ids, or names if only one key has them")
    .usage("[options] <keys...>")
    .addHelpText("after", "\nExamples:\n  svc keys revoke ci")
    .run(async (references: string[], options: never) => (await import("../keys/keys.ts")).revokeKeys(references, options));
}

export function addTenantVerbs(program: Verb): void {
  const tenants = program.verb("tenants", "see what tenants use, and set their quotas");
  tenants
    .clientVerb("list", "list the tenants that have keys or quotas, as USED/LIMIT")
    .alias("ls")
    .addOption(outputOption())
    .addHelpText("after", "\nExamples:\n  svc tenants list")
    .run(async (options: never) => (await import("../keys/tenants.ts")).listTenants(options));
  tenants
    .clientVerb("show", "show one tenant; a named key shows its own")
    .argument("<tenant>", "its name")
    .addOption(outputOption())
    .usage("[options] <tenant>")
    .addHelpText("after", "\nExamples:\n  svc tenants show acme")
    .run(async (tenant: string, options: never) => (await import("../keys/tenants.ts")).showTenant(tenant, options));
  tenants
    .clientVerb("set", "set quotas of a tenant; those that are not given stay")
    .argument("<tenant>", "its name")
    .option("--sandboxes <count>", "running sandboxes; none: no limit", limit)
    .option("--processors <count>", "processors of running sandboxes", limit)
    .option("--memory <MB>", "memory of running sandboxes", limit)
    .option("--disk <MB>", "disk of sandboxes, running and paused", limit)
    .option("--volumes <count>", "volumes; none: no limit", limit)
    .option("--creates <count>", "creates a minute", limit)
    .addOption(outputOption())
    .usage("[options] <tenant>")
    .addHelpText("after", "\nExamples:\n  svc tenants set acme --sandboxes 10 --memory 8192\n  svc tenants set acme --memory none")
    .run(async (tenant: string, options: never) => (await import("../keys/tenants.ts")).setTenant(tenant, options));
}

/** Parses a limit; `none` removes it. */
function limit(text: string): number | "none" {
  if (text === "none") return "none";
  if (!/^\d{1,9}(\.\d{1,3})?$/.test(text)) throw new InvalidArgumentError(`expected a number, or none for no limit, got "${text}"`);
  return Number(text);
}

const unitSeconds: Readonly<Record<string, number>> = { s: 1, m: 60, h: 3600, d: 86_400 };

/** Parses a span of time such as 10m into seconds. */
function span(text: string): number {
  const [, digits, unit = ""] = /^(\d{1,6})([smhd])$/.exec(text) ?? [];
  if (digits === undefined) throw new InvalidArgumentError(`expected a time such as 45s, 10m, 12h or 90d, got "${text}"`);
  return Number(digits) * (unitSeconds[unit] ?? 1);
}
