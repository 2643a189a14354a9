// COPY and ADD of a Dockerfile as steps: files of the context, of another stage or image, inline files, URLs and archives.

import { type HereDocument, type Instruction, jsonForm, takeFlags, wordsOf } from "./dockerfile-lines.ts";
import type { PlannedStep, Refuse } from "./dockerfile-step.ts";
import { literal, quoted } from "./dockerfile-words.ts";

export type CopyScope = {
  readonly escapeChar: string;
  /** Replaces variables; those of the image stay for the server. */
  readonly full: (value: string) => string;
  /** Resolves `--from`: an earlier stage, or an image. */
  readonly sourceOf: (from: string) => string;
  readonly notes: string[];
};

const archive = /\.(tar|tgz|tbz2?|txz|tar\.\w+)$/;
const knownFlags: readonly string[] = ["chown", "chmod", "link", "from", "checksum", "keep-git-dir"];

export function copies({ keyword, rest, documents }: Instruction, scope: CopyScope, refuse: Refuse): PlannedStep[] {
  const { escapeChar, full, sourceOf } = scope;
  const { flags, rest: text } = takeFlags(rest);
  const flag = (name: string) => flags.find((each) => each.name === name)?.value;
  const unknown = flags.find(({ name }) => !knownFlags.includes(name));
  if (unknown !== undefined) refuse(`--${unknown.name} is not offered`);
  const raw = jsonForm(text) ?? wordsOf(text, escapeChar);
  // Escaped dollars stay escaped here, since the server replaces the image's own variables in the text.
  const target = raw.length === 0 ? undefined : full(raw.at(-1) ?? "");
  const words = raw.slice(0, -1);
  if (target === undefined || words.length === 0) return refuse("expected a source and a destination");
  const folder = words.length > 1 && !target.endsWith("/") ? `${target}/` : target;
  const chmod = flag("chmod") ?? "";
  if (!/^([0-7]{3,4})?$/.test(chmod)) refuse(`--chmod=${chmod}: expected an octal number`);
  const mode = chmod.padStart(chmod === "" ? 0 : 4, "0");
  const named = flag("chown") === undefined ? undefined : literal(full(flag("chown") ?? ""));
  const from = flag("from");
  if (from !== undefined) {
    if (keyword === "ADD") refuse("--from: only COPY takes files of another stage");
    // Files of a stage keep their owners unless the instruction names one.
    const source = sourceOf(literal(full(from)));
    return words.map((word) => ({ type: "COPY", args: [absolute(literal(full(word))), folder, named ?? "", mode], from: source }));
  }
  return words.flatMap((word): PlannedStep[] => {
    const document = /^<<-?["']?([A-Za-z_][\w.-]*)["']?$/.exec(word)?.[1];
    const inline = documents.find(({ name }) => name === document);
    if (inline !== undefined) return [inlineFile(inline, folder, named, mode, scope)];
    const source = literal(full(word));
    if (/^git@|\.git(#|$)/.test(source) && /^[a-z+]+:\/\/|^git@/.test(source)) return [cloned(source, folder, refuse, keyword)];
    if (/^https?:\/\//.test(source)) return [fetched(source, folder, named, mode, flag("checksum"), refuse, keyword)];
    if (/^[a-z+]+:\/\//.test(source)) refuse(`'${source}': expected a path in the context, or for ADD an http or https URL`);
    if (source.split("/").includes("..")) refuse(`'${source}' lies outside the context`);
    const path = source.replace(/^\/+/, "") || ".";
    if (keyword === "ADD" && archive.test(path) && !/[*?[]/.test(path)) return unpacked(path, folder, named, mode);
    // As in the Dockerfile format, files belong to root unless --chown is given.
    return [{ type: "COPY", args: [path, folder, named ?? "root", mode] }];
  });
}

const absolute = (path: string): string =>
  `/${path
    .split("/")
    .filter((part) => part !== "" && part !== ".")
    .join("/")}`;
const nameOf = (path: string): string => path.split("/").at(-1) ?? path;

/** Names the file, or the file in the folder, that `target` means for a source; the shell of the step resolves it. */
function placed(target: string, name: string): string {
  return target.endsWith("/") || target === "." ? `"${shellText(target)}"/${quoted(name)}` : `"${shellText(target)}"`;
}

/** Text for double quotes in a shell, in which the image's variables are replaced. */
const shellText = (text: string): string => text.replace(/(?<!\\)["`]/g, "\\$&");

function finished(owner: string | undefined, mode: string, what: string, all = ""): string {
  const owned = `chown ${all}${quoted(withGroup(owner ?? "root"))} ${what}`;
  return mode === "" ? owned : `${owned} && chmod ${all}${mode} ${what}`;
}
const withGroup = (owner: string): string => (owner.includes(":") ? owner : /^\d+$/.test(owner) ? `${owner}:${owner}` : `${owner}:`);

/** Makes the missing folders of a path, which get the owner that the instruction names. */
function madeParents(owner: string | undefined, folder: string): string {
  if (owner === undefined) return `mkdir -p ${folder}`;
  return `made() { [ -d "$1" ] || { made "$(dirname "$1")" && mkdir "$1" && chown ${quoted(withGroup(owner))} "$1"; }; }; made ${folder}`;
}

function inlineFile({ name, content, expands }: HereDocument, target: string, owner: string | undefined, mode: string, scope: CopyScope): PlannedStep {
  const text = expands ? literal(inDocument(content, scope)) : content;
  const file = placed(target, name);
  const command = `f=${file}; ${madeParents(owner, '"$(dirname "$f")"')} && printf %s ${quoted(text)} > "$f" && ${finished(owner, mode === "" ? "0644" : mode, '"$f"')}`;
  return { type: "RUN", args: [command, "root"] };
}

/** Replaces variables in a here-document, where quotes are ordinary characters. */
function inDocument(content: string, { escapeChar, full }: CopyScope): string {
  const protectedText = content.replace(/["']/g, (quote) => `${escapeChar}${quote}`);
  return full(protectedText);
}

function fetched(
  url: string,
  target: string,
  owner: string | undefined,
  mode: string,
  checksum: string | undefined,
  refuse: Refuse,
  keyword: string,
): PlannedStep {
  if (keyword !== "ADD") refuse(`'${url}': only ADD fetches URLs`);
  const name = nameOf(new URL(url).pathname);
  if (name === "" && (target.endsWith("/") || target === ".")) refuse(`'${url}' names no file: expected a destination with a name`);
  if (checksum !== undefined && !/^sha256:[0-9a-f]{64}$/.test(checksum)) refuse(`--checksum=${checksum}: expected sha256: and 64 hexadecimal characters`);
  const python = `python3 -c 'import sys, urllib.request; urllib.request.urlretrieve(sys.argv[1], sys.argv[2])' ${quoted(url)} "$f"`;
  const tools = `if command -v curl >/dev/null; then curl -fsSL -o "$f" ${quoted(url)}; elif command -v wget >/dev/null; then wget -q -O "$f" ${quoted(url)}; elif command -v python3 >/dev/null; then ${python}; else echo 'ADD of a URL needs curl, wget or python3 in the image' >&2; exit 1; fi`;
  const sum = checksum === undefined ? "" : ` && echo "${checksum.slice(7)}  $f" | sha256sum -c -`;
  return {
    type: "RUN",
    args: [
      `f=${placed(target, name)}; ${madeParents(owner, '"$(dirname "$f")"')} && { ${tools}; }${sum} && ${finished(owner, mode === "" ? "0600" : mode, '"$f"')}`,
      "root",
    ],
  };
}

function cloned(url: string, target: string, refuse: Refuse, keyword: string): PlannedStep {
  if (keyword !== "ADD") refuse(`'${url}': only ADD fetches repositories`);
  const [address = "", reference = ""] = url.split("#");
  const branch = reference === "" ? "" : ` --branch ${quoted(reference.split(":")[0] ?? "")}`;
  return { type: "RUN", args: [`git clone -q --depth 1${branch} ${quoted(address)} "${shellText(target)}" && rm -rf "${shellText(target)}/.git"`, "root"] };
}

/** Copies the archive next to the destination, unpacks it there as root, and removes it in the same step. */
function unpacked(path: string, target: string, owner: string | undefined, mode: string): PlannedStep[] {
  const stage = `/tmp/.svc-add/${nameOf(path)}`;
  const command = `d="${shellText(target)}"; ${madeParents(owner, '"$d"')} && tar -xpf ${quoted(stage)} -C "$d" && rm -rf /tmp/.svc-add${owner === undefined && mode === "" ? "" : ` && ${finished(owner, mode, '"$d"', "-R ")}`}`;
  return [
    { type: "COPY", args: [path, stage, "root", ""] },
    { type: "RUN", args: [command, "root"] },
  ];
}
