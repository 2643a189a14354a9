// The tools, resources and prompts that the protocol's conformance suite calls by name, registered in addition to our own.
import { completable, fromJsonSchema, type McpServer, ResourceTemplate } from "@modelcontextprotocol/server";
import { z } from "zod";
import { answering } from "../src/answer.ts";

const PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
/** The header of a sound without samples. */
const WAV = Buffer.from("524946462400000057415645666d74201000000001000100401f0000803e0000020010006461746100000000", "hex").toString("base64");
const text = (said: string) => ({ type: "text" as const, text: said });
const image = { type: "image" as const, mimeType: "image/png", data: PNG };
const resource = { type: "resource" as const, resource: { uri: "test://embedded", mimeType: "text/plain", text: "embedded" } };

export function addConformanceTools(server: McpServer): void {
  const tool = (name: string, content: Parameters<typeof said>[0]) =>
    server.registerTool(name, { description: "for the conformance suite" }, async () => said(content));
  const said = (content: (ReturnType<typeof text> | typeof image | typeof resource | { type: "audio"; mimeType: string; data: string })[]) => ({ content });
  tool("test_simple_text", [text("simple")]);
  tool("test_image_content", [image]);
  tool("test_audio_content", [{ type: "audio", mimeType: "audio/wav", data: WAV }]);
  tool("test_embedded_resource", [resource]);
  tool("test_multiple_content_types", [text("mixed"), image, resource]);
  server.registerTool("test_error_handling", { description: "for the conformance suite" }, (context) =>
    answering(context, async () => {
      throw new Error("this tool always fails");
    }),
  );
  server.registerTool("test_tool_with_progress", { description: "for the conformance suite" }, (context) =>
    answering(
      context,
      async () => {
        await new Promise((resolve) => setTimeout(resolve, 500));
        return { content: [text("done")] };
      },
      50,
    ),
  );
  server.registerTool("json_schema_2020_12_tool", { description: "for the conformance suite", inputSchema: fromJsonSchema(jsonSchema) }, async () => ({
    content: [text("ok")],
  }));
  server.registerResource("static-text", "test://static-text", { mimeType: "text/plain" }, async (uri) => ({
    contents: [{ uri: uri.href, mimeType: "text/plain", text: "static" }],
  }));
  server.registerResource("static-binary", "test://static-binary", { mimeType: "image/png" }, async (uri) => ({
    contents: [{ uri: uri.href, mimeType: "image/png", blob: PNG }],
  }));
  server.registerResource("template", new ResourceTemplate("test://template/{id}/data", { list: undefined }), {}, async (uri, { id }) => ({
    contents: [{ uri: uri.href, mimeType: "application/json", text: JSON.stringify({ id, templateTest: true, data: `Data for ID: ${id}` }) }],
  }));
  const user = (content: ReturnType<typeof text> | typeof image | typeof resource) => ({ role: "user" as const, content });
  server.registerPrompt("test_simple_prompt", { description: "simple" }, async () => ({ messages: [user(text("simple"))] }));
  const argsSchema = z.object({ arg1: completable(z.string(), () => ["test"]), arg2: z.string() });
  server.registerPrompt("test_prompt_with_arguments", { description: "arguments", argsSchema }, async ({ arg1, arg2 }) => ({
    messages: [user(text(`arg1='${arg1}', arg2='${arg2}'`))],
  }));
  server.registerPrompt(
    "test_prompt_with_embedded_resource",
    { description: "resource", argsSchema: z.object({ resourceUri: z.string() }) },
    async ({ resourceUri }) => ({
      messages: [user({ ...resource, resource: { ...resource.resource, uri: resourceUri } })],
    }),
  );
  server.registerPrompt("test_prompt_with_image", { description: "image" }, async () => ({ messages: [user(image)] }));
}

const jsonSchema = {
  $schema: "https://json-schema.org/draft/2020-12/schema",
  type: "object" as const,
  $defs: { address: { $anchor: "addressDef", type: "object", properties: { street: { type: "string" }, city: { type: "string" } } } },
  properties: {
    name: { type: "string" },
    address: { $ref: "#/$defs/address" },
    contactMethod: { type: "string", enum: ["phone", "email"] },
    phone: { type: "string" },
    email: { type: "string" },
  },
  allOf: [{ anyOf: [{ required: ["phone"] }, { required: ["email"] }] }],
  if: { properties: { contactMethod: { const: "phone" } }, required: ["contactMethod"] },
  // biome-ignore lint/suspicious/noThenProperty: a keyword of JSON Schema.
  then: { required: ["phone"] },
  else: { required: ["email"] },
  additionalProperties: false,
};
