// Terminals in a sandbox, one per tab. Each finds its shell again after a reconnect by the shell's name.
import { FitAddon } from "@xterm/addon-fit";
import { Terminal } from "@xterm/xterm";
import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { type Channel, channel } from "../live.ts";
import { query, setQuery } from "../router.ts";
import type { TabProps } from "./sandbox.tsx";

const MAX_TERMINALS = 8;

export function Terminals({ row }: TabProps): JSX.Element {
  const names = (query.value.get("sessions") ?? "main").split(",").slice(0, MAX_TERMINALS);
  const [at, setAt] = useState(0);
  const add = () => {
    const name = Array.from({ length: MAX_TERMINALS }, (_, index) => (index === 0 ? "main" : `main-${index + 1}`)).find((each) => !names.includes(each));
    if (name === undefined) return;
    setQuery({ sessions: [...names, name].join(",") });
    setAt(names.length);
  };
  return (
    <div class="terminals">
      <div class="bar">
        <div class="bar" role="tablist" aria-label="Terminals">
          {names.map((name, index) => (
            <button key={name} type="button" role="tab" aria-selected={index === at} onClick={() => setAt(index)}>
              {name}
            </button>
          ))}
        </div>
        <button type="button" onClick={add} disabled={names.length >= MAX_TERMINALS}>
          New
        </button>
        <span class="muted">A shell goes on when you leave; svc connect {row.id} finds it too.</span>
      </div>
      {names.map((name, index) => (
        <Screen key={name} id={row.id} session={name} isShown={index === at} />
      ))}
    </div>
  );
}

const nonce = document.querySelector<HTMLMetaElement>('meta[name="svc-nonce"]')?.content ?? "";
const create = document.createElement.bind(document);
// xterm writes its rules into style elements, which the page's policy allows with its nonce only.
document.createElement = ((name: string, options?: ElementCreationOptions) => {
  const element = create(name, options);
  if (name === "style") element.nonce = nonce;
  return element;
}) as typeof document.createElement;

const color = (name: string) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function Screen({ id, session, isShown }: { readonly id: string; readonly session: string; readonly isShown: boolean }): JSX.Element {
  const element = useRef<HTMLDivElement>(null);
  const fit = useRef<() => void>(() => {});
  const focus = useRef<() => void>(() => {});
  const [over, setOver] = useState("");
  const [round, setRound] = useState(0);
  useEffect(() => {
    const own = element.current;
    if (own === null) return;
    const terminal = new Terminal({
      fontFamily: "ui-monospace, 'SF Mono', Menlo, Consolas, monospace",
      fontSize: 13,
      scrollback: 5_000,
      screenReaderMode: matchMedia("(forced-colors: active)").matches,
      theme: { background: color("--term"), foreground: color("--term-fg"), cursor: color("--term-fg") },
    });
    const addon = new FitAddon();
    terminal.loadAddon(addon);
    terminal.open(own);
    addon.fit();
    setOver("");
    let isOpen = true;
    const opened: Channel = channel(
      (channelID) => ({ t: "open", id: channelID, kind: "terminal", sandboxID: id, session, cols: terminal.cols, rows: terminal.rows }),
      {
        onBytes: (bytes) => terminal.write(bytes),
        onMessage(message) {
          if (message.t !== "end") return;
          isOpen = false;
          setOver(message.error ?? `The shell has ended with exit code ${message.exitCode ?? 0}.`);
        },
      },
    );
    terminal.onData((data) => isOpen && opened.input(data));
    terminal.onResize(({ cols, rows }) => opened.resize(cols, rows));
    fit.current = () => own.clientWidth > 0 && addon.fit();
    focus.current = () => terminal.focus();
    const observer = new ResizeObserver(() => fit.current());
    observer.observe(own);
    terminal.focus();
    return () => {
      observer.disconnect();
      opened.close();
      terminal.dispose();
    };
  }, [id, session, round]);
  useEffect(() => {
    if (!isShown) return;
    fit.current();
    focus.current();
  }, [isShown]);
  return (
    <div class="screen" hidden={!isShown}>
      <div ref={element} class="xterm-holder" />
      {over === "" ? null : (
        <p class="problem" role="status">
          {over}{" "}
          <button type="button" onClick={() => setRound(round + 1)}>
            Start another
          </button>
        </p>
      )}
    </div>
  );
}
