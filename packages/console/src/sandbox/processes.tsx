// The processes that were started through the sandbox's agent, and the signals that end them.
import type { JSX } from "preact";
import { useEffect, useState } from "preact/hooks";
import { confirm } from "../dialog.tsx";
import { Empty, Problem, Scroll } from "../parts.tsx";
import { messageOf, request } from "../session.ts";
import { say } from "../toasts.tsx";
import type { TabProps } from "./sandbox.tsx";

type Process = { readonly pid: number; readonly tag?: string; readonly cmd: string; readonly args: readonly string[] };
const AGAIN_MS = 3_000;

export function Processes({ row }: TabProps): JSX.Element {
  const [list, setList] = useState<readonly Process[]>();
  const [problem, setProblem] = useState("");
  const read = () =>
    request<{ value: Process[] }>(`inside/${row.id}`, { verb: "processes" }).then(
      ({ value }) => {
        setList(value);
        setProblem("");
      },
      (error: unknown) => setProblem(messageOf(error)),
    );
  useEffect(() => {
    void read();
    const timer = setInterval(() => void (document.hidden || read()), AGAIN_MS);
    return () => clearInterval(timer);
  }, [row.id]);
  const end = ({ pid, cmd }: Process) =>
    confirm({
      title: `End process ${pid}?`,
      loses: `${cmd} is killed; what it has not written is lost.`,
      act: "Kill",
      onYes: () =>
        void request(`inside/${row.id}`, { verb: "signal", pid, signal: "SIGKILL" }).then(
          () => {
            say(`Killed process ${pid}.`);
            return read();
          },
          (error: unknown) => say(messageOf(error), "bad"),
        ),
    });
  if (list === undefined) return problem === "" ? <Empty title="Reading the processes …" /> : <Problem error={problem} />;
  return (
    <Scroll label="Processes">
      <Problem error={problem} />
      {list.length === 0 ? <Empty title="No process was started through the sandbox's agent, or all have ended." /> : null}
      <table>
        <thead>
          <tr>
            <th scope="col" class="number">
              PID
            </th>
            <th scope="col">Command</th>
            <th scope="col">Tag</th>
            <th scope="col">
              <span class="hidden">Acts</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {list.map((process) => (
            <tr key={process.pid}>
              <td class="number">{process.pid}</td>
              <td class="text">
                <code>{[process.cmd, ...process.args].join(" ")}</code>
              </td>
              <td>{process.tag}</td>
              <td>
                <button type="button" class="small danger" onClick={() => end(process)}>
                  Kill
                </button>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </Scroll>
  );
}
