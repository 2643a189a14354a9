// The admin server's view: route migrations, and the devices of the cold tier with the actions that take them into and out of service.
import type { JSX } from "preact";
import { confirm } from "../dialog.tsx";
import { count } from "../format.ts";
import { Empty } from "../parts.tsx";
import { isReadOnly, messageOf, request } from "../session.ts";
import { say } from "../toasts.tsx";
import { Fill } from "./store.tsx";

type Device = {
  readonly device_id: string;
  readonly kind: string;
  readonly target: string;
  readonly state: string;
  readonly schedulable: boolean;
  readonly capacity_bytes: number | null;
  readonly used_bytes: number;
  readonly last_error: string | null;
};
type Task = Readonly<Record<string, unknown>> & { readonly task_id: string };
export type DevicesParts = { readonly migrations: { readonly tasks: readonly Task[] }; readonly devices: { readonly devices: readonly Device[] } };

/** The newest tasks come last in the server's list. */
const SHOWN_TASKS = 50;
const asks: Readonly<Record<string, string>> = {
  drainDevice: "It gives up the objects that memory has too, and moves the rest to memory.",
  unregisterDevice: "It is taken out of service once no object lies there.",
};

export function Devices({ parts, onActed }: { readonly parts: Partial<DevicesParts>; readonly onActed: () => void }): JSX.Element {
  const devices = parts.devices?.devices ?? [];
  const tasks = (parts.migrations?.tasks ?? []).slice(-SHOWN_TASKS).reverse();
  const run = (act: string, id: string) =>
    void request<{ said: string }>("cache-act", { act, id }).then(
      ({ said }) => {
        say(said);
        onActed();
      },
      (error: unknown) => say(messageOf(error), "bad"),
    );
  const perform = (act: string, label: string, id: string) => {
    const loses = asks[act];
    if (loses === undefined) run(act, id);
    else confirm({ title: `${label} ${id}?`, loses, act: label, onYes: () => run(act, id) });
  };
  return (
    <section aria-label="Cold tier and migrations">
      <h2>Cold tier</h2>
      {devices.length === 0 ? <Empty title="There is no device." /> : null}
      {devices.length === 0 ? null : (
        <table>
          <thead>
            <tr>
              <th scope="col">Device</th>
              <th scope="col">Kind</th>
              <th scope="col">State</th>
              <th scope="col">Fill</th>
              <th scope="col">Last error</th>
              <th scope="col">
                <span class="hidden">Acts</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {devices.map((device) => (
              <tr key={device.device_id}>
                <th scope="row">{device.device_id}</th>
                <td title={device.target}>{device.kind}</td>
                <td>
                  <span class={`state ${device.schedulable ? "running" : "paused"}`}>{device.state}</span>
                </td>
                <td>
                  <Fill used={device.used_bytes} capacity={device.capacity_bytes ?? 0} />
                </td>
                <td class="wrap bad">{device.last_error ?? ""}</td>
                <td class="acts">
                  {isReadOnly()
                    ? null
                    : (
                        [
                          [device.schedulable ? "disableDevice" : "enableDevice", device.schedulable ? "Disable" : "Enable"],
                          ["drainDevice", "Drain"],
                          ["unregisterDevice", "Unregister"],
                        ] as const
                      ).map(([act, label]) => (
                        <button
                          key={act}
                          type="button"
                          class="small"
                          aria-label={`${label} ${device.device_id}`}
                          onClick={() => perform(act, label, device.device_id)}
                        >
                          {label}
                        </button>
                      ))}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      <h2>Migrations</h2>
      {tasks.length === 0 ? <Empty title="There is no migration." /> : null}
      <table>
        <tbody>
          {tasks.map((task) => (
            <tr key={task.task_id}>
              <th scope="row">{task.task_id}</th>
              <td>
                <span class={`state ${String(task["state"] ?? task["status"] ?? "")}`}>{String(task["state"] ?? task["status"] ?? "")}</span>
              </td>
              <td class="wrap">
                {Object.entries(task)
                  .filter(([name, value]) => !["task_id", "state", "status"].includes(name) && (typeof value === "string" || typeof value === "number"))
                  .map(([name, value]) => `${name.replaceAll("_", " ")} ${typeof value === "number" ? count(value) : String(value)}`)
                  .join(", ")}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}
