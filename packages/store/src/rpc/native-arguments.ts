// Generates native/src/rpc/arguments.h: the arguments of each operation that the core answers, and their readers.
//
// The header is checked in: a reader of the core sees what it decodes, and the core, its fuzzer and its sanitizers build without Node.
// A test fails while it is not current; `node packages/store/src/rpc/native-arguments.ts` writes it.
import { writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { countedOperations, firstChange, nativeOperations } from "./native-operations.ts";
import { operations } from "./operations.ts";
import type { Schema } from "./schema.ts";
import * as shapes from "./shapes.ts";

export const ARGUMENTS_FILE = fileURLToPath(new URL("../../native/src/rpc/arguments.h", import.meta.url));

const values = { i32: "i32", u32: "u32", i64: "i64", u64: "u64", u8: "u8", bool: "bool", bytes: "std::string_view", uuid: "Uuid" } as const;
/** The fewest bytes that a value takes in a body; a list cannot have more items than fit into the rest of it. */
const leastBytes = { i32: 4, u32: 4, i64: 8, u64: 8, u8: 1, bool: 1, bytes: 1, uuid: 16 } as const;
const initial = { i32: " = 0", u32: " = 0", i64: " = 0", u64: " = 0", u8: " = 0", bool: " = false", bytes: "", uuid: "" } as const;

const upper = (name: string) => `${name[0]?.toUpperCase()}${name.slice(1)}`;
const lower = (name: string) => `${name[0]?.toLowerCase()}${name.slice(1)}`;

function shapeOf(schema: Schema<unknown>) {
  if (schema.shape === undefined) throw new Error("the core reads no values of this type: give its schema a shape");
  return schema.shape;
}

/** Structures are recognized by their fields, since `named` copies their schema. */
function structName(fields: object): string {
  const found = Object.entries(shapes).find(([, each]) => typeof each === "object" && each.shape?.is === "struct" && each.shape.fields === fields);
  if (found === undefined) throw new Error(`export the structure with the fields ${Object.keys(fields).join(", ")} from shapes.ts`);
  return upper(found[0]);
}

function typeOf(schema: Schema<unknown>): string {
  const shape = shapeOf(schema);
  if (shape.is === "vector" || shape.is === "optional") return `std::${shape.is}<${typeOf(shape.item)}>`;
  return shape.is === "struct" ? structName(shape.fields) : values[shape.is];
}

function leastOf(schema: Schema<unknown>): number {
  const shape = shapeOf(schema);
  if (shape.is === "vector" || shape.is === "optional") return 1;
  return shape.is === "struct" ? Object.values(shape.fields).reduce((sum, each) => sum + leastOf(each), 0) : leastBytes[shape.is];
}

/** The longest line, as for all sources. */
const WIDTH = 150;

type Field = readonly [name: string, schema: Schema<unknown>];

/** Breaks a list into lines of at most `WIDTH` characters. */
function wrapped(items: readonly string[], indent: string): string {
  const lines = [indent.trimEnd()];
  for (const item of items) {
    const line = lines.at(-1) ?? "";
    if (line === indent.trimEnd()) lines[lines.length - 1] = `${indent}${item},`;
    else if (line.length + item.length + 2 > WIDTH) lines.push(`${indent}${item},`);
    else lines[lines.length - 1] = `${line} ${item},`;
  }
  return lines.join("\n");
}

/** `isPart`: the structure occurs within others, so a list of it needs to know its size. */
function structText(name: string, fields: readonly Field[], isPart: boolean): string {
  const declared: { type: string; names: string[] }[] = [];
  for (const [field, schema] of fields) {
    const { is } = shapeOf(schema);
    const [type, initialized] = [typeOf(schema), is === "vector" || is === "optional" || is === "struct" ? field : `${field}${initial[is]}`];
    if (declared.at(-1)?.type === type) declared.at(-1)?.names.push(initialized);
    else declared.push({ type, names: [initialized] });
  }
  const least = fields.reduce((sum, [, schema]) => sum + leastOf(schema), 0);
  const call = wrapped(
    fields.map(([field]) => field),
    "    ",
  )
    .replace(/,$/, "")
    .trimStart();
  const members = [
    ...declared.map(({ type, names }) => `${type} ${names.join(", ")};`),
    ...(isPart ? [`static constexpr std::size_t leastBytes = ${least};`] : []),
    `void read(WireReader& in) { in.readAll(${call}); }`,
  ];
  const line = `struct ${name} { ${members.join(" ")} };`;
  return line.length <= WIDTH ? line : [`struct ${name} {`, ...members.map((member) => `  ${member}`), "};"].join("\n");
}

/** Returns the structures within a type, each after those that it contains. */
function structsIn(schema: Schema<unknown>): readonly Schema<unknown>[] {
  const shape = shapeOf(schema);
  if (shape.is === "vector" || shape.is === "optional") return structsIn(shape.item);
  return shape.is === "struct" ? [...Object.values(shape.fields).flatMap(structsIn), schema] : [];
}

function argumentsOf(name: (typeof nativeOperations)[number]): readonly Field[] {
  const args: readonly Schema<unknown>[] = operations[name].arguments;
  return args.map((schema, at) => {
    if (schema.argument === undefined) throw new Error(`argument ${at + 1} of ${name} has no name: declare it with named()`);
    return [schema.argument, schema];
  });
}

export function argumentsText(): string {
  const structs = new Map<string, string>();
  const texts: string[] = [];
  const names = new Map<string, string>();
  const distinct: string[] = [];
  for (const name of nativeOperations) {
    const fields = argumentsOf(name);
    for (const schema of fields.flatMap(([, each]) => structsIn(each))) {
      const shape = shapeOf(schema);
      if (shape.is === "struct") structs.set(typeOf(schema), structText(typeOf(schema), Object.entries(shape.fields), true));
    }
    const body = structText("", fields, false);
    const same = names.get(body);
    texts.push(same === undefined ? structText(name, fields, false) : `using ${name} = ${same};`);
    if (same === undefined) distinct.push(name);
    names.set(body, same ?? name);
  }
  const counted = countedOperations.map((name) => `{"${name}", ${name in operations ? operations[name as keyof typeof operations].argsHash : 0}u}`);
  return `// Generated by src/rpc/native-arguments.ts from operations.ts; change it there. Each reader takes the values of a body in their order.
#pragma once
#include <optional>
#include <tuple>
#include <vector>

#include "rpc/wire.h"

namespace svc {

enum class Op : u8 {
${wrapped(countedOperations.map(lower), "  ")}
};
// This operation and all later ones change the store.
inline constexpr Op firstChange = Op::${lower(firstChange)};

struct CountedOperation {
  const char* name;
  u32 argsHash;  // identifies the types of its arguments
};
inline constexpr CountedOperation countedOperations[] = {
${wrapped(counted, "  ")}
};

namespace wire {

${[...structs.values(), "", ...texts].join("\n")}

using Arguments =
    std::tuple<${wrapped(distinct, "               ").replace(/,$/, "").trimStart()}>;

}  // namespace wire
}  // namespace svc
`;
}

if (import.meta.main) writeFileSync(ARGUMENTS_FILE, argumentsText());
