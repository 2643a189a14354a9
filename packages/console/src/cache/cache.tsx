// The cache view: the engines and what they have cached, the store's usage and clients, and the admin server's migrations and devices.
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { Command, Empty, Problem, Scroll } from "../parts.tsx";
import { messageOf, request } from "../session.ts";
import { Devices, type DevicesParts } from "./devices.tsx";
import { Engines, type EnginesParts } from "./engines.tsx";
import { Store, type StoreParts } from "./store.tsx";
import { Transfer, type TransferParts } from "./transfer.tsx";

const AGAIN_MS = 3_000;

type Server<T> = { readonly url: string; readonly isUp: boolean; readonly why: string; readonly parts: Partial<T> };
type View = {
  readonly indexer?: Server<EnginesParts>;
  readonly store?: Server<StoreParts>;
  readonly admin?: Server<DevicesParts>;
  readonly metadata?: Server<TransferParts>;
};

export function Cache(): JSX.Element {
  const [view, setView] = useState<View>();
  const [problem, setProblem] = useState("");
  const read = () =>
    request<View>("cache").then(
      (found) => {
        setView(found);
        setProblem("");
      },
      (error: unknown) => setProblem(messageOf(error)),
    );
  useEffect(() => {
    void read();
    const timer = setInterval(() => void (document.hidden || read()), AGAIN_MS);
    return () => clearInterval(timer);
  }, []);
  return (
    <section class="page fill">
      <header class="page-head">
        <h1>Cache</h1>
      </header>
      <Problem error={problem} />
      <Scroll label="Cache">
        {view === undefined ? (
          <Empty title="Asking the servers of the cache …" />
        ) : (
          <>
            <Away name="The cache indexer" server={view.indexer} setting="console.indexer_url" command="./svc indexer" />
            {view.indexer?.isUp === true ? <Engines parts={view.indexer.parts} /> : null}
            <Away name="The cache store's master" server={view.store} setting="console.store_url" command="./svc store master" />
            {view.store?.isUp === true ? <Store parts={view.store.parts} onActed={() => void read()} /> : null}
            <Away name="The store's admin server" server={view.admin} setting="console.store_admin_url" command="./svc store admin" />
            {view.admin?.isUp === true ? <Devices parts={view.admin.parts} onActed={() => void read()} /> : null}
            <Away name="The metadata server of transfer engines" server={view.metadata} setting="console.metadata_url" command="./svc metadata" />
            {view.metadata?.isUp === true ? <Transfer parts={view.metadata.parts} /> : null}
          </>
        )}
      </Scroll>
    </section>
  );
}

/** One line that stands for a server that does not answer. */
function Away({
  name,
  server,
  setting,
  command,
}: {
  readonly name: string;
  readonly server: Server<unknown> | undefined;
  readonly setting: string;
  readonly command: string;
}): JSX.Element | null {
  if (server?.isUp === true) return null;
  return (
    <div class="away">
      {server === undefined ? (
        <>
          {name} is not shown: the setting <code>{setting}</code> is empty.
        </>
      ) : (
        <>
          {name} is not there: {server.why}. Start it, or set <code>{setting}</code>. <Command text={command} />
        </>
      )}
    </div>
  );
}
