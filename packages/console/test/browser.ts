// A real Chromium for the console's tests: pages that are signed in, and every error that a page reports.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { type Browser, type BrowserContext, chromium, type Page } from "playwright-core";
import { openOwnNetwork } from "./own-network.ts";

export const CHROMIUM = "/usr/bin/chromium-headless-shell";
/** At least ten times the time that a view needs on a busy machine. */
const WAIT_MS = 60_000;

export type Server = { readonly url: string; readonly apiKey: string };
export type TestBrowser = {
  readonly browser: Browser;
  /** Opens a context with its own cookies and storage. */
  context(options?: Parameters<Browser["newContext"]>[0]): Promise<BrowserContext>;
  /** Opens the console of a server in a new context, signed in by the form. */
  signedIn(server: Server, path?: string): Promise<Page>;
  /** Errors of scripts, and violations of the page's content security policy. */
  readonly errors: string[];
  [Symbol.asyncDispose](): Promise<void>;
};

export async function openBrowser(): Promise<TestBrowser> {
  // Chromium's own sandbox does not run as root; all pages come from us or from a test.
  const network = openOwnNetwork(CHROMIUM);
  const browser = await chromium.launch({ executablePath: network.program, args: ["--no-sandbox", ...network.args] });
  const errors: string[] = [];
  const context: TestBrowser["context"] = async (options) => {
    const made = await browser.newContext({ viewport: { width: 1280, height: 800 }, ...options });
    made.setDefaultTimeout(WAIT_MS);
    made.on("page", (page) => {
      page.on("pageerror", (error) => errors.push(error.message));
      page.on("console", (message) => {
        if (/Content Security Policy/.test(message.text())) errors.push(message.text());
      });
    });
    return made;
  };
  return {
    browser,
    context,
    errors,
    async signedIn(server, path = "") {
      const page = await (await context()).newPage();
      await page.goto(`${server.url}/console${path}`);
      await signIn(page, server.apiKey);
      return page;
    },
    async [Symbol.asyncDispose]() {
      await browser.close();
      network[Symbol.dispose]();
    },
  };
}

export async function signIn(page: Page, apiKey: string): Promise<void> {
  await page.getByLabel("API key").fill(apiKey);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.getByText("live", { exact: true }).waitFor();
}

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
type Violation = { readonly id: string; readonly nodes: readonly { readonly html: string; readonly failureSummary: string }[] };

/** Checks the present page against WCAG A and AA, and its colors again in the dark theme. */
export async function checkAccess(page: Page, what: string): Promise<void> {
  await checkRules(page, what, ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa"]);
  await page.emulateMedia({ colorScheme: "dark" });
  await checkRules(page, `${what}, dark`, ["color-contrast"]);
  await page.emulateMedia({ colorScheme: "light" });
}

async function checkRules(page: Page, what: string, runOnly: readonly string[]): Promise<void> {
  // The page's own policy refuses scripts from elsewhere, so the checker comes through the debugger.
  const found = (await page.evaluate(`${axe}; axe.run(document, { runOnly: ${JSON.stringify(runOnly)} }).then(({ violations }) => violations)`)) as Violation[];
  assert.deepEqual(
    found.map(({ id, nodes }) => `${id}: ${nodes[0]?.html.slice(0, 200)} ${nodes[0]?.failureSummary}`),
    [],
    what,
  );
}
