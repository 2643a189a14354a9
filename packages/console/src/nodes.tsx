// The nodes behind a gateway: one row each, with nodes that are not ready or nearly full on top, and the actions that take a node out of service.
import type { ShownNode } from "@svc/contract/nodes.ts";
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { confirm } from "./dialog.tsx";
import { bytes, count, percent } from "./format.ts";
import { Command, Empty, Problem, Scroll, State } from "./parts.tsx";
import { call, isReadOnly, messageOf } from "./session.ts";
import { say } from "./toasts.tsx";

const AGAIN_MS = 2_000;
const HIGH = 0.9;

type Drain = { readonly running: number; readonly paused: number; readonly movedByDrain: readonly unknown[]; readonly failed: readonly unknown[] };

const diskOf = ({ metrics }: ShownNode) => metrics.disks[0];
const sharesOf = (node: ShownNode) => {
  const disk = diskOf(node);
  return {
    memory: node.metrics.memoryUsedBytes / Math.max(1, node.metrics.memoryTotalBytes),
    disk: disk === undefined ? 0 : disk.usedBytes / Math.max(1, disk.totalBytes),
    sandboxes: (node.sandboxCount + node.sandboxStartingCount) / Math.max(1, node.sandboxMax),
  };
};
/** Nodes are sorted by this number: those that are not ready come first, then the fullest. */
const urgency = (node: ShownNode) => (node.status === "ready" ? 0 : 10) + Math.max(...Object.values(sharesOf(node)));

export function Nodes(): JSX.Element {
  const [list, setList] = useState<readonly ShownNode[]>();
  const [problem, setProblem] = useState("");
  const read = () =>
    call<ShownNode[]>("listNodes").then(
      (found) => {
        setList([...found].sort((a, b) => urgency(b) - urgency(a) || (a.id < b.id ? -1 : 1)));
        setProblem("");
      },
      (error: unknown) => setProblem(messageOf(error)),
    );
  useEffect(() => {
    void read();
    const timer = setInterval(() => void (document.hidden || read()), AGAIN_MS);
    return () => clearInterval(timer);
  }, []);
  const set = (node: ShownNode, status: "draining" | "ready") =>
    call("setNodeStatus", { nodeID: node.id, status }).then(
      () => {
        say(status === "draining" ? `${node.id} takes no new sandboxes, and empties.` : `${node.id} takes new sandboxes again.`);
        return read();
      },
      (error: unknown) => say(messageOf(error), "bad"),
    );
  const drain = (node: ShownNode) =>
    confirm({
      title: `Drain ${node.id}?`,
      loses: `${node.id} takes no new sandboxes. Its ${count(node.sandboxCount)} running ones are paused, and go to other nodes where object storage is set. Nothing is deleted.`,
      act: "Drain",
      onYes: () => void set(node, "draining"),
    });
  if (list === undefined) return problem === "" ? <Empty title="Reading the nodes …" /> : <Problem error={problem} />;
  return (
    <section class="page fill">
      <header class="page-head">
        <h1>Nodes</h1>
        <span class="muted">
          {count(list.length)}, {count(list.reduce((sum, { sandboxCount }) => sum + sandboxCount, 0))} sandboxes run
        </span>
      </header>
      <Problem error={problem} />
      {list.length === 0 ? (
        <Empty title="No node has joined.">
          <Command text="./svc node --etcd http://HOST:2379" />
        </Empty>
      ) : null}
      <ul class="map" aria-label="Map of nodes">
        {list.map((node) => (
          <li key={node.id} class={node.status} title={`${node.id}: ${node.status}, ${node.sandboxCount} of ${node.sandboxMax}`}>
            <span class="fill" style={{ height: `${Math.min(100, sharesOf(node).memory * 100)}%` }} />
            <span class="name">{node.id}</span>
          </li>
        ))}
      </ul>
      <Scroll label="Nodes">
        <table>
          <thead>
            <tr>
              <th scope="col">Node</th>
              <th scope="col">Status</th>
              <th scope="col" class="number">
                Running
              </th>
              <th scope="col" class="number">
                Paused
              </th>
              <th scope="col" class="number">
                Starting
              </th>
              <th scope="col">Memory</th>
              <th scope="col">Disk</th>
              <th scope="col" class="number">
                CPU
              </th>
              <th scope="col" class="number">
                Failed creates
              </th>
              <th scope="col">Version</th>
              <th scope="col">
                <span class="hidden">Acts</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {list.map((node) => (
              <tr key={node.id}>
                <th scope="row" title={node.url}>
                  {node.id}
                </th>
                <td class="wrap">
                  <State state={node.status} /> {node.status === "draining" ? <Progress node={node} /> : <span class="bad">{node.reason ?? ""}</span>}
                </td>
                <td class="number">
                  {count(node.sandboxCount)} <span class="muted">/ {count(node.sandboxMax)}</span>
                </td>
                <td class="number">{count(node.sandboxPausedCount)}</td>
                <td class="number">{count(node.sandboxStartingCount)}</td>
                <td>
                  <Share share={sharesOf(node).memory} text={`${bytes(node.metrics.memoryUsedBytes)} of ${bytes(node.metrics.memoryTotalBytes)}`} />
                </td>
                <td>
                  <Share share={sharesOf(node).disk} text={`${bytes(diskOf(node)?.usedBytes)} of ${bytes(diskOf(node)?.totalBytes)}`} />
                </td>
                <td class="number">{Math.round(node.metrics.cpuPercent)} %</td>
                <td class={`number ${node.createFails > 0 ? "bad" : ""}`}>{count(node.createFails)}</td>
                <td>{node.version}</td>
                <td>
                  {isReadOnly() ? null : node.status === "draining" ? (
                    <button type="button" class="small primary" onClick={() => void set(node, "ready")}>
                      Make ready
                    </button>
                  ) : (
                    <button type="button" class="small danger" aria-label={`Drain ${node.id}`} onClick={() => drain(node)}>
                      Drain
                    </button>
                  )}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
    </section>
  );
}

function Share({ share, text }: { readonly share: number; readonly text: string }): JSX.Element {
  return (
    <span class="left" title={text}>
      <span class={`drain ${share > HIGH ? "low" : ""}`} aria-hidden="true">
        <span style={{ width: `${Math.min(1, share) * 100}%` }} />
      </span>
      {percent(share)}
    </span>
  );
}

/** The progress of a drain. */
function Progress({ node }: { readonly node: ShownNode }): JSX.Element {
  const [drain, setDrain] = useState<Drain>();
  useEffect(() => {
    const read = () => call<Drain>("getNodeDrain", { nodeID: node.id }).then(setDrain, () => undefined);
    void read();
    const timer = setInterval(() => void (document.hidden || read()), AGAIN_MS);
    return () => clearInterval(timer);
  }, [node.id]);
  return (
    <span class="muted">
      {drain === undefined
        ? ""
        : `${count(drain.running)} still run, ${count(drain.movedByDrain.length)} moved${drain.failed.length === 0 ? "" : `, ${count(drain.failed.length)} failed and are tried again`}`}
    </span>
  );
}
