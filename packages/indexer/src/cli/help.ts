// The pages of `svc index --help` and `svc index VERB --help`.
import { type HelpEntry, type HelpPage, renderHelp } from "@svc/contract/help.ts";

const URL_ENTRY: HelpEntry = ["--url URL", "the indexer (default $SVC_INDEXER_URL, else this machine's own, else http://localhost:13333)"];
const API_KEY: HelpEntry = ["--api-key KEY", "if indexer.api_key is set (default $SVC_INDEXER_API_KEY)"];
const OUTPUT: HelpEntry = ["--output table|json", "how to print (table)"];
const TENANT: HelpEntry = ["--tenant NAME", "the tenant (default)"];
const BLOCK_SIZE: HelpEntry = ["--block-size N", "tokens per block, as the engine has it"];
const LORA: HelpEntry = ["--lora-name NAME", "the LoRA adapter"];

const REGISTER = "svc index register --endpoint tcp://10.0.0.7:5557 --type vLLM --model demo --instance engine-a --block-size 16 --dp-rank 0";

const verbs: Readonly<Record<string, { readonly does: string; readonly options: readonly HelpEntry[]; readonly examples: readonly string[] }>> = {
  query: {
    does: "how much of a prompt each instance has cached",
    options: [
      ["--model NAME", "the model"],
      BLOCK_SIZE,
      ["--tokens 1,2,3", "the prompt's tokens, or"],
      ["--file TOKENS.json", "a file with a list of them, or"],
      ["--hashes H1,H2", "hashes of its blocks"],
      TENANT,
      ["--instance NAME", "only this instance"],
      LORA,
      ["--cache-salt SALT", "the salt of the prompt's blocks"],
      ["--explain", "why each instance matched as far as it did, as JSON"],
      URL_ENTRY,
      OUTPUT,
    ],
    examples: ["svc index query --model demo --block-size 16 --tokens 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16"],
  },
  register: {
    does: "register a publisher of KV events",
    options: [
      ["--endpoint tcp://HOST:PORT", "where it publishes"],
      ["--replay-endpoint tcp://HOST:PORT", "where it answers replay requests"],
      ["--type vLLM|SGLang|Mooncake|svc", "what it is"],
      ["--model NAME", "the model"],
      ["--instance NAME", "name of the instance"],
      BLOCK_SIZE,
      ["--dp-rank N", "its data-parallel rank"],
      TENANT,
      LORA,
      ["--additional-salt SALT", "a salt of all its blocks"],
      URL_ENTRY,
      API_KEY,
      OUTPUT,
    ],
    examples: [REGISTER],
  },
  unregister: {
    does: "remove a publisher, and its blocks from the index",
    options: [["--instance NAME", "name of the instance"], ["--dp-rank N", "its data-parallel rank"], TENANT, URL_ENTRY, API_KEY, OUTPUT],
    examples: ["svc index unregister --instance engine-a --dp-rank 0"],
  },
  services: {
    does: "list the publishers, with their blocks and how fresh they are",
    options: [URL_ENTRY, OUTPUT],
    examples: ["svc index services", "svc index services --output json"],
  },
  simulate: {
    does: "an engine that replays a trace, publishes KV events and answers replay requests",
    options: [
      ["--model NAME", "as the indexer shall know it"],
      ["--instance NAME", "name of the instance"],
      ["--no-register", "leave the registration to you; the endpoints are printed"],
      ["--block-size N", "tokens per block (16)"],
      ["--capacity N", "blocks its cache holds (100000)"],
      ["--host HOST", "where it publishes and replays (127.0.0.1)"],
      ["--port N", "where it publishes (a free port)"],
      ["--replay-port N", "where it replays (a free port)"],
      ["--trace FILE", 'lines of {"timestamp": ms, "token_ids": [...]} or {"timestamp", "input_length", "hash_ids"}'],
      ["--prompts N", "without a trace: conversations made up from a seed, N prompts (1000)"],
      ["--seed N", "of those (1)"],
      ["--speed X", "of the trace's own pace (0: as fast as it goes)"],
      ["--drop N", "drop every Nth message, as a network may; the replay has them (0: none)"],
      ["--stay", "go on answering replay requests after the last prompt, until Ctrl-C"],
      URL_ENTRY,
    ],
    examples: ["svc index simulate --model demo --instance engine-a --prompts 500 --drop 50 --stay"],
  },
};

export const verbNames = Object.keys(verbs);

/** Returns the page of one verb, else the page of all. */
export function pageOf(verb: string | undefined): HelpPage {
  const one = verb !== undefined && Object.hasOwn(verbs, verb) ? verbs[verb] : undefined;
  if (one !== undefined) return { usage: [`svc index ${verb} [options]`], about: one.does, options: one.options, examples: one.examples };
  return {
    usage: ["svc index VERB [options]"],
    about: "query a cache indexer, register publishers, simulate an engine",
    options: [URL_ENTRY, OUTPUT],
    commands: Object.entries(verbs).map(([name, { does }]): HelpEntry => [name, does]),
    more: "svc index VERB --help shows the options of a verb, and an example.",
    examples: Object.values(verbs).flatMap(({ examples }) => examples.slice(0, 1)),
  };
}

export const helpOf = (verb: string | undefined): string => renderHelp(pageOf(verb));
