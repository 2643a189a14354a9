// Prompts by which a tokenizer is compared with an engine: whatever tokenizers and templates are known to differ in.
import type { Prompt, PromptKind } from "./prompt.ts";

/** Parts of a request that templates render in many ways. */
export type Feature = "tools" | "calls";
export type Sample = { readonly prompt: Prompt; readonly path: string };

const texts = [
  "Hello, world! How many tokens are this?",
  "  leading, trailing and   inner spaces \t\n\n\r\n and lines\n",
  "12345 3.14159 1,000,000 x=1+2*(3-4)/5; a_b-c.d/e\\f",
  "naïve façade Ωμέγα Привет 你好 こんにちは 한국어 עברית हिन्दी é e\u0301",
  "🙂👍🏽👩‍👩‍👧 <s></s><|im_start|><|endoftext|> [INST] </think>",
  "it's we're I'VE DON'T can’t “quotes” — dash…",
  "def f(x):\n    return {'a': [1, 2], \"b\": None}  # comment\n",
];
const call = { id: "call_1", type: "function", function: { name: "read_file", arguments: '{"path": "/tmp/a \\"b\\".txt", "lines": [1, 2]}' } };
const tool = {
  type: "function",
  function: {
    name: "read_file",
    description: 'Reads a file\'s lines, also <tags> & "quotes".',
    parameters: { type: "object", properties: { path: { type: "string" }, lines: { type: "array", items: { type: "integer" } } }, required: ["path"] },
  },
};
const user = (content: string) => ({ role: "user", content });
const chats: readonly Record<string, unknown>[] = [
  { messages: [user(texts[0] as string)] },
  {
    messages: [
      { role: "system", content: "You are helpful." },
      user(texts[3] as string),
      { role: "assistant", content: texts[4] as string },
      user(` ${texts[1]}`),
    ],
  },
  { messages: [user("Read it.")], tools: [tool] },
  {
    messages: [
      user("Read it."),
      { role: "assistant", content: null, tool_calls: [call] },
      { role: "tool", tool_call_id: "call_1", content: texts[6] as string },
    ],
    tools: [tool],
  },
];

export function samples(model: string): Sample[] {
  const of = (kind: PromptKind, body: Record<string, unknown>): Prompt => ({
    kind,
    model,
    body: { model, ...body },
    cacheSalt: "",
    session: undefined,
    previousResponse: undefined,
  });
  return [
    ...texts.map((prompt) => ({ prompt: of("completion", { prompt }), path: "/v1/completions" })),
    ...chats.map((body) => ({ prompt: of("chat", body), path: "/v1/chat/completions" })),
  ];
}
