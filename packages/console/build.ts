// Builds the console's page into a folder: one page, its scripts and style by hash, each also compressed. Set-up runs it.
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { basename, join } from "node:path";
import { gzipSync } from "node:zlib";
import { build } from "esbuild";

const [folder] = process.argv.slice(2);
if (folder === undefined) throw new Error("expected the folder to build into");
const source = join(import.meta.dirname, "src");

const { metafile } = await build({
  entryPoints: [join(source, "main.tsx"), join(source, "style.css")],
  outdir: folder,
  entryNames: "[name]-[hash]",
  chunkNames: "[name]-[hash]",
  bundle: true,
  format: "esm",
  splitting: true,
  minify: true,
  target: "es2022",
  jsx: "automatic",
  jsxImportSource: "preact",
  metafile: true,
  legalComments: "none",
  logLevel: "warning",
});

const outputs = Object.entries(metafile.outputs);
const built = (entry: string) => basename(outputs.find(([, { entryPoint }]) => entryPoint?.endsWith(entry) === true)?.[0] ?? "");
const page = readFileSync(join(source, "index.html"), "utf8").replace("SCRIPT", built("main.tsx")).replace("STYLE", built("style.css"));
mkdirSync(folder, { recursive: true });
writeFileSync(join(folder, "index.html"), page);
for (const name of outputs.map(([path]) => basename(path))) writeFileSync(join(folder, `${name}.gz`), gzipSync(readFileSync(join(folder, name)), { level: 9 }));
