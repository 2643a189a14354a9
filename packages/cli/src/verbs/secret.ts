// The verbs for secrets: set, list and delete them, and show the authority for hosts with rules.
import { outputOption, pairs, type Verb } from "./verb.ts";

export function addSecretVerbs(program: Verb): void {
  const secret = program.verb("secret", "keep values out of sandboxes, and insert them into their requests");
  secret
    .clientVerb("set", "store a secret, or replace its value, which is read from stdin")
    .argument("<name>", "its name, in lower case")
    .option("-m, --metadata <key=value>", "a note kept with it; replaces the earlier ones (repeat for more)", pairs)
    .addOption(outputOption())
    .usage("[options] <name>")
    .addHelpText(
      "after",
      `
A rule of a sandbox inserts it into the headers of requests to a host; the sandbox never has the value.

Examples:
  printf %s "$OPENAI_API_KEY" | svc secret set openai
  svc start base -d --rule 'api.openai.com Authorization: Bearer \${e2b.secrets.openai}'`,
    )
    .run(async (name: string, options: never) => (await import("../secret/secret.ts")).setSecret(name, options));
  secret
    .clientVerb("list", "list the secrets, without their values")
    .alias("ls")
    .option("-q, --quiet", "names only")
    .addOption(outputOption())
    .addHelpText("after", "\nExamples:\n  svc secret list\n  svc secret list --output json")
    .run(async (options: never) => (await import("../secret/secret.ts")).listSecrets(options));
  secret
    .clientVerb("delete", "delete secrets; requests whose rules name them fail from then on")
    .alias("rm")
    .argument("<secrets...>", "names or ids")
    .usage("[options] <secrets...>")
    .addHelpText("after", "\nExamples:\n  svc secret delete openai")
    .run(async (names: string[], options: never) => (await import("../secret/secret.ts")).deleteSecrets(names, options));
  secret
    .clientVerb("ca", "print the certificate of the authority that sandboxes trust for hosts with rules")
    .addOption(outputOption())
    .addHelpText("after", "\nExamples:\n  svc secret ca > egress-ca.pem")
    .run(async (options: never) => (await import("../secret/secret.ts")).showAuthority(options));
}
