// Every pinned release of the E2B SDKs against one node, and the table of docs/sdks.md, which says what each needs and can do.
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { after, before, describe, test } from "node:test";
import { needs } from "../src/needs.ts";
import { startNode } from "../src/node.ts";
import { driveSdk, openTlsFront, type Said, sdkSteps } from "../src/sdk-drive.ts";
import { type Release, sdkReleases } from "../src/sdk-releases.ts";
import { shownRows } from "../src/sdk-table.ts";

/** The one form of key that every release accepts. */
const KEY = `e2b_${"0123456789abcdef".repeat(3).slice(0, 40)}`;
/** Some of them: SVC_TEST_RELEASES="python 2.1,javascript 1". */
const picked = process.env["SVC_TEST_RELEASES"];
const guide = new URL("../../../docs/sdks.md", import.meta.url);

void describe("the releases of the E2B SDKs", needs("root", "runsc", "envd", "base", "python3", "npm", "nginx", "openssl"), async () => {
  const front = await openTlsFront();
  const node = await startNode({ runtime: "gvisor", env: { SVC_API_KEY: KEY }, flags: [`--proxy.domains=${front.domain}`, "--pool.precreated=1"] });
  after(async () => {
    await node[Symbol.asyncDispose]();
    await front[Symbol.asyncDispose]();
  });
  before(() => front.frontOf(node));
  const done = new Map<Release, Said>();
  const isPicked = ({ language, version }: Release) => picked === undefined || picked.split(",").some((each) => `${language} ${version}`.startsWith(each));

  for (const release of sdkReleases.filter(isPicked)) {
    const { language, version, reach } = release;
    void test(`${language} ${version}, reached by ${reach}, does everything that it has calls for`, async () => {
      const said = await driveSdk(release, node, reach === "domain" ? front : undefined);
      done.set(release, said);
      const wrong = sdkSteps.filter((step) => said[step] !== "yes" && said[step] !== "absent").map((step) => `${step}: ${said[step] ?? "was not reached"}`);
      assert.deepEqual(wrong, []);
    });
  }

  void test("the guide's table shows what each release can do", { skip: picked === undefined ? false : "some releases were picked" }, () => {
    const text = readFileSync(guide, "utf8");
    const table = /<!-- releases -->\n([\s\S]*?)<!-- end of releases -->/;
    const rows = shownRows(done);
    // Renewed with the list of releases: run with SVC_WRITE_GUIDE=1 and look at the difference.
    if (process.env["SVC_WRITE_GUIDE"] === "1") writeFileSync(guide, text.replace(table, `<!-- releases -->\n${rows}<!-- end of releases -->`));
    else assert.equal(table.exec(text)?.[1], rows);
  });
});
