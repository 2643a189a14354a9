// The types of the store's RPC: each schema has its type literal, and reads and writes the values of its type.
import type { BodyReader, BodyWriter, Codec } from "./body.ts";

/** A type of the wire. Literals and layout follow struct_pack, which Mooncake's clients use. */
export type Schema<T> = Codec<T> & {
  /** The bytes that identify this type in messages; their MD5 is the type's hash. */
  readonly literal: readonly number[];
  /** The type's parts, from which readers in C++ are generated; a type that the core never reads has none. */
  readonly shape?: Shape;
  /** The name that an argument of this type has in the core. */
  readonly argument?: string;
};

export type Shape =
  | { readonly is: "i32" | "u32" | "i64" | "u64" | "u8" | "bool" | "bytes" | "uuid" }
  | { readonly is: "vector" | "optional"; readonly item: Schema<unknown> }
  | { readonly is: "struct"; readonly fields: Readonly<Record<string, Schema<unknown>>> };

/** Returns the same type as an argument of that name. */
export const named = <T>(argument: string, schema: Schema<T>): Schema<T> => ({ ...schema, argument });

export type ValueOf<S> = S extends Schema<infer T> ? T : never;

const STRUCT = 0xfd;
const END = 0xff;

const fixed = <T>(
  literal: number,
  write: (to: BodyWriter, value: T) => void,
  read: (from: BodyReader) => T,
  is?: "i32" | "u32" | "i64" | "u64" | "u8" | "bool",
): Schema<T> => ({
  literal: [literal],
  ...(is === undefined ? {} : { shape: { is } }),
  widest: () => 0,
  write,
  read,
});

export const i32 = fixed<number>(
  0x01,
  (to, value) => to.i32(value),
  (from) => from.i32(),
  "i32",
);
export const u32 = fixed<number>(
  0x02,
  (to, value) => to.u32(value),
  (from) => from.u32(),
  "u32",
);
export const i64 = fixed<bigint>(
  0x03,
  (to, value) => to.i64(value),
  (from) => from.i64(),
  "i64",
);
export const u64 = fixed<bigint>(
  0x04,
  (to, value) => to.u64(value),
  (from) => from.u64(),
  "u64",
);
export const u8 = fixed<number>(
  0x06,
  (to, value) => to.u8(value),
  (from) => from.u8(),
  "u8",
);
export const bool = fixed<boolean>(
  0x0b,
  (to, value) => to.u8(value ? 1 : 0),
  (from) => from.u8() !== 0,
  "bool",
);
/** The type without a value: the answer of an operation without a result. */
export const nothing = fixed<undefined>(
  0xfa,
  () => undefined,
  () => undefined,
);

/** A string of bytes, one per character (latin1), so that a key of any bytes survives the round trip. */
export const bytes: Schema<string> = {
  literal: [0x80, 0x0c],
  shape: { is: "bytes" },
  widest: (value) => value.length,
  write(to, value) {
    to.length(value.length);
    to.latin1(value);
  },
  read: (from) => from.latin1(from.length(1)),
};

/** Two u64 as 8-4-4-4-12 hexadecimal digits: the first u64 is the first half of the text. */
export const uuid: Schema<string> = {
  literal: [STRUCT, 0x04, 0x04, 0x89, 0x89, END],
  shape: { is: "uuid" },
  widest: () => 0,
  write: (to, value) => to.uuid(value),
  read: (from) => from.uuid(),
};

export function vector<T>(item: Schema<T>): Schema<readonly T[]> {
  return {
    literal: [0x84, ...item.literal],
    shape: { is: "vector", item },
    ...(item.argument === undefined ? {} : { argument: `${item.argument}s` }),
    widest: (values) => values.reduce((most, value) => Math.max(most, item.widest(value)), values.length),
    write(to, values) {
      to.length(values.length);
      for (const value of values) item.write(to, value);
    },
    read(from) {
      const count = from.length(1);
      const values: T[] = [];
      for (let index = 0; index < count; index++) values.push(item.read(from));
      return values;
    },
  };
}

export function map<T>(value: Schema<T>, keySchema: Schema<string> = bytes): Schema<ReadonlyMap<string, T>> {
  return {
    literal: [0x82, ...keySchema.literal, ...value.literal],
    widest: (entries) => [...entries].reduce((most, [key, each]) => Math.max(most, keySchema.widest(key), value.widest(each)), entries.size),
    write(to, entries) {
      to.length(entries.size);
      for (const [key, each] of entries) {
        keySchema.write(to, key);
        value.write(to, each);
      }
    },
    read(from) {
      const count = from.length(1);
      const entries = new Map<string, T>();
      for (let index = 0; index < count; index++) entries.set(keySchema.read(from), value.read(from));
      return entries;
    },
  };
}

export function optional<T>(item: Schema<T>): Schema<T | undefined> {
  return {
    literal: [0x85, ...item.literal],
    shape: { is: "optional", item },
    widest: (value) => (value === undefined ? 0 : item.widest(value)),
    write(to, value) {
      to.u8(value === undefined ? 0 : 1);
      if (value !== undefined) item.write(to, value);
    },
    read: (from) => (from.u8() === 0 ? undefined : item.read(from)),
  };
}

/** The answer of an operation: a value, or the store's error code (negative). */
export type Expected<T> = { readonly ok: true; readonly value: T } | { readonly ok: false; readonly code: number };

export function expected<T>(item: Schema<T>): Schema<Expected<T>> {
  return {
    literal: [0x87, ...item.literal, ...i32.literal],
    widest: (outcome) => (outcome.ok ? item.widest(outcome.value) : 0),
    write(to, outcome) {
      to.u8(outcome.ok ? 1 : 0);
      if (outcome.ok) item.write(to, outcome.value);
      else to.i32(outcome.code);
    },
    read: (from) => (from.u8() === 0 ? { ok: false, code: from.i32() } : { ok: true, value: item.read(from) }),
  };
}

type Struct<F> = { readonly [K in keyof F]: ValueOf<F[K]> };

/** @param alignment is given for types that are copied as they lie in memory: their packing and alignment in bytes. */
export function struct<F extends Record<string, Schema<unknown>>>(fields: F, alignment?: readonly [pack: number, align: number]): Schema<Struct<F>> {
  const entries = Object.entries<Schema<unknown>>(fields);
  const marks = alignment === undefined ? [] : alignment.map((size) => 0x81 + size);
  return {
    literal: [STRUCT, ...entries.flatMap(([, schema]) => schema.literal), ...marks, END],
    shape: { is: "struct", fields },
    widest: (value) => entries.reduce((most, [name, schema]) => Math.max(most, schema.widest(value[name as keyof F])), 0),
    write(to, value) {
      for (const [name, schema] of entries) schema.write(to, value[name as keyof F]);
    },
    read: (from) => Object.fromEntries(entries.map(([name, schema]) => [name, schema.read(from)])) as unknown as Struct<F>,
  };
}

/** One of several shapes, distinguished by `type`; its index on the wire is its position in `cases`. */
export function variant<F extends Record<string, Schema<unknown>>>(cases: F): Schema<{ [K in keyof F]: { readonly type: K } & ValueOf<F[K]> }[keyof F]> {
  type Value = { [K in keyof F]: { readonly type: K } & ValueOf<F[K]> }[keyof F];
  const names = Object.keys(cases);
  const schemas = Object.values<Schema<unknown>>(cases);
  const schemaOf = (value: Value): Schema<unknown> => cases[value.type] as Schema<unknown>;
  return {
    literal: [0x86, ...schemas.flatMap((schema) => schema.literal), END],
    widest: (value) => schemaOf(value).widest(value),
    write(to, value) {
      to.u8(names.indexOf(value.type as string));
      schemaOf(value).write(to, value);
    },
    read(from) {
      const index = from.u8();
      const schema = schemas[index];
      if (schema === undefined) throw new RangeError(`expected one of ${names.length} variants, got index ${index}`);
      return { type: names[index], ...(schema.read(from) as object) } as Value;
    },
  };
}

/** The arguments of a call: none, a single value, or a tuple of several. */
export function tuple<S extends readonly Schema<unknown>[]>(...items: S): Schema<{ [K in keyof S]: ValueOf<S[K]> }> {
  type Values = { [K in keyof S]: ValueOf<S[K]> };
  const isOne = items.length === 1;
  const literals = items.flatMap((item) => item.literal);
  return {
    literal: isOne ? literals : [STRUCT, ...literals, END],
    widest: (values) => items.reduce((most, item, index) => Math.max(most, item.widest(values[index])), 0),
    write(to, values) {
      items.forEach((item, index) => {
        item.write(to, values[index]);
      });
    },
    read: (from) => items.map((item) => item.read(from)) as Values,
  };
}
