// The views in the order of the navigation; the heavier ones are loaded when they are first opened.
import type { ConsoleSession } from "@svc/contract/console.ts";
import type { FunctionComponent, JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { Empty } from "./parts.tsx";
import { messageOf, servesSandboxes } from "./session.ts";

export type ViewProps = { readonly id?: string | undefined };
export type View = {
  readonly name: string;
  readonly title: string;
  readonly fits: (session: ConsoleSession) => boolean;
  readonly View: FunctionComponent<ViewProps>;
};

/** Loads a view's script at its first use. */
export function later<P extends object>(load: () => Promise<FunctionComponent<P>>): FunctionComponent<P> {
  let Loaded: FunctionComponent<P> | undefined;
  return function Later(props: P): JSX.Element {
    const [, setLoaded] = useState(Loaded !== undefined);
    const [problem, setProblem] = useState("");
    useEffect(() => {
      if (Loaded !== undefined) return;
      load().then(
        (component) => {
          Loaded = component;
          setLoaded(true);
        },
        (error: unknown) => setProblem(`this view could not be loaded (${messageOf(error)}); reload the page`),
      );
    }, []);
    return Loaded === undefined ? <Empty title={problem === "" ? "Loading …" : problem} /> : <Loaded {...props} />;
  };
}

const Nothing = () => null;

export const views: readonly View[] = [
  { name: "sandboxes", title: "Sandboxes", fits: servesSandboxes, View: Nothing },
  { name: "forks", title: "Forks", fits: servesSandboxes, View: later(async () => (await import("./forks.tsx")).Forks) },
  { name: "templates", title: "Templates", fits: servesSandboxes, View: later(async () => (await import("./templates.tsx")).Templates) },
  { name: "nodes", title: "Nodes", fits: ({ hasNodes }) => hasNodes, View: later(async () => (await import("./nodes.tsx")).Nodes) },
  { name: "cache", title: "Cache", fits: () => true, View: later(async () => (await import("./cache/cache.tsx")).Cache) },
  { name: "audit", title: "Audit", fits: ({ hasAudit }) => hasAudit, View: later(async () => (await import("./audit.tsx")).Audit) },
  { name: "health", title: "Health", fits: () => true, View: later(async () => (await import("./health.tsx")).Health) },
];
