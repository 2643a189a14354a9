// The view of the store's master: usage by tier, clients and their segments, evictions and other losses, standbys and the leader.
import type { JSX } from "preact";
import { confirm } from "../dialog.tsx";
import { bytes, count, percent } from "../format.ts";
import { Empty } from "../parts.tsx";
import { isReadOnly, messageOf, request } from "../session.ts";
import { say } from "../toasts.tsx";

type Segment = {
  readonly segment_name: string;
  readonly segment_id: string;
  readonly te_endpoint: string;
  readonly protocol: string;
  readonly status: string;
  readonly allocator_used_bytes: number;
  readonly allocator_capacity_bytes: number;
  readonly readable?: boolean;
};
type Client = { readonly client_id: string; readonly stable_id: string; readonly heard: boolean; readonly segments: readonly string[] };
type Standby = { readonly name?: string; readonly http?: string; readonly in_sync: boolean; readonly lag?: number };
type Ha = { readonly success: boolean; readonly role?: string; readonly name?: string; readonly leader?: unknown; readonly standbys?: readonly Standby[] };
export type StoreParts = {
  readonly metrics: Readonly<Record<string, number>>;
  readonly segments: { readonly segments: readonly Segment[] };
  readonly clients: { readonly clients: readonly Client[] };
  readonly disks: { readonly disks: readonly unknown[]; readonly shared_folder: unknown };
  readonly ha: Ha;
};

/** The counters of losses and refusals, each with its label. */
const losses: readonly (readonly [metric: string, words: string])[] = [
  ["svc_store_evicted_keys_total", "keys evicted"],
  ["svc_store_allocation_failures_total", "puts that found no memory"],
  ["svc_store_refused_log_full_total", "changes refused because the log was full"],
  ["svc_store_lost_keys_total", "keys lost with their holder"],
  ["svc_store_lost_clients_total", "clients lost"],
  ["svc_store_discarded_puts_total", "puts discarded"],
  ["svc_store_damaged_files_total", "damaged files"],
  ["svc_store_log_quarantined_files", "quarantined files of the log"],
  ["svc_store_rpc_refused_total", "connections refused"],
];
/** Why lookups found nothing, as the master's metric labels them. */
const misses: readonly (readonly [reason: string, words: string])[] = [
  ["never_stored", "never stored"],
  ["evicted", "evicted"],
  ["removed", "removed by a request"],
  ["holder_lost", "lost with their segment"],
  ["holder_away", "on a holder that does not answer"],
  ["expired", "given up, as their put did not end"],
  ["unfinished", "still being put"],
  ["quota", "refused for their tenant's quota"],
  ["tenant", "of an unknown tenant"],
  ["fingerprint", "stored in another layout"],
  ["checksum", "damaged"],
  ["unknown", "gone for longer than the master remembers"],
];
const tiers: readonly (readonly [name: string, used: string, capacity: string])[] = [
  ["Memory", "svc_store_used_bytes", "svc_store_capacity_bytes"],
  ["Disks", "svc_store_disk_used_bytes", "svc_store_disk_capacity_bytes"],
  ["NoF", "svc_store_nof_used_bytes", "svc_store_nof_capacity_bytes"],
  ["Shared folder", "svc_store_folder_used_bytes", "svc_store_folder_quota_bytes"],
];

export function Store({ parts, onActed }: { readonly parts: Partial<StoreParts>; readonly onActed: () => void }): JSX.Element {
  const metric = (name: string) => parts.metrics?.[name] ?? 0;
  const segments = parts.segments?.segments ?? [];
  const { ha } = parts;
  const clients = parts.clients?.clients ?? [];
  const silent = clients.filter(({ heard }) => !heard);
  return (
    <section aria-label="Store">
      <h2>Store</h2>
      <p class="muted">
        {count(metric("svc_store_keys"))} keys, {count(metric("svc_store_unfinished_puts"))} unfinished puts, {count(clients.length)} clients
        {silent.length === 0 ? "" : `, ${count(silent.length)} of them silent`}
      </p>
      <table>
        <tbody>
          {tiers
            .filter(([, , capacity]) => metric(capacity) > 0)
            .map(([name, used, capacity]) => (
              <tr key={name}>
                <th scope="row">{name}</th>
                <td>
                  <Fill used={metric(used)} capacity={metric(capacity)} />
                </td>
              </tr>
            ))}
        </tbody>
      </table>
      <ul class="losses">
        {losses
          .filter(([name]) => metric(name) > 0)
          .map(([name, words]) => (
            <li key={name}>
              <strong>{count(metric(name))}</strong> {words}
            </li>
          ))}
      </ul>
      <Misses metric={metric} />
      {segments.length === 0 ? (
        <Empty title="No client has mounted a segment." />
      ) : (
        <table>
          <thead>
            <tr>
              <th scope="col">Segment</th>
              <th scope="col">Endpoint</th>
              <th scope="col">Protocol</th>
              <th scope="col">Status</th>
              <th scope="col">Fill</th>
            </tr>
          </thead>
          <tbody>
            {segments.map((segment) => (
              <tr key={segment.segment_id}>
                <th scope="row">{segment.segment_name}</th>
                <td>{segment.te_endpoint}</td>
                <td>{segment.protocol}</td>
                <td>
                  <span class={`state ${segment.readable === false ? "failed" : "running"}`}>
                    {segment.readable === false ? "does not answer" : segment.status.toLowerCase()}
                  </span>
                </td>
                <td>
                  <Fill used={segment.allocator_used_bytes} capacity={segment.allocator_capacity_bytes} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      {ha?.success === true ? <Masters ha={ha} onActed={onActed} /> : <p class="muted">There is one master, without standbys.</p>}
    </section>
  );
}

function Misses({ metric }: { readonly metric: (name: string) => number }): JSX.Element | null {
  const found = misses
    .map(([reason, words]) => ({ words, number: metric(`svc_store_misses_total{reason="${reason}"}`) }))
    .filter(({ number }) => number > 0)
    .sort((a, b) => b.number - a.number);
  if (found.length === 0) return null;
  return (
    <>
      <h3>Keys that were looked up and not found</h3>
      <ul class="losses" aria-label="Misses by reason">
        {found.map(({ words, number }) => (
          <li key={words}>
            <strong>{count(number)}</strong> {words}
          </li>
        ))}
      </ul>
    </>
  );
}

export function Fill({ used, capacity }: { readonly used: number; readonly capacity: number }): JSX.Element {
  const share = used / Math.max(1, capacity);
  return (
    <span class="left">
      <span class={`drain ${share > 0.95 ? "low" : ""}`} aria-hidden="true">
        <span style={{ width: `${Math.min(1, share) * 100}%` }} />
      </span>
      {bytes(used)} of {bytes(capacity)} ({percent(share)})
    </span>
  );
}

function Masters({ ha, onActed }: { readonly ha: Ha; readonly onActed: () => void }): JSX.Element {
  const lead = (name: string) =>
    confirm({
      title: `Hand the lead to ${name}?`,
      loses: "Requests under way are answered by the new leader; clients reconnect. Nothing is lost.",
      act: "Hand over",
      onYes: () =>
        void request<{ said: string }>("cache-act", { act: "lead", id: name }).then(
          () => {
            say(`${name} leads.`);
            onActed();
          },
          (error: unknown) => say(messageOf(error), "bad"),
        ),
    });
  return (
    <>
      <p>
        This master ({ha.name}) is the <strong>{ha.role}</strong>.
      </p>
      <ul>
        {ha.standbys?.map((standby) => (
          <li key={standby.name ?? standby.http}>
            {standby.name} <span class={`state ${standby.in_sync ? "running" : "failed"}`}>{standby.in_sync ? "in sync" : "behind"}</span>{" "}
            {standby.lag === undefined ? "" : `${count(standby.lag)} records behind `}
            {isReadOnly() || !standby.in_sync || standby.name === undefined ? null : (
              <button type="button" class="small" onClick={() => lead(standby.name ?? "")}>
                Let it lead
              </button>
            )}
          </li>
        ))}
      </ul>
    </>
  );
}
