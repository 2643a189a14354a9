// Pages at a server's URL for people: what the server is, what to do next, and the API's reference, generated from the operations.
import { type FailureName, failures } from "@svc/contract/failures.ts";
import { isInternal, openapi } from "@svc/contract/openapi.ts";
import { carriesBody, type Operation, pathMembers } from "@svc/contract/operation.ts";
import type { FastifyInstance, FastifyReply } from "fastify";
import { z } from "zod";
import { escaped, homePage, ownLinks, PAGE_TYPE, type PageOptions, page } from "./home-page.ts";

const POLICY = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'";

/** The pages reveal nothing about sandboxes or settings, so they need no key. */
export function addPages(app: FastifyInstance, operations: Readonly<Record<string, Operation>>, options: PageOptions, servesMetrics: boolean): void {
  const document = openapi(operations, { title: options.title, version: options.version });
  const home = homePage({
    ...options,
    access: "Calls need the deployment's key in the header X-API-Key.",
    links: [["/docs", "The API"], ["/openapi.json", "The API as OpenAPI 3.1"], ...ownLinks.filter(([path]) => servesMetrics || path !== "/metrics")],
  });
  const reference = page(`API of ${options.title}`, Object.values(operations).map(operationText).join("\n"));
  const config = (operation: string) => ({ config: { operation, open: true } as object });
  app.get("/", config("page"), async (request, reply) => {
    if (String(request.headers.accept ?? "").includes("text/html")) return html(reply, home);
    return { name: options.title, version: options.version, health: "/health", api: "/docs", openapi: "/openapi.json" };
  });
  app.get("/docs", config("page"), async (_request, reply) => html(reply, reference));
  app.get("/openapi.json", config("page"), async () => document);
}

function html(reply: FastifyReply, text: string): FastifyReply {
  return reply.type(PAGE_TYPE).header("content-security-policy", POLICY).header("x-content-type-options", "nosniff").send(text);
}

function operationText(operation: Operation): string {
  const inPath = pathMembers(operation.path);
  const shape = z.toJSONSchema(operation.input, { io: "input", unrepresentable: "any" }) as { properties?: Record<string, Shape>; required?: string[] };
  const place = (member: string) => {
    if (inPath.includes(member)) return "path";
    if (operation.headers?.[member] !== undefined) return `header ${operation.headers[member]}`;
    return carriesBody(operation.method) ? "body" : "query";
  };
  const rows = Object.entries(shape.properties ?? {})
    .filter(([, each]) => Object.keys(each).length > 0 && !isInternal(each))
    .map(([member, each]) => {
      const needed = shape.required?.includes(member) === true ? "required" : "";
      const fallback = each.default === undefined ? "" : `default ${JSON.stringify(each.default)}`;
      const words = [typeOf(each), needed, fallback, each.description ?? ""].filter((text) => text !== "").join("; ");
      return `<tr><td><code>${escaped(member)}</code></td><td>${escaped(place(member))}</td><td>${escaped(words)}</td></tr>`;
    });
  const key = operation.credential === "none" ? "<p>Needs no key.</p>" : "";
  return `<h2 id="${operation.name}"><code>${operation.method} ${escaped(operation.path)}</code></h2>
<p>${escaped(operation.summary)}.</p>${key}
${rows.length === 0 ? "" : `<table><tr><th>member</th><th>in</th><th></th></tr>${rows.join("\n")}</table>`}
<p>${[operation.success, ...(operation.otherSuccess ?? [])].join(" or ")}; else ${operation.failures.map(failureText).join(", ")}.</p>`;
}

type Shape = { type?: string | readonly string[]; anyOf?: readonly Shape[]; enum?: readonly unknown[]; default?: unknown; description?: string };

function typeOf({ type, anyOf, enum: choices }: Shape): string {
  if (choices !== undefined) return choices.map((choice) => JSON.stringify(choice)).join(" | ");
  if (anyOf !== undefined) return [...new Set(anyOf.map(typeOf))].filter((text) => text !== "" && text !== "null").join(" | ");
  return typeof type === "string" ? type : (type ?? []).join(" | ");
}

const failureText = (name: FailureName) => `${failures[name].http} ${name}`;
