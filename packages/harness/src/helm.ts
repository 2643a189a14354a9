// Renders the chart of deploy/helm with Helm's released engine, which the tests build from its module.
import { execFile } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { type Manifest, parsed, TREE } from "./deploy-files.ts";

export const CHART = join(TREE, "deploy/helm");

/** `values` are merged over those of the chart. @throws with Helm's message, for example for a value that the schema refuses. */
export async function renderChart(program: string, namespace: string, values: object = {}): Promise<Manifest[]> {
  const folder = mkdtempSync(join(tmpdir(), "svc-helm-"));
  try {
    // JSON is also valid YAML.
    const [given, out] = [join(folder, "values.yaml"), join(folder, "chart.yaml")];
    writeFileSync(given, JSON.stringify(values));
    const { stdout } = await promisify(execFile)(program, [CHART, namespace, given], { maxBuffer: 2 ** 24 });
    writeFileSync(out, stdout);
    return parsed<Manifest>([out]).map((manifest) => ({ ...manifest, file: "deploy/helm" }));
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
