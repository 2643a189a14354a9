// The table of docs/sdks.md: releases of one language that need and can do the same share a row.
import { type Said, type SdkStep, sdkSteps } from "./sdk-drive.ts";
import type { Release } from "./sdk-releases.ts";

const languages = { python: "Python", javascript: "JavaScript" };
const reaches = { url: "`E2B_API_URL`, `E2B_SANDBOX_URL`", proxy: "the same; `E2B_SANDBOX_URL` ends in `/proxy`", domain: "`E2B_DOMAIN`, TLS" };
const keys = { any: "any", hexadecimal: "`e2b_` and hexadecimal digits", switchable: "the same, or any with `E2B_VALIDATE_API_KEY=false`" };
/** Steps that every release can do are left out of the table. */
const always: ReadonlySet<SdkStep> = new Set(["create", "commands", "files", "list", "is_running", "connect", "kill"]);

export function shownRows(done: ReadonlyMap<Release, Said>): string {
  const rows: { first: string; last: string; language: string; rest: string }[] = [];
  for (const [{ language, version, reach, key }, said] of done) {
    const rest = `${reaches[reach]} | ${keys[key]} | ${wordsOf(said)}`;
    const minor = version.split(".").slice(0, 2).join(".");
    const last = rows.at(-1);
    if (last?.language === language && last.rest === rest) last.last = minor;
    else rows.push({ first: minor, last: minor, language, rest });
  }
  const head = "| SDK | releases | reached by | key | beyond create, list, connect, commands, files and kill |\n|---|---|---|---|---|\n";
  return `${head}${rows.map(({ first, last, language, rest }) => `| ${languages[language as keyof typeof languages]} | ${first === last ? first : `${first} to ${last}`} | ${rest} |\n`).join("")}`;
}

function wordsOf(said: Said): string {
  const able = sdkSteps.filter((step) => !always.has(step) && said[step] === "yes");
  const failed = sdkSteps.filter((step) => said[step] !== "yes" && said[step] !== "absent");
  return [...able, ...failed.map((step) => `**not ${step}**`)].join(", ") || "-";
}
