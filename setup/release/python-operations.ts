// Writes the Python client's operations and models from the OpenAPI document of the sandbox platform.
type Schema = {
  readonly type?: string | readonly string[];
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly required?: readonly string[];
  readonly items?: Schema;
  readonly enum?: readonly unknown[];
  readonly const?: unknown;
  readonly anyOf?: readonly Schema[];
  readonly additionalProperties?: Schema | boolean;
  readonly description?: string;
};
type Parameter = { readonly name: string; readonly in: string; readonly required?: boolean; readonly description?: string; readonly schema: Schema };
type Operation = {
  readonly operationId: string;
  readonly summary: string;
  readonly parameters?: readonly Parameter[];
  readonly requestBody?: { readonly content: { readonly "application/json": { readonly schema: Schema } } };
  readonly responses: Readonly<Record<string, { readonly description: string; readonly content?: Readonly<Record<string, { readonly schema: Schema }>> }>>;
};
export type Document = { readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>> };

/** Python's keywords among the names that operations use. */
const KEYWORDS = new Set(["from", "class", "global", "import", "in", "is", "pass", "with"]);
/** Operations whose answer is a stream are written by hand. */
const STREAMS = "text/event-stream";
/** Header members that only a gateway sends to its nodes. */
const isInternal = ({ in: place, description = "" }: Parameter) => place === "header" && /^From a gateway/.test(description);

const snake = (name: string): string => {
  const text = name
    .replace(/([A-Z]+)([A-Z][a-z])/g, "$1_$2")
    .replace(/([a-z\d])([A-Z])/g, "$1_$2")
    .replace(/\W/g, "_")
    .toLowerCase();
  return KEYWORDS.has(text) ? `${text}_` : text;
};
const pascal = (name: string): string => name.charAt(0).toUpperCase() + name.slice(1).replace(/\W(\w)/g, (_, letter: string) => letter.toUpperCase());
const sentence = (text: string): string => text.replaceAll("\\", "\\\\").replaceAll('"""', "'''");

class Models {
  readonly #classes: string[] = [];
  readonly #names = new Map<string, string>();

  /** The Python type of a schema; an object with members becomes a class, the same one for equal schemas. */
  typeOf(schema: Schema, name: string): string {
    if (schema.const !== undefined) return `Literal[${literal(schema.const)}]`;
    if (schema.enum !== undefined) return `Literal[${schema.enum.map(literal).join(", ")}]`;
    if (schema.anyOf !== undefined) return union(schema.anyOf.map((each, at) => this.typeOf(each, at === 0 ? name : `${name}${at + 1}`)));
    if (Array.isArray(schema.type)) return union(schema.type.map((type: string) => this.typeOf({ ...schema, type }, name)));
    if (schema.type === "array") return `list[${this.typeOf(schema.items ?? {}, `${name}Item`)}]`;
    if (schema.type === "object" && schema.properties !== undefined) return this.#classOf(schema, schema.properties, name);
    if (schema.type === "object")
      return `dict[str, ${typeof schema.additionalProperties === "object" ? this.typeOf(schema.additionalProperties, `${name}Value`) : "Any"}]`;
    return scalars[String(schema.type)] ?? "Any";
  }

  #classOf(schema: Schema, properties: Readonly<Record<string, Schema>>, name: string): string {
    const key = JSON.stringify([properties, schema.required]);
    const known = this.#names.get(key);
    if (known !== undefined) return known;
    this.#names.set(key, name);
    const members = Object.entries(properties).map(([member, shape]) => {
      const isRequired = schema.required?.includes(member) ?? false;
      const type = this.typeOf(shape, name + pascal(member));
      const alias = snake(member) === member ? "" : `alias="${member}"`;
      const field = isRequired ? (alias === "" ? "" : ` = Field(${alias})`) : ` = Field(${["default=None", alias].filter((each) => each !== "").join(", ")})`;
      return `    ${snake(member)}: ${isRequired ? type : optional(type)}${field}`;
    });
    this.#classes.push(`class ${name}(Model):\n${members.length === 0 ? "    pass" : members.join("\n")}\n`);
    return name;
  }

  get text(): string {
    return this.#classes.join("\n\n");
  }
}

const scalars: Readonly<Record<string, string>> = { string: "str", integer: "int", number: "float", boolean: "bool", null: "None" };
const literal = (value: unknown) => (typeof value === "string" ? JSON.stringify(value) : value === null ? "None" : value === true ? "True" : String(value));
const union = (types: readonly string[]) => [...new Set(types)].join(" | ");
const optional = (type: string) => (type.split(" | ").includes("None") ? type : `${type} | None`);

/** The lines of one method, and of its asynchronous twin. */
function method(path: string, verb: string, operation: Operation, models: Models): { sync: string; async: string } {
  const parameters = (operation.parameters ?? []).filter((each) => !isInternal(each));
  const body = operation.requestBody?.content["application/json"].schema;
  const [status = "200", success] = Object.entries(operation.responses).find(([code]) => code.startsWith("2")) ?? [];
  const answer = success?.content?.["application/json"]?.schema;
  const name = pascal(operation.operationId);
  const returns = answer === undefined ? "None" : models.typeOf(answer, `${name}Answer`);
  const inPath = parameters.filter((each) => each.in === "path").map((each) => `${snake(each.name)}: str`);
  const input = (member: string, schema: Schema, required: boolean) => {
    const type = inputType(schema);
    return required ? `${snake(member)}: ${type}` : `${snake(member)}: ${optional(type)} = None`;
  };
  const rest = [
    ...parameters.filter((each) => each.in !== "path").map((each) => ({ member: each.name, schema: each.schema, required: each.required ?? false })),
    ...Object.entries(body?.properties ?? {}).map(([member, schema]) => ({ member, schema, required: body?.required?.includes(member) ?? false })),
  ].sort((one, other) => Number(other.required) - Number(one.required));
  const keywords = rest.map(({ member, schema, required }) => input(member, schema, required));
  const signature = ["self", ...inPath, ...(keywords.length === 0 ? [] : ["*", ...keywords])].join(", ");
  const entries = (names: readonly string[]) => `{${names.map((each) => `"${each}": ${snake(each)}`).join(", ")}}`;
  const url = path.replace(/\{(\w+)\}/g, (_, member: string) => `{segment(${snake(member)})}`);
  const call = [
    `"${verb.toUpperCase()}"`,
    url === path ? `"${url}"` : `f"${url}"`,
    ...placed("query", parameters, "query", entries),
    ...placed("header", parameters, "headers", entries),
    ...(body === undefined ? [] : [`body=${entries(Object.keys(body.properties ?? {}))}`]),
    `answer=${returns === "None" ? "None" : returns}`,
  ].join(", ");
  const doc = `        """${sentence(operation.summary)}. HTTP ${status}; raises SvcError for ${refusals(operation)}."""`;
  const lines = (prefix: string, wait: string) => `    ${prefix}def ${snake(operation.operationId)}(${signature}) -> ${returns}:\n${doc}\n        return ${wait}self._call(${call})\n`;
  return { sync: lines("", ""), async: lines("async ", "await ") };
}

const placed = (place: string, parameters: readonly Parameter[], keyword: string, entries: (names: readonly string[]) => string) => {
  const names = parameters.filter((each) => each.in === place).map((each) => each.name);
  return names.length === 0 ? [] : [`${keyword}=${entries(names)}`];
};

/** Inputs with members of their own are plain mappings. */
function inputType(schema: Schema): string {
  if (schema.enum !== undefined) return `Literal[${schema.enum.map(literal).join(", ")}]`;
  if (schema.anyOf !== undefined) return union(schema.anyOf.map(inputType));
  if (Array.isArray(schema.type)) return union(schema.type.map((type: string) => inputType({ ...schema, type })));
  if (schema.type === "array") return `Sequence[${inputType(schema.items ?? {})}]`;
  if (schema.type === "object") return "Mapping[str, Any]";
  return scalars[String(schema.type)] ?? "Any";
}

function refusals({ responses }: Operation): string {
  const names = Object.entries(responses).flatMap(([code, { description }]) => (code.startsWith("2") ? [] : description.split(", ")));
  return [...new Set(names)].join(", ");
}

/** The module `_generated.py`. */
export function pythonOperations(document: Document): string {
  const models = new Models();
  const all = Object.entries(document.paths).flatMap(([path, verbs]) => Object.entries(verbs).map(([verb, operation]) => ({ path, verb, operation })));
  const ids = new Set(all.map(({ operation }) => operation.operationId));
  const methods = all
    // The first generation of an operation has the same meaning as the second.
    .filter(({ operation: { operationId } }) => !(operationId.endsWith("V1") && ids.has(operationId.slice(0, -2))))
    .filter(({ operation }) => !Object.values(operation.responses).some(({ content }) => content?.[STREAMS] !== undefined))
    .map(({ path, verb, operation }) => method(path, verb, operation, models));
  return `"""Operations and models of the sandbox platform. Generated from its OpenAPI document when the wheel is built; edit the contract instead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from ._http import AsyncTransport, Model, Transport, segment

${models.text}

class SandboxOperations(Transport):
    """One method for each operation of the sandbox platform."""

${methods.map((each) => each.sync).join("\n")}

class AsyncSandboxOperations(AsyncTransport):
    """The same operations for asyncio."""

${methods.map((each) => each.async).join("\n")}`;
}
