// `svc completion` and `svc man`: completion scripts and the manual, generated from the verbs themselves.
import { inCapitals } from "@svc/contract/help.ts";
import type { Command, Option } from "commander";
import { programsHere } from "../servers/programs.ts";
import { type IDKind, idKindsOf } from "./complete-ids-kinds.ts";

export const shells = ["bash", "zsh", "fish"] as const;
export type Shell = (typeof shells)[number];

/** A verb, named by its words, with the words that may follow it. */
type Entry = {
  readonly words: string;
  readonly verbs: readonly (readonly [name: string, summary: string])[];
  readonly options: readonly Option[];
  /** The kinds of ids that its arguments take, in order; a repeated one applies to all that follow. */
  readonly ids: readonly (readonly [kinds: readonly IDKind[], isRepeated: boolean])[];
};

function entriesOf(program: Command): Entry[] {
  const entries: Entry[] = [];
  const visit = (command: Command, words: string) => {
    const shown = shownOf(command);
    const verbs = shown.map((each) => [each.name(), each.description()] as const);
    const others = words === "" ? programsHere().filter(({ name }) => !name.includes(" ")) : [];
    entries.push({
      words,
      verbs: [...verbs, ...others.map(({ name, summary }) => [name, summary] as const)],
      options: command.options.filter((option) => !option.hidden),
      ids: command.registeredArguments.map((argument) => [idKindsOf(words, argument.name()), argument.variadic] as const),
    });
    for (const each of shown) visit(each, words === "" ? each.name() : `${words} ${each.name()}`);
  };
  visit(program, "");
  for (const { name, verbs = [] } of programsHere()) {
    if (verbs.length === 0) continue;
    const servers = programsHere().filter((each) => each.name.startsWith(`${name} `));
    const named = [...verbs.map((verb) => [verb, ""] as const), ...servers.map((each) => [each.name.slice(name.length + 1), each.summary] as const)];
    entries.push({ words: name, verbs: named, options: [], ids: [] });
  }
  return entries;
}

/** commander has no public name for this member. */
const shownOf = (command: Command) => command.commands.filter((each) => !(each as { _hidden?: boolean })._hidden);

const namesOf = (option: Option) => [option.short, option.long].filter((name) => name !== undefined && name !== null);

export function completionScript(shell: Shell, program: Command): string {
  const entries = entriesOf(program);
  if (shell === "fish") return fishScript(entries);
  const cases = entries.map(({ words, verbs, options }) => {
    const candidates = [...verbs.map(([name]) => name), ...options.flatMap(namesOf), "--help"];
    return `    ${JSON.stringify(words)}) candidates="${candidates.join(" ")}" ;;`;
  });
  const choices = entries.flatMap(({ words, options }) =>
    options
      .filter(({ argChoices }) => argChoices !== undefined)
      .flatMap((option) => namesOf(option).map((name) => `    ${JSON.stringify(`${words} ${name}`.trim())}) candidates="${option.argChoices?.join(" ")}" ;;`)),
  );
  const valued = [...new Set(entries.flatMap(({ options }) => options.filter(({ required }) => required).flatMap(namesOf)))];
  const ids = entries.flatMap(({ words, ids: kinds }) =>
    kinds.flatMap(([names, isRepeated], at) =>
      names.length === 0 ? [] : [`    ${JSON.stringify(words)}) [[ $operands -${isRepeated ? "ge" : "eq"} ${at} ]] && ids="${names.join(" ")}" ;;`],
    ),
  );
  const body = `_svc() {
  local candidates="" words="" word previous="\${COMP_WORDS[COMP_CWORD-1]}" current="\${COMP_WORDS[COMP_CWORD]}" known operands=0 ids="" value=""
  known=" ${entries
    .map(({ words }) => words.replace(/ /g, "/"))
    .filter(Boolean)
    .join(" ")} "
  for word in "\${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    if [[ -n $value ]]; then value=""; continue; fi
    if [[ $word == -* ]]; then [[ " ${valued.join(" ")} " == *" $word "* ]] && value=yes; continue; fi
    if [[ $operands == 0 && $known == *" \${words:+\${words// //}/}$word "* ]]; then words="\${words:+$words }$word"; else operands=$((operands + 1)); fi
  done
  case "$words" in
${cases.join("\n")}
  esac
  case "\${words:+$words }$previous" in
${choices.join("\n")}
    *) ;;
  esac
  if [[ $current != -* && -z $value ]]; then
    case "$words" in
${ids.join("\n")}
      *) ;;
    esac
    [[ -n $ids ]] && candidates="$candidates $("\${COMP_WORDS[0]}" complete-ids $ids 2>/dev/null)"
  fi
  COMPREPLY=($(compgen -W "$candidates" -- "$current"))
}`;
  if (shell === "bash") return `# svc completion for bash: source <(svc completion bash)\n${body}\ncomplete -o default -F _svc svc ./svc\n`;
  return `#compdef svc\n# svc completion for zsh: source <(svc completion zsh)\nautoload -U +X bashcompinit && bashcompinit\n${body}\ncomplete -o default -F _svc svc ./svc\n`;
}

function fishScript(entries: readonly Entry[]): string {
  const quoted = (text: string) => `'${text.replace(/\\/g, "\\\\").replace(/'/g, "\\'")}'`;
  const lines = entries.flatMap(({ words, verbs, options, ids }) => {
    const parts = words.split(" ").filter(Boolean);
    const when = parts.length === 0 ? "__fish_use_subcommand" : parts.map((word) => `__fish_seen_subcommand_from ${word}`).join("; and ");
    return [
      ...ids.flatMap(([kinds]) =>
        kinds.length === 0 ? [] : [`complete -c svc -f -n ${quoted(when)} -a ${quoted(`(svc complete-ids ${kinds.join(" ")} 2>/dev/null)`)}`],
      ),
      ...verbs.map(([name, summary]) => `complete -c svc -f -n ${quoted(when)} -a ${name} -d ${quoted(summary)}`),
      ...options.map((option) => {
        const names = [...(option.short ? [`-s ${option.short.slice(1)}`] : []), ...(option.long ? [`-l ${option.long.slice(2)}`] : [])].join(" ");
        const takes = option.argChoices === undefined ? (option.required ? " -r" : "") : ` -x -a ${quoted(option.argChoices.join(" "))}`;
        return `complete -c svc -n ${quoted(when)} ${names}${takes} -d ${quoted(option.description)}`;
      }),
    ];
  });
  return `# svc completion for fish: svc completion fish | source\n${lines.join("\n")}\n`;
}

/** Renders a page of section 1 for man(1). */
export function manPage(program: Command, version: string): string {
  const roff = (text: string) =>
    text
      .replace(/\\/g, "\\e")
      .replace(/-/g, "\\-")
      .replace(/^([.'])/gm, "\\&$1");
  const optionsOf = (command: Command) =>
    command.options
      .filter((option) => !option.hidden)
      .map((option) => {
        const choices = option.argChoices === undefined ? "" : ` (${option.argChoices.join(", ")})`;
        const fallback = option.defaultValue === undefined || option.defaultValue === false ? "" : ` (default: ${JSON.stringify(option.defaultValue)})`;
        return `.TP\n.B ${roff(inCapitals(option.flags))}\n${roff(`${option.description}${choices}${fallback}`)}\n`;
      })
      .join("");
  const sections: string[] = [];
  const visit = (command: Command, words: string) => {
    for (const each of shownOf(command)) {
      const name = `${words}${each.name()}`;
      if (each.commands.length === 0) sections.push(`.SS svc ${roff(`${name} ${inCapitals(each.usage())}`)}\n${roff(each.description())}\n${optionsOf(each)}`);
      visit(each, `${name} `);
    }
  };
  visit(program, "");
  const servers = programsHere().map(({ name, summary }) => `.TP\n.B svc ${roff(name)}\n${roff(summary)}; see its \\-\\-help\n`);
  return `.TH SVC 1 "" "svc ${version}" "svc"
.SH NAME
svc \\- the serving stack for LLM agents
.SH SYNOPSIS
.B svc
VERB [options]
.SH DESCRIPTION
${roff(program.description())}
.SH VERBS
${sections.join("")}.SH SERVERS AND PROGRAMS
${servers.join("")}.SH ENVIRONMENT
.TP
.B SVC_URL, SDK_API_KEY
the server, and its key (SVC_API_KEY, too), where svc auth saved none
.TP
.B E2B_API_URL, E2B_API_KEY
the same, where both are set and no variable of svc is
.TP
.B SVC_HOME
where servers of this machine keep their state
.TP
.B SVC_DEBUG
1: errors with their stack
.SH EXIT STATUS
0 success, 1 failure, 2 usage error; exec and connect return the command's own.
.SH FILES
~/.config/svc/credentials, what svc auth saved
`;
}
