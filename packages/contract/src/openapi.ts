// Prints the operations as an OpenAPI 3.1 document, which `svc openapi` prints and the API reference is generated from.
import { z } from "zod";
import { type FailureName, failures } from "./failures.ts";
import { carriesBody, type Operation, pathMembers } from "./operation.ts";

type Json = Record<string, unknown>;

/** Marked by `.meta({ internal: true })`: members that only servers of a deployment send each other. */
export const isInternal = (shape: object): boolean => "internal" in shape && shape.internal === true;

/** One document for a set of operations. */
export function openapi(operations: Readonly<Record<string, Operation>>, info: { title: string; version: string }): Json {
  const paths: Record<string, Json> = {};
  for (const operation of Object.values(operations)) {
    const path = (paths[operation.path] ??= {});
    path[operation.method.toLowerCase()] = describe(operation);
  }
  return {
    openapi: "3.1.0",
    info,
    servers: [{ url: "http://localhost:8000" }],
    paths,
    components: {
      securitySchemes: { apiKey: { type: "apiKey", in: "header", name: "X-API-Key" } },
      schemas: { Failure: failureSchema },
    },
  };
}

const failureSchema: Json = {
  type: "object",
  required: ["code", "message"],
  properties: {
    code: { type: "integer", description: "Repeats the HTTP status" },
    message: { type: "string", description: "What was asked, what was found, what to do" },
    error_code: { type: "string", enum: Object.keys(failures) },
  },
};

function describe(operation: Operation): Json {
  const schema = schemaOf(operation.input, "input") as { properties?: Record<string, Json>; required?: string[] };
  const inPath = pathMembers(operation.path);
  const headers = operation.headers ?? {};
  const parameters: Json[] = [];
  const body: { properties: Record<string, Json>; required: string[] } = { properties: {}, required: [] };
  for (const [member, { description, ...shape }] of Object.entries(schema.properties ?? {})) {
    const required = schema.required?.includes(member) ?? false;
    const about = description === undefined ? {} : { description };
    if (inPath.includes(member)) parameters.push({ name: member, in: "path", required: true, ...about, schema: shape });
    else if (headers[member] !== undefined) parameters.push({ name: headers[member], in: "header", required, ...about, schema: shape });
    else if (!carriesBody(operation.method)) parameters.push({ name: member, in: "query", required, ...about, schema: shape });
    else {
      body.properties[member] = { ...shape, ...about };
      if (required) body.required.push(member);
    }
  }
  const hasBody = Object.keys(body.properties).length > 0;
  return {
    operationId: operation.name,
    summary: operation.summary,
    security: operation.credential === "apiKey" ? [{ apiKey: [] }] : [],
    ...(parameters.length === 0 ? {} : { parameters }),
    ...(hasBody ? { requestBody: { required: body.required.length > 0, content: json({ type: "object", ...body }) } } : {}),
    responses: { ...successes(operation), ...refusals(operation.failures) },
  };
}

function successes(operation: Operation): Json {
  const isEmpty = operation.success === 204;
  const answer = {
    description: operation.summary,
    ...(isEmpty ? {} : { content: { [operation.media ?? "application/json"]: { schema: schemaOf(operation.output, "output") } } }),
  };
  return Object.fromEntries([operation.success, ...(operation.otherSuccess ?? [])].map((status) => [status, answer]));
}

/** Describes one response per status, with the names of all failures that share it. */
function refusals(names: readonly FailureName[]): Json {
  const byStatus = new Map<number, FailureName[]>();
  for (const name of names) byStatus.set(failures[name].http, [...(byStatus.get(failures[name].http) ?? []), name]);
  const response = (those: FailureName[]) => ({ description: those.join(", "), content: json({ $ref: "#/components/schemas/Failure" }) });
  return Object.fromEntries([...byStatus].map(([status, those]) => [status, response(those)]));
}

function json(schema: Json): Json {
  return { "application/json": { schema } };
}

/** `unrepresentable: "any"`: members that must be absent (z.undefined) have no JSON Schema, and are left out. */
function schemaOf(type: z.ZodType, io: "input" | "output"): Json {
  const { $schema: _, ...schema } = z.toJSONSchema(type, { io, unrepresentable: "any" }) as Json & { properties?: Record<string, Json> };
  if (schema.properties !== undefined) {
    schema.properties = Object.fromEntries(Object.entries(schema.properties).filter(([, shape]) => Object.keys(shape).length > 0 && !isInternal(shape)));
  }
  return schema;
}
